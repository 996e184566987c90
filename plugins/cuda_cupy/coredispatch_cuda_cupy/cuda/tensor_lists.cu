// Norms, clipping, unscaling and updates of all tensors of a list in one pass. Behind parts.cu.
//
// Nothing is read on the host: a norm, a scale and the flag of what is not finite stay where they are.

// Stores `function(i, x, at)` for each element x, at place i of tensor `at` of the first list.
template <typename Function>
__device__ void rewrite(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, Function function) {
    for (i64 k = blockIdx.x; k < parts; k += gridDim.x) {
        Part part(table, rows, count, parts, length, k);
        E* x = address(table, 0, count, part.at);
        for (i64 i = part.start + threadIdx.x; i < part.end; i += blockDim.x)
            x[i] = Narrowed<E>::of((A)function(i, (A)widened(x[i]), part.at));
    }
}

extern "C" __global__ void clip_many(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, const void* norm, i64 type,
    double most) {
    double total = number_at(norm, type), factor;
    if (type == DOUBLE)
        factor = most / (total + 1e-6);
    else  // as precise as a norm of this type
        factor = (float)most / ((float)total + 1e-6f);
    A rounded = widened(Narrowed<E>::of((A)(factor > 1 ? 1 : factor)));
    rewrite(table, rows, count, parts, length, [&](i64, A x, i64) { return x * rounded; });
}

// `found` becomes 1 where an element is infinite or NaN. A scale without a place is `number`.
extern "C" __global__ void unscale_many(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, const float* scale, double number,
    float* found) {
    A inverse = scale ? (A)*scale : (A)number;
    bool bad = false;
    rewrite(table, rows, count, parts, length, [&](i64, A x, i64) {
        bad |= !(x - x == 0);
        return x * inverse;
    });
    if (bad) *found = 1;  // all that write there write the same
}

enum { ADD, MUL, LERP, ADDCMUL, ADDCDIV, CLAMP };
template <int FUNCTION> __device__ inline A updated(A x, A a, A b, A first, A second) {
    if (FUNCTION == ADD) return x + first * a;
    if (FUNCTION == MUL) return x * first;
    if (FUNCTION == LERP)  // from the nearer end
        return fabs(first) < (A)0.5 ? x + first * (a - x) : a - (a - x) * (1 - first);
    if (FUNCTION == ADDCMUL) return x + first * a * b;
    if (FUNCTION == ADDCDIV) return x + first * a / b;
    A low = x < first || first != first ? first : x;  // a NaN stays
    return low > second || second != second ? second : low;
}
template <int FUNCTION>
__device__ void update(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, double first, double second) {
    rewrite(table, rows, count, parts, length, [&](i64 i, A x, i64 at) {
        A a = rows > 1 ? (A)widened(address(table, 1, count, at)[i]) : 0;
        A b = rows > 2 ? (A)widened(address(table, 2, count, at)[i]) : 0;
        return updated<FUNCTION>(x, a, b, (A)first, (A)second);
    });
}
extern "C" __global__ void update_many(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, i64 function, double first,
    double second) {
    switch (function) {
        case ADD: return update<ADD>(table, rows, count, parts, length, first, second);
        case MUL: return update<MUL>(table, rows, count, parts, length, first, second);
        case LERP: return update<LERP>(table, rows, count, parts, length, first, second);
        case ADDCMUL: return update<ADDCMUL>(table, rows, count, parts, length, first, second);
        case ADDCDIV: return update<ADDCDIV>(table, rows, count, parts, length, first, second);
        case CLAMP: return update<CLAMP>(table, rows, count, parts, length, first, second);
    }
}

// The norm of each tensor: its parts first, then what they come to. The sums are of type A, in an
// order that the parts decide, so that they repeat.
enum { ONE, TWO, LARGEST, OTHER };
__device__ inline A folded(A x, i64 kind, A* pad) {
    return kind == LARGEST ? over_block<A, largest>(x, pad) : over_block<A, added>(x, pad);
}
extern "C" __global__ void norm_parts(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, A* sums, i64 kind, double order) {
    __shared__ A pad[32];
    for (i64 k = blockIdx.x; k < parts; k += gridDim.x) {
        Part part(table, rows, count, parts, length, k);
        const E* x = address(table, 0, count, part.at);
        A sum = 0;
        for (i64 i = part.start + threadIdx.x; i < part.end; i += blockDim.x) {
            A value = widened(x[i]), size = value < 0 ? -value : value;
            if (kind == LARGEST)
                sum = largest(sum, size);
            else
                sum += kind == TWO ? value * value : kind == ONE ? size : pow(size, (A)order);
        }
        sum = folded(sum, kind, pad);
        if (threadIdx.x == 0) sums[k] = sum;
    }
}
extern "C" __global__ void norm_whole(
    const i64* table, i64 rows, i64 count, i64 parts, i64 length, const A* sums, E* norms, i64 kind,
    double order) {
    __shared__ A pad[32];
    for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        i64 first = first_part(table, rows, count, parts, at);
        i64 own = (table[rows * count + at] + length - 1) / length;
        A sum = 0;
        for (i64 k = threadIdx.x; k < own; k += blockDim.x)
            sum = kind == LARGEST ? largest(sum, sums[first + k]) : sum + sums[first + k];
        sum = folded(sum, kind, pad);
        if (kind == TWO) sum = sqrt(sum);
        if (kind == OTHER) sum = pow(sum, (A)(1 / order));
        if (threadIdx.x == 0) norms[at] = Narrowed<E>::of(sum);
    }
}
