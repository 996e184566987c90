// Optimizer steps, in place. The numbers come in double precision; what a step computes is rounded
// once, when it is stored.

extern "C" __global__ void adam(
    E* param, const E* grad, E* average, E* square, E* largest_square, i64 size, double sign,
    double decay, double shrink, double one_minus_beta1, double beta2, double one_minus_beta2,
    double correction, double eps, double rate) {
    for (Each i(size); i.more(); i.next()) {
        A p = widened(param[i]), g = widened(grad[i]) * (A)sign + p * (A)decay;
        A m = widened(average[i]), v = widened(square[i]);
        m += (g - m) * (A)one_minus_beta1;
        v = v * (A)beta2 + g * g * (A)one_minus_beta2;
        average[i] = Narrowed<E>::of(m);
        square[i] = Narrowed<E>::of(v);
        if (largest_square) {
            v = largest((A)widened(largest_square[i]), v);
            largest_square[i] = Narrowed<E>::of(v);
        }
        A step = m / (sqrt(v) * (A)correction + (A)eps) * (A)rate;
        param[i] = Narrowed<E>::of(p * (A)shrink - step);
    }
}
extern "C" __global__ void sgd(
    E* param, const E* grad, E* buffer, i64 size, double sign, double decay, double momentum,
    double share, i64 first, i64 nesterov, double lr) {
    for (Each i(size); i.more(); i.next()) {
        A p = widened(param[i]), g = widened(grad[i]) * (A)sign + p * (A)decay;
        if (buffer) {
            A b = first ? g : widened(buffer[i]) * (A)momentum + g * (A)share;
            buffer[i] = Narrowed<E>::of(b);
            g = nesterov ? g + b * (A)momentum : b;
        }
        param[i] = Narrowed<E>::of(p - g * (A)lr);
    }
}
