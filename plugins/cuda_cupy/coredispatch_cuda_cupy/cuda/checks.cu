// Checks of indices that another kernel uses.

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
