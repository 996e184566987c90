// Values checked for another kernel that uses them.

// Reports what is not in [low, n).
extern "C" __global__ void check_values(
    const i64* x, i64 size, i64 n, i64 low, i64* flag, i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(size); i.more(); i.next()) check.place(x[i], n);
}

// Indices of several dimensions as one: total = total * n + index, from 0 if `first`; 0 for one out
// of bounds.
extern "C" __global__ void join_index(
    const i64* index, i64* total, i64 size, i64 first, i64 n, i64 low, i64* flag, i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(size); i.more(); i.next()) {
        i64 k = check.place(index[i], n);
        total[i] = (first ? 0 : total[i] * n) + (k < 0 ? 0 : k);
    }
}

// Who writes last to each place, counted from 1: writers (n) for an index (m) of rows, or writers
// (outer, n, inner) for an index (outer, m, inner) of elements.
extern "C" __global__ void last_writers(
    const i64* index, int* writers, i64 outer, i64 n, i64 m, i64 inner, i64 low, i64* flag,
    i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(outer * m * inner); i.more(); i.next()) {
        i64 row = quotient(i, inner), o = quotient(row, m), k = check.place(index[i], n);
        if (k >= 0) atomicMax(writers + (o * n + k) * inner + i - row * inner, (int)(row - o * m + 1));
    }
}
