// What every family of kernels begins with. Kernels that are launched with as many threads as a row
// asks for say __launch_bounds__(1024, 1), so that they have registers for as many.
//
// `E` is the type of the elements in memory, `A` the type in which they are added and computed with:
// float for Half and BFloat16, `E` itself otherwise. Both are set in front of this text, for each
// element type anew.

typedef long long i64;

struct __align__(16) Pair { unsigned long long first, second; };

template <typename X> __device__ inline float infinity_of(X) { return __int_as_float(0x7f800000); }

// k / n; a division of 64 bits takes several times as long as one of 32.
__device__ inline i64 quotient(i64 k, i64 n) {
    return (k | n) >> 32 ? k / n : (i64)((unsigned int)k / (unsigned int)n);
}

template <typename V> __device__ V added(V a, V b) { return a + b; }
// A NaN is the largest of all, and the first of two.
template <typename V> __device__ V largest(V a, V b) { return b > a || b != b ? b : a; }

template <typename V, V (*fold)(V, V)> __device__ V over_warp(V x) {
    for (int distance = 16; distance; distance /= 2)
        x = fold(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

// The values of all threads of a block folded, for each thread. `pad` holds 32 elements.
template <typename V, V (*fold)(V, V)> __device__ V over_block(V x, V* pad) {
    x = over_warp<V, fold>(x);
    if (blockDim.x <= 32) return x;
    if (threadIdx.x % 32 == 0) pad[threadIdx.x / 32] = x;
    __syncthreads();
    x = pad[0];
    for (unsigned int warp = 1; warp < blockDim.x / 32; warp++) x = fold(x, pad[warp]);
    __syncthreads();
    return x;
}

// The values of the threads of one column of a block, 32 columns wide, folded. `pad` holds as many
// elements as there are threads.
template <typename V, V (*fold)(V, V)> __device__ V over_column(V x, V* pad) {
    pad[threadIdx.x] = x;
    __syncthreads();
    x = pad[threadIdx.x % 32];
    for (unsigned int k = threadIdx.x % 32 + 32; k < blockDim.x; k += 32) x = fold(x, pad[k]);
    __syncthreads();
    return x;
}

// Lines along the middle dimension of a contiguous array (outer, n, inner). With ROWS inner is 1,
// and a block shares a line; else it shares 32 lines beside each other, a column of its threads each.
template <bool ROWS> struct Lines {
    i64 outer, n, inner, tiles, tile, base, lane, lanes, end;

    __device__ Lines(i64 outer, i64 n, i64 inner) : outer(outer), n(n), inner(inner) {
        tiles = ROWS ? 1 : (inner + 31) / 32;
        lane = ROWS ? threadIdx.x : threadIdx.x / 32;
        lanes = ROWS ? blockDim.x : blockDim.x / 32;
        tile = blockIdx.x;
        place();
    }
    __device__ void place() {
        if (ROWS) {
            base = tile * n;
            end = n;
        } else {
            i64 column = tile % tiles * 32 + threadIdx.x % 32;
            base = tile / tiles * n * inner + column;
            end = column < inner ? n : 0;  // 0: there is no such line
        }
    }
    __device__ bool more() const { return tile < outer * tiles; }
    __device__ void next() {
        tile += gridDim.x;
        place();
    }
    __device__ i64 at(i64 k) const { return ROWS ? base + k : base + k * inner; }
    // Which line it is, counted over outer and inner.
    __device__ i64 number() const { return ROWS ? tile : tile / tiles * inner + base % inner; }
    template <typename V, V (*fold)(V, V)> __device__ V folded(V x, V* pad) const {
        return ROWS ? over_block<V, fold>(x, pad) : over_column<V, fold>(x, pad);
    }
};

// The elements of a line that a thread goes through. Where there are few of them they are read once,
// and kept in registers.
template <bool ROWS> struct Values {
    static constexpr int FEW = 4;
    const Lines<ROWS>& line;
    const E* x;
    bool all;
    A kept[FEW];

    __device__ Values(const Lines<ROWS>& line, const E* x) : line(line), x(x) {
        all = line.n <= FEW * line.lanes;
        if (!all) return;
#pragma unroll
        for (int j = 0; j < FEW; j++) {
            i64 k = line.lane + j * line.lanes;
            kept[j] = k < line.end ? widened(x[line.at(k)]) : 0;
        }
    }
    // Calls `function(k, value)` for each element k of the line that is this thread's.
    template <typename Function> __device__ void each(Function function) const {
        if (all) {
#pragma unroll
            for (int j = 0; j < FEW; j++) {
                i64 k = line.lane + j * line.lanes;
                if (k < line.end) function(k, kept[j]);
            }
        } else {
            for (i64 k = line.lane; k < line.end; k += line.lanes)
                function(k, (A)widened(x[line.at(k)]));
        }
    }
    template <A (*fold)(A, A), typename Function>
    __device__ A folded(A start, Function function, A* pad) const {
        each([&](i64 k, A v) { start = fold(start, function(k, v)); });
        return line.template folded<A, fold>(start, pad);
    }
};

// The check of indices: what is not in [low, n) is written to the flag (see device_checks.py), where
// the first one stays.
struct Check {
    i64 low;
    i64* flag;
    i64 kind, op;

    __device__ void report(i64 value, i64 high) const {
        if (atomicCAS((unsigned long long*)flag, 0ull, (unsigned long long)kind) != 0ull) return;
        flag[1] = op;
        flag[2] = value;
        flag[3] = low;
        flag[4] = high;
    }
    // A number out of bounds, of argument `which`.
    __device__ void report_number(double x, i64 which) const {
        report(__double_as_longlong(x), which);
    }
    // An index counted from the front; -1 for one that is out of bounds, which is reported.
    __device__ i64 place(i64 k, i64 n) const {
        if (k < low || k >= n) {
            report(k, n - 1);
            return -1;
        }
        return k < 0 ? k + n : k;
    }
};

// The elements that a thread of a grid goes through: `for (Each i(size); i.more(); i.next())`.
struct Each {
    i64 at, size;
    __device__ Each(i64 size) : at((i64)blockIdx.x * blockDim.x + threadIdx.x), size(size) {}
    __device__ bool more() const { return at < size; }
    __device__ void next() { at += (i64)gridDim.x * blockDim.x; }
    __device__ operator i64() const { return at; }
};
