// Cumulative sums and products, of floating-point numbers in double precision.

template <typename X> struct Wide { typedef X type; };
template <> struct Wide<float> { typedef double type; };
typedef Wide<A>::type C;

struct Sum {
    static __device__ C of(C a, C b) { return a + b; }
    static __device__ C start() { return 0; }
};
struct Product {
    static __device__ C of(C a, C b) { return a * b; }
    static __device__ C start() { return 1; }
};

// A row by a block, as many elements at a time as it has threads; `pad` holds 32 elements.
template <typename Fold> __device__ void rows(const E* x, E* out, i64 count, i64 n, C* pad) {
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 r = blockIdx.x; r < count; r += gridDim.x) {
        C carried = Fold::start();
        for (i64 first = 0; first < n; first += blockDim.x) {
            i64 k = first + threadIdx.x;
            C v = k < n ? (C)widened(x[r * n + k]) : Fold::start();
            for (unsigned int distance = 1; distance < 32; distance *= 2) {
                C before = __shfl_up_sync(0xffffffffu, v, distance);
                if (lane >= distance) v = Fold::of(before, v);
            }
            if (lane == 31) pad[warp] = v;
            __syncthreads();
            C before = carried;
            for (unsigned int w = 0; w < warp; w++) before = Fold::of(before, pad[w]);
            v = Fold::of(before, v);
            if (k < n) out[r * n + k] = Narrowed<E>::of((A)v);
            for (unsigned int w = 0; w < blockDim.x / 32; w++) carried = Fold::of(carried, pad[w]);
            __syncthreads();
        }
    }
}
// Lines that do not lie along memory, one by each thread.
template <typename Fold> __device__ void columns(const E* x, E* out, i64 outer, i64 n, i64 inner) {
    for (Each line(outer * inner); line.more(); line.next()) {
        i64 o = quotient(line, inner), place = o * n * inner + line - o * inner;
        C v = Fold::start();
        for (i64 k = 0; k < n; k++, place += inner) {
            v = Fold::of(v, widened(x[place]));
            out[place] = Narrowed<E>::of((A)v);
        }
    }
}
template <typename Fold>
__device__ void scan(const E* x, E* out, i64 outer, i64 n, i64 inner, C* pad) {
    if (inner == 1)
        rows<Fold>(x, out, outer, n, pad);
    else
        columns<Fold>(x, out, outer, n, inner);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cumsum(
    const E* x, E* out, i64 outer, i64 n, i64 inner) {
    __shared__ C pad[32];
    scan<Sum>(x, out, outer, n, inner, pad);
}
// Products of a row, taken in another order than one after the other, may overflow where those do
// not: there are only those of lines that one thread goes through.
extern "C" __global__ void __launch_bounds__(1024, 1) cumprod(
    const E* x, E* out, i64 outer, i64 n, i64 inner) {
    columns<Product>(x, out, outer, n, inner);
}
