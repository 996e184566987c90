// Rows and elements moved by indices. Arrays are contiguous; an index out of bounds reads zeros and
// writes nothing, and is reported. `step` is 0 where one element stands for all values.

// out (outer, m, width) = the rows of x (outer, n, width) that index (m) names.
extern "C" __global__ void take_rows(
    const E* x, const i64* index, E* out, i64 outer, i64 n, i64 m, i64 width, i64 low, i64* flag,
    i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(outer * m * width); i.more(); i.next()) {
        i64 row = quotient(i, width), o = quotient(row, m), k = check.place(index[row - o * m], n);
        out[i] = k < 0 ? E() : x[(o * n + k) * width + i - row * width];
    }
}
// Of several values for one place the last stays, as on the CPU: `writers` says which of m that is
// (see checks.cu), from 1.
extern "C" __global__ void put_rows(
    E* out, const i64* index, const E* values, i64 step, const int* writers, i64 outer, i64 n,
    i64 m, i64 width) {
    for (Each i(outer * m * width); i.more(); i.next()) {
        i64 row = quotient(i, width), o = quotient(row, m), j = row - o * m, k = index[j];
        if (k < 0) k += n;
        if (k < 0 || k >= n || writers[k] != j + 1) continue;
        out[(o * n + k) * width + i - row * width] = values[i * step];
    }
}

// One index for each element: out (outer, m, inner) from x (outer, n, inner).
extern "C" __global__ void gather_along(
    const E* x, const i64* index, E* out, i64 outer, i64 n, i64 m, i64 inner, i64 low, i64* flag,
    i64 kind, i64 op) {
    Check check{low, flag, kind, op};
    for (Each i(outer * m * inner); i.more(); i.next()) {
        i64 row = quotient(i, inner), o = quotient(row, m), k = check.place(index[i], n);
        out[i] = k < 0 ? E() : x[(o * n + k) * inner + i - row * inner];
    }
}
extern "C" __global__ void scatter_along(
    E* out, const i64* index, const E* values, i64 step, const int* writers, i64 outer, i64 n,
    i64 m, i64 inner) {
    for (Each i(outer * m * inner); i.more(); i.next()) {
        i64 row = quotient(i, inner), o = quotient(row, m), k = index[i];
        i64 place = (o * n + k) * inner + i - row * inner;
        if (k >= 0 && k < n && writers[place] == row - o * m + 1) out[place] = values[i * step];
    }
}
