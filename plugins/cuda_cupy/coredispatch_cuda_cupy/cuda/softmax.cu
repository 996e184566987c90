// softmax, log_softmax and their gradients along one dimension.

template <bool ROWS, bool LOG>
__device__ void forward(const E* x, E* out, i64 outer, i64 n, i64 inner, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        A top = -infinity_of(A());
        for (i64 k = line.lane; k < line.end; k += line.lanes)
            top = largest(top, (A)widened(x[line.at(k)]));
        top = line.template folded<A, largest<A>>(top, pad);
        A total = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes)
            total += exp(widened(x[line.at(k)]) - top);
        total = line.template folded<A, added<A>>(total, pad);
        A shift = LOG ? log(total) : 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A y = widened(x[line.at(k)]) - top;
            out[line.at(k)] = Narrowed<E>::of(LOG ? y - shift : exp(y) / total);
        }
    }
}

template <bool ROWS, bool LOG>
__device__ void backward(const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        A total = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A g = widened(grad[line.at(k)]);
            total += LOG ? g : g * widened(y[line.at(k)]);
        }
        total = line.template folded<A, added<A>>(total, pad);
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A g = widened(grad[line.at(k)]), v = widened(y[line.at(k)]);
            out[line.at(k)] = Narrowed<E>::of(LOG ? g - exp(v) * total : g * v - v * total);
        }
    }
}

extern "C" __global__ void softmax(const E* x, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        forward<true, false>(x, out, outer, n, inner, pad);
    else
        forward<false, false>(x, out, outer, n, inner, pad);
}
extern "C" __global__ void log_softmax(const E* x, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        forward<true, true>(x, out, outer, n, inner, pad);
    else
        forward<false, true>(x, out, outer, n, inner, pad);
}
extern "C" __global__ void softmax_backward(
    const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        backward<true, false>(grad, y, out, outer, n, inner, pad);
    else
        backward<false, false>(grad, y, out, outer, n, inner, pad);
}
extern "C" __global__ void log_softmax_backward(
    const E* grad, const E* y, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ A pad[256];
    if (inner == 1)
        backward<true, true>(grad, y, out, outer, n, inner, pad);
    else
        backward<false, true>(grad, y, out, outer, n, inner, pad);
}
