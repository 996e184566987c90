// softmax, log_softmax and their gradients along one dimension.

template <bool ROWS, bool LOG>
__device__ void forward(const E* x, E* out, i64 outer, i64 n, i64 inner, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        Values<ROWS> values(line, x);
        A top = values.template folded<largest<A>>(
            -infinity_of(A()), [](i64, A v) { return v; }, pad);
        A total = values.template folded<added<A>>(
            0, [&](i64, A v) { return exp(v - top); }, pad);
        A shift = LOG ? log(total) : 0;
        values.each([&](i64 k, A v) {
            out[line.at(k)] = Narrowed<E>::of(LOG ? v - top - shift : exp(v - top) / total);
        });
    }
}

template <bool ROWS, bool LOG>
__device__ void backward(const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        Values<ROWS> grads(line, grad);
        A total = grads.template folded<added<A>>(
            0, [&](i64 k, A g) { return LOG ? g : g * widened(y[line.at(k)]); }, pad);
        grads.each([&](i64 k, A g) {
            A v = widened(y[line.at(k)]);
            out[line.at(k)] = Narrowed<E>::of(LOG ? g - exp(v) * total : g * v - v * total);
        });
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1) softmax(
    const E* x, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        forward<true, false>(x, out, outer, n, inner, pad);
    else
        forward<false, false>(x, out, outer, n, inner, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) log_softmax(
    const E* x, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        forward<true, true>(x, out, outer, n, inner, pad);
    else
        forward<false, true>(x, out, outer, n, inner, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) softmax_backward(
    const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        backward<true, false>(grad, y, out, outer, n, inner, pad);
    else
        backward<false, false>(grad, y, out, outer, n, inner, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) log_softmax_backward(
    const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        backward<true, true>(grad, y, out, outer, n, inner, pad);
    else
        backward<false, true>(grad, y, out, outer, n, inner, pad);
}
