// Optimizer steps, in place, over one parameter or over all of a list. The numbers come in double
// precision; what a step computes is rounded once, when it is stored. Behind parts.cu.

struct Adam {
    A sign, decay, shrink, one_minus_beta1, beta2, one_minus_beta2, correction, eps, rate;
    __device__ void step(
        i64 i, E* param, const E* grad, E* average, E* square, E* largest_square) const {
        A p = widened(param[i]), g = widened(grad[i]) * sign;
        if (decay) g += p * decay;  // not 0 times infinity
        A m = widened(average[i]), v = widened(square[i]);
        m += (g - m) * one_minus_beta1;
        v = v * beta2 + g * g * one_minus_beta2;
        average[i] = Narrowed<E>::of(m);
        square[i] = Narrowed<E>::of(v);
        if (largest_square) {
            v = largest((A)widened(largest_square[i]), v);
            largest_square[i] = Narrowed<E>::of(v);
        }
        A change = m / (sqrt(v) * correction + eps) * rate;
        param[i] = Narrowed<E>::of(p * shrink - change);
    }
};
struct Sgd {
    A sign, decay, momentum, share, lr;
    i64 first, nesterov;
    __device__ void step(i64 i, E* param, const E* grad, E* buffer) const {
        A p = widened(param[i]), g = widened(grad[i]) * sign;
        if (decay) g += p * decay;  // not 0 times infinity
        if (buffer) {
            A b = first ? g : widened(buffer[i]) * momentum + g * share;
            buffer[i] = Narrowed<E>::of(b);
            g = nesterov ? g + b * momentum : b;
        }
        param[i] = Narrowed<E>::of(p - g * lr);
    }
};

extern "C" __global__ void adam(
    E* param, const E* grad, E* average, E* square, E* largest_square, i64 size, double sign,
    double decay, double shrink, double one_minus_beta1, double beta2, double one_minus_beta2,
    double correction, double eps, double rate) {
    Adam adam{(A)sign, (A)decay, (A)shrink, (A)one_minus_beta1, (A)beta2, (A)one_minus_beta2,
              (A)correction, (A)eps, (A)rate};
    for (Each i(size); i.more(); i.next())
        adam.step(i, param, grad, average, square, largest_square);
}
extern "C" __global__ void sgd(
    E* param, const E* grad, E* buffer, i64 size, double sign, double decay, double momentum,
    double share, double lr, i64 first, i64 nesterov) {
    Sgd sgd{(A)sign, (A)decay, (A)momentum, (A)share, (A)lr, first, nesterov};
    for (Each i(size); i.more(); i.next()) sgd.step(i, param, grad, buffer);
}

extern "C" __global__ void adam_many(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, double sign, double decay,
    double shrink, double one_minus_beta1, double beta2, double one_minus_beta2, double correction,
    double eps, double rate) {
    Adam adam{(A)sign, (A)decay, (A)shrink, (A)one_minus_beta1, (A)beta2, (A)one_minus_beta2,
              (A)correction, (A)eps, (A)rate};
    for (i64 k = blockIdx.x; k < parts; k += gridDim.x) {
        Part part(table, rows, count, parts, length, k);
        E *param = address(table, 0, count, part.at), *grad = address(table, 1, count, part.at);
        E *average = address(table, 2, count, part.at), *square = address(table, 3, count, part.at);
        E* largest_square = rows > 4 ? address(table, 4, count, part.at) : nullptr;
        for (i64 i = part.start + threadIdx.x; i < part.end; i += blockDim.x)
            adam.step(i, param, grad, average, square, largest_square);
    }
}
extern "C" __global__ void sgd_many(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, double sign, double decay,
    double momentum, double share, double lr, i64 first, i64 nesterov) {
    Sgd sgd{(A)sign, (A)decay, (A)momentum, (A)share, (A)lr, first, nesterov};
    for (i64 k = blockIdx.x; k < parts; k += gridDim.x) {
        Part part(table, rows, count, parts, length, k);
        E *param = address(table, 0, count, part.at), *grad = address(table, 1, count, part.at);
        E* buffer = rows > 2 ? address(table, 2, count, part.at) : nullptr;
        for (i64 i = part.start + threadIdx.x; i < part.end; i += blockDim.x)
            sgd.step(i, param, grad, buffer);
    }
}
