// Products of groups of matrices of floats, wherever their elements lie. Behind groups.cu and
// tensor_cores.cu.
//
// A block of four warps makes 64 x 64 elements. Of 16-bit elements a warp makes 16 rows on tensor
// cores, see tensor_cores.cu for how lanes hold operands; of others each thread makes 8 x 4.

constexpr int DEPTH = 32, LANES = 128;
// Between rows in shared memory: words for tensor cores, else no two rows of a warp in one bank.
constexpr int PITCH = sizeof(E) == 2 ? DEPTH + 8 : DEPTH + 1;

// The sums of a thread, and where they belong in the tile.
template <typename X, int BYTES = sizeof(X)> struct Sums {
    A sums[8][4] = {};
    __device__ void add(const X (*left)[PITCH], const X (*right)[PITCH]) {
        int x = threadIdx.x % 16, y = threadIdx.x / 16;
        for (int k = 0; k < DEPTH; k++) {
            A a[8], b[4];
#pragma unroll
            for (int i = 0; i < 8; i++) a[i] = left[y + 8 * i][k];
#pragma unroll
            for (int j = 0; j < 4; j++) b[j] = right[x + 16 * j][k];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += a[i] * b[j];
        }
    }
    template <typename Function> __device__ void each(Function function) const {
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                function(threadIdx.x / 16 + 8 * i, threadIdx.x % 16 + 16 * j, sums[i][j]);
    }
};
template <typename X> struct Sums<X, 2> {
    float sums[SIDE / 8][4] = {};
    __device__ void add(const X (*left)[PITCH], const X (*right)[PITCH]) {
        int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int step = 0; step < DEPTH; step += 16) {
            Word operand[4];
#pragma unroll
            for (int part = 0; part < 4; part++)
                operand[part] = *(const Word*)&left[16 * warp + g + part % 2 * 8]
                                                   [step + 2 * t + part / 2 * 8];
#pragma unroll
            for (int j = 0; j < SIDE / 8; j++) {
                const X* place = &right[8 * j + g][step + 2 * t];
                multiply<X>(sums[j], operand, *(const Word*)place, *(const Word*)(place + 8));
            }
        }
    }
    template <typename Function> __device__ void each(Function function) const {
        int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                function(16 * warp + g + i / 2 * 8, 8 * j + 2 * t + i % 2, sums[j][i]);
    }
};

// Elements of `rows` rows from `start` to `end`, 0 beyond them. Threads beside each other read what
// lies beside each other; of 16-bit elements eight at a time, where they begin at 16 bytes.
__device__ void load(
    E (*tile)[PITCH], const E* x, i64 row, i64 inner, i64 rows, i64 start, i64 end) {
    bool along = inner == 1 || row != 1;
    constexpr int FEW = sizeof(E) == 2 ? 8 : 1;
    for (int n = threadIdx.x * FEW; n < SIDE * DEPTH; n += LANES * FEW) {
        int r = along ? n / DEPTH : n % SIDE, k = along ? n % DEPTH : n / SIDE;
        const E* source = x + r * row + (start + k) * inner;
        bool whole = FEW == 8 && (along ? inner : row) == 1 && (unsigned long long)source % 16 == 0;
        whole = whole && (along ? r < rows && start + k + 8 <= end : r + 8 <= rows && start + k < end);
        union { Pair pair; E each[sizeof(Pair) / sizeof(E)]; } few;
        if (whole)
            few.pair = *(const Pair*)source;
        else
            for (int j = 0; j < FEW; j++) {
                int down = along ? r : r + j;
                i64 right = start + (along ? k + j : k);
                few.each[j] = down < rows && right < end ? x[down * row + right * inner] : E();
            }
#pragma unroll
        for (int j = 0; j < FEW; j++) tile[along ? r : r + j][along ? k + j : k] = few.each[j];
    }
}

// a (rows, depth) and b (columns, depth), or one of them for each group; steps are in elements.
extern "C" __global__ void __launch_bounds__(128) grouped_floats(
    const E* a, const E* b, const i64* ends, E* out, i64 divided, i64 groups, i64 rows, i64 columns,
    i64 depth, i64 tiles, i64 a_group, i64 a_row, i64 a_inner, i64 b_group, i64 b_row, i64 b_inner) {
    __shared__ __align__(16) E of_a[SIDE][PITCH];
    __shared__ __align__(16) E of_b[SIDE][PITCH];
    for (i64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile;
        if (!tile.place(ends, divided, groups, rows, columns, depth, number)) continue;
        const E* first_a = a + tile.group * a_group + tile.top * a_row;
        const E* first_b = b + tile.group * b_group + tile.left * b_row;
        i64 down = tile.bottom - tile.top, along = tile.right - tile.left;
        Sums<E> sums;
        for (i64 k = tile.from; k < tile.until; k += DEPTH) {
            __syncthreads();
            load(of_a, first_a, a_row, a_inner, down, k, tile.until);
            load(of_b, first_b, b_row, b_inner, along, k, tile.until);
            __syncthreads();
            sums.add(of_a, of_b);
        }
        E* place = out + (divided == INNER ? tile.group * rows * columns : 0);
        sums.each([&](int row, int column, A value) {
            if (row < down && column < along)
                place[(tile.top + row) * columns + tile.left + column] = Narrowed<E>::of(value);
        });
    }
}
