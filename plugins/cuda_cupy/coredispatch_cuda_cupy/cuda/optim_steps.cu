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

// Adam with the number of steps of each tensor beside it on the device, where it is counted up, and
// a learning rate that may lie there, too (else it is `number`). Nothing is done where `found` is not 0.
__device__ inline void count_up(void* step, i64 type) {
    if (type == DOUBLE)
        *(double*)step += 1;
    else
        *(float*)step += 1;
}
extern "C" __global__ void adam_counted(
    i64* table, i64 rows, i64 count, i64 parts, i64 length, i64 step_type, const float* found,
    const void* lr, i64 lr_type, double number, double sign, double decay, double decoupled_decay,
    double log_beta1, double one_minus_beta1, double beta2, double log_beta2,
    double one_minus_beta2, double eps) {
    if (found && *found != 0) return;
    __shared__ double correction, shrink, rate;
    for (i64 k = blockIdx.x; k < parts; k += gridDim.x) {
        Part part(table, rows, count, parts, length, k);
        void* step = number_of(table, rows, count, parts, part.at);
        if (threadIdx.x == 0) {  // in double precision once, not by each thread
            double steps = number_at(step, step_type) + 1, r = lr ? number_at(lr, lr_type) : number;
            correction = 1 / sqrt(-expm1(steps * log_beta2));
            rate = r / -expm1(steps * log_beta1);
            shrink = 1 - r * decoupled_decay;
        }
        __syncthreads();
        Adam adam{(A)sign, (A)decay, (A)shrink, (A)one_minus_beta1, (A)beta2, (A)one_minus_beta2,
                  (A)correction, (A)eps, (A)rate};
        E *param = address(table, 0, count, part.at), *grad = address(table, 1, count, part.at);
        E *average = address(table, 2, count, part.at), *square = address(table, 3, count, part.at);
        E* largest_square = rows > 4 ? address(table, 4, count, part.at) : nullptr;
        for (i64 i = part.start + threadIdx.x; i < part.end; i += blockDim.x)
            adam.step(i, param, grad, average, square, largest_square);
        __syncthreads();  // before the numbers of the next part
        i64 own = (table[rows * count + part.at] + length - 1) / length;
        if (threadIdx.x == 0 && is_last(table, rows, count, parts, part.at, own))
            count_up(step, step_type);
    }
    for (Each at(count); at.more(); at.next())  // those without elements, which have no part
        if (table[rows * count + at] == 0)
            count_up(number_of(table, rows, count, parts, at), step_type);
}
