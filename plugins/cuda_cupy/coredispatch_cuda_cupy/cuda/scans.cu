// Cumulative sums, products, extrema and logarithms of sums of exponentials.
//
// Floating-point numbers are added, multiplied and raised to powers in double precision. A `Fold` says
// what a scan is: of(a, b) joins what comes earlier and later, and is associative.

typedef unsigned int u32;

template <typename X> struct Wide { typedef X type; };
template <> struct Wide<float> { typedef double type; };
typedef Wide<A>::type C;

struct Numbers {
    typedef C V;
    static __device__ C load(E x, i64) { return (C)widened(x); }
    static __device__ void store(E* out, i64*, i64 place, C v) { out[place] = Narrowed<E>::of((A)v); }
    static __device__ C up(C v, u32 distance) { return __shfl_up_sync(0xffffffffu, v, distance); }
};
struct Sum : Numbers {
    static __device__ C of(C a, C b) { return a + b; }
    static __device__ C start() { return 0; }
};
struct Product : Numbers {
    static __device__ C of(C a, C b) { return a * b; }
    static __device__ C start() { return 1; }
};
struct LogSumExp : Numbers {
    static __device__ C of(C a, C b) {
        if (a == b) return a + (C)0.6931471805599453;  // infinities too, whose difference is NaN
        C high = a > b ? a : b;
        return high + (C)log1p(exp(-fabs((double)(a - b))));
    }
    static __device__ C start() { return (C)-infinity_of(E()); }
};
// A value and where it is; the number of what is not there is -1.
struct Placed { A value; i64 number; };
template <bool LARGEST> struct Extremum {
    typedef Placed V;
    static __device__ V load(E x, i64 k) { return {(A)widened(x), k}; }
    static __device__ void store(E* out, i64* indices, i64 place, V v) {
        out[place] = Narrowed<E>::of(v.value);
        indices[place] = v.number;
    }
    static __device__ V up(V v, u32 distance) {
        return {__shfl_up_sync(0xffffffffu, v.value, distance),
                __shfl_up_sync(0xffffffffu, v.number, distance)};
    }
    // Of equals the later one; a NaN is taken, and stays until the next one.
    static __device__ V of(V a, V b) {
        if (a.number < 0) return b;
        if (b.number < 0) return a;
        bool reaches = LARGEST ? b.value >= a.value : b.value <= a.value;
        return reaches || b.value != b.value ? b : a;
    }
    static __device__ V start() { return {0, -1}; }
};

// The values of a block's threads, each folded with those before it; `all` is what they give
// together. `pad` holds 32 elements.
template <typename Fold>
__device__ typename Fold::V scanned(typename Fold::V v, typename Fold::V& all,
                                    typename Fold::V* pad) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        typename Fold::V before = Fold::up(v, distance);
        if (lane >= distance) v = Fold::of(before, v);
    }
    if (lane == 31) pad[warp] = v;
    __syncthreads();
    typename Fold::V before = all = Fold::start();
    for (u32 w = 0; w < blockDim.x / 32; w++) {
        if (w < warp) before = Fold::of(before, pad[w]);
        all = Fold::of(all, pad[w]);
    }
    __syncthreads();
    return Fold::of(before, v);
}

// A part of a row by a block, as many elements at a time as it has threads. Where a row is more
// than one part, `folded` has what each gives, of one part for each thread at most; with FOLDING
// that is what is made.
template <typename Fold, bool FOLDING>
__device__ void rows(const E* x, E* out, i64* indices, i64 count, i64 n, i64 part, void* folded,
                     typename Fold::V* pad) {
    typedef typename Fold::V V;
    V* known = (V*)folded;
    i64 parts = part < n ? (n + part - 1) / part : 1;
    for (i64 b = blockIdx.x; b < count * parts; b += gridDim.x) {
        i64 r = quotient(b, parts), own = b - r * parts, end = n;
        if ((own + 1) * part < n) end = (own + 1) * part;
        V carried = Fold::start(), all;
        if (!FOLDING && own) {
            bool before = threadIdx.x < own;
            scanned<Fold>(before ? known[r * parts + threadIdx.x] : Fold::start(), carried, pad);
        }
        for (i64 first = own * part; first < end; first += blockDim.x) {
            i64 k = first + threadIdx.x;
            V v = k < end ? Fold::load(x[r * n + k], k) : Fold::start();
            v = scanned<Fold>(v, all, pad);
            if (!FOLDING && k < end) Fold::store(out, indices, r * n + k, Fold::of(carried, v));
            carried = Fold::of(carried, all);
        }
        if (FOLDING && threadIdx.x == 0) known[b] = carried;
    }
}
// Lines that do not lie along memory, one by each thread.
template <typename Fold>
__device__ void columns(const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner) {
    for (Each line(outer * inner); line.more(); line.next()) {
        i64 o = quotient(line, inner), place = o * n * inner + line - o * inner;
        typename Fold::V v = Fold::start();
        for (i64 k = 0; k < n; k++, place += inner) {
            v = Fold::of(v, Fold::load(x[place], k));
            Fold::store(out, indices, place, v);
        }
    }
}
template <typename Fold>
__device__ void scan(const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part,
                     const void* folded, typename Fold::V* pad) {
    if (inner == 1)
        rows<Fold, false>(x, out, indices, outer, n, part, (void*)folded, pad);
    else
        columns<Fold>(x, out, indices, outer, n, inner);
}

extern "C" __global__ void __launch_bounds__(1024, 1) cumsum(
    const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part, const void* folded) {
    __shared__ C pad[32];
    scan<Sum>(x, out, indices, outer, n, inner, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cumsum_parts(
    const E* x, i64 count, i64 n, i64 part, void* folded) {
    __shared__ C pad[32];
    rows<Sum, true>(x, nullptr, nullptr, count, n, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) logcumsumexp(
    const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part, const void* folded) {
    __shared__ C pad[32];
    scan<LogSumExp>(x, out, indices, outer, n, inner, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) logcumsumexp_parts(
    const E* x, i64 count, i64 n, i64 part, void* folded) {
    __shared__ C pad[32];
    rows<LogSumExp, true>(x, nullptr, nullptr, count, n, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cummax(
    const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part, const void* folded) {
    __shared__ Placed pad[32];
    scan<Extremum<true>>(x, out, indices, outer, n, inner, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cummax_parts(
    const E* x, i64 count, i64 n, i64 part, void* folded) {
    __shared__ Placed pad[32];
    rows<Extremum<true>, true>(x, nullptr, nullptr, count, n, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cummin(
    const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part, const void* folded) {
    __shared__ Placed pad[32];
    scan<Extremum<false>>(x, out, indices, outer, n, inner, part, folded, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cummin_parts(
    const E* x, i64 count, i64 n, i64 part, void* folded) {
    __shared__ Placed pad[32];
    rows<Extremum<false>, true>(x, nullptr, nullptr, count, n, part, folded, pad);
}
// Products of a row, taken in another order than one after the other, may overflow where those do
// not: one thread goes through each line. Rows, 32 of them by a block, are brought to their threads
// and away in tiles, so that neighbouring threads read and write neighbouring elements.
__device__ void product_rows(const E* x, E* out, i64 count, i64 n, C (*tile)[33]) {
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (i64 first = (i64)blockIdx.x * 32; first < count; first += (i64)gridDim.x * 32) {
        C carried = 1;
        for (i64 at = 0; at < n; at += 32) {
            i64 k = at + lane;
            for (int r = threadIdx.x / 32; r < 32; r += warps)
                tile[r][lane] = first + r < count && k < n ? (C)widened(x[(first + r) * n + k]) : 1;
            __syncthreads();
            if (threadIdx.x < 32)
                for (int j = 0; j < 32; j++) tile[lane][j] = carried = carried * tile[lane][j];
            __syncthreads();
            for (int r = threadIdx.x / 32; r < 32; r += warps)
                if (first + r < count && k < n)
                    out[(first + r) * n + k] = Narrowed<E>::of((A)tile[r][lane]);
            __syncthreads();
        }
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) cumprod(
    const E* x, E* out, i64* indices, i64 outer, i64 n, i64 inner, i64 part, const void* folded) {
    __shared__ C tile[32][33];
    if (inner == 1)
        product_rows(x, out, outer, n, tile);
    else
        columns<Product>(x, out, indices, outer, n, inner);
}
