// Values added where indices say, in type A; repeated places add up, in no fixed order. An index out
// of bounds adds nothing and is reported. `step` is 0 where one element stands for all values.

__device__ inline void add_to(float* place, float x) { atomicAdd(place, x); }
__device__ inline void add_to(double* place, double x) { atomicAdd(place, x); }
__device__ inline void add_to(int* place, int x) { atomicAdd(place, x); }
__device__ inline void add_to(i64* place, i64 x) {  // the same bits as unsigned give the same sum
    atomicAdd((unsigned long long*)place, (unsigned long long)x);
}

// out (outer, n, width) += values (outer, m, width) at the rows that index (m) names, but `skipped`.
extern "C" __global__ void add_rows(
    A* out, const i64* index, const E* values, i64 step, i64 outer, i64 n, i64 m, i64 width,
    i64 skipped, i64 low, i64* flag, i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(outer * m * width); i.more(); i.next()) {
        i64 row = quotient(i, width), o = quotient(row, m), k = check.place(index[row - o * m], n);
        if (k >= 0 && k != skipped)
            add_to(out + (o * n + k) * width + i - row * width, (A)widened(values[i * step]));
    }
}
extern "C" __global__ void add_along(
    A* out, const i64* index, const E* values, i64 outer, i64 n, i64 m, i64 inner, i64 low,
    i64* flag, i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(outer * m * inner); i.more(); i.next()) {
        i64 row = quotient(i, inner), o = quotient(row, m), k = check.place(index[i], n);
        if (k >= 0) add_to(out + (o * n + k) * inner + i - row * inner, (A)widened(values[i]));
    }
}
