// The softmax of attention scores and its gradient, row by row, in place. Between them are products
// of cuBLAS's. A score counts where it is not masked: by the diagonal, or by a mask for all heads or
// for each (`mask_step` 0 or queries * keys). Rows are those of (heads, queries, keys).

struct Masked {
    i64 queries, keys, causal, mask_step;
    const bool* chosen;
    const E* bias;
    double scale;

    // One past the last key that row r may use.
    __device__ i64 end(i64 r) const {
        i64 q = r % queries;
        return causal && q + 1 < keys ? q + 1 : keys;
    }
    __device__ i64 place(i64 r, i64 k) const {
        i64 head = quotient(r, queries);
        return head * mask_step + (r - head * queries) * keys + k;
    }
    __device__ bool counts(i64 r, i64 k) const {
        if (chosen) return chosen[place(r, k)];
        return !bias || (A)widened(bias[place(r, k)]) != -infinity_of(A());
    }
    __device__ A of(E score, i64 r, i64 k) const {
        A s = widened(score) * (A)scale;
        if (chosen && !chosen[place(r, k)]) return -infinity_of(A());
        return bias ? s + widened(bias[place(r, k)]) : s;
    }
};

// Scores become weights. A row in which no key counts becomes 0, and `hidden` says so.
extern "C" __global__ void __launch_bounds__(1024, 1) weights(
    E* scores, bool* hidden, i64 rows, i64 queries, i64 keys, i64 causal, const bool* chosen,
    const E* bias, i64 mask_step, double scale) {
    __shared__ A pad[32];
    Masked masked{queries, keys, causal, mask_step, chosen, bias, scale};
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        E* row = scores + r * keys;
        i64 end = masked.end(r);
        A top = -infinity_of(A()), total = 0, count = 0;
        for (i64 k = threadIdx.x; k < end; k += blockDim.x) {
            top = largest(top, masked.of(row[k], r, k));
            count += masked.counts(r, k) ? 1 : 0;
        }
        top = over_block<A, largest<A>>(top, pad);
        count = over_block<A, added<A>>(count, pad);
        for (i64 k = threadIdx.x; k < end; k += blockDim.x)
            total += exp(masked.of(row[k], r, k) - top);
        total = over_block<A, added<A>>(total, pad);
        for (i64 k = threadIdx.x; k < keys; k += blockDim.x) {
            A weight = 0;
            if (k < end && count && (!chosen || masked.counts(r, k)))
                weight = exp(masked.of(row[k], r, k) - top) / total;
            row[k] = Narrowed<E>::of(weight);
        }
        if (hidden && threadIdx.x == 0) hidden[r] = count == 0;
    }
}

// Gradients of weights become those of the products: weight * (g - sum(g * weight)) * scale.
extern "C" __global__ void __launch_bounds__(1024, 1) scores_backward(
    const E* weights, E* grad, i64 rows, i64 queries, i64 keys, i64 causal, double scale) {
    __shared__ A pad[32];
    Masked masked{queries, keys, causal, 0, nullptr, nullptr, scale};
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        i64 end = masked.end(r);
        A along = 0;
        for (i64 k = threadIdx.x; k < end; k += blockDim.x)
            along += widened(grad[r * keys + k]) * widened(weights[r * keys + k]);
        along = over_block<A, added<A>>(along, pad);
        for (i64 k = threadIdx.x; k < keys; k += blockDim.x) {
            A weight = k < end ? widened(weights[r * keys + k]) : 0, g = widened(grad[r * keys + k]);
            grad[r * keys + k] = Narrowed<E>::of(k < end ? weight * (g - along) * (A)scale : 0);
        }
    }
}

// `out` is x with 0 in the rows that are hidden.
extern "C" __global__ void __launch_bounds__(1024, 1) without_hidden(
    const E* x, const bool* hidden, E* out, i64 rows, i64 n) {
    for (Each i(rows * n); i.more(); i.next())
        out[i] = hidden[quotient(i, n)] ? Narrowed<E>::of((A)0) : x[i];
}
