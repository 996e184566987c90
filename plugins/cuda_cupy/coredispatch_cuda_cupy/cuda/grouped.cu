// Products of groups of matrices of 8-bit floats on tensor cores. Every such float is one of bfloat16,
// whose products are exact: tiles are translated by a table when they come into shared memory.
//
// A block of four warps makes 64 x 64 elements, a warp 16 rows of them; see flash.cu for how lanes
// hold operands. E is the type of the result. Behind eight_bits.cu and groups.cu.

typedef unsigned int Word;
typedef unsigned char Byte;

constexpr int DEPTH = 32, PITCH = DEPTH + 8, LANES = 128;

__device__ inline void multiply(float (&c)[4], const Word (&a)[4], Word b0, Word b1) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    multiply_on_host(c, a, b0, b1, [](unsigned short bits) { return widened(BFloat16{bits}); });
#endif
}

// SIDE rows of (rows, depth) behind `first`, from column `start` to `end`, as bfloat16.
__device__ void load_side(
    unsigned short (*tile)[PITCH], const Byte* x, i64 first, i64 rows, i64 depth, i64 start,
    i64 end, const unsigned short* table) {
    int r = threadIdx.x / 2, c = threadIdx.x % 2 * 16;
    const Byte* source = x + (first + r) * depth + start + c;
    Word* target = (Word*)&tile[r][c];
    union { Pair whole; Byte each[16]; } bytes;
    if (first + r < rows && start + c + 16 <= end && (unsigned long long)source % 16 == 0)
        bytes.whole = *(const Pair*)source;
    else
        for (int k = 0; k < 16; k++)
            bytes.each[k] = first + r < rows && start + c + k < end ? source[k] : 0;
#pragma unroll
    for (int k = 0; k < 8; k++)
        target[k] = table[bytes.each[2 * k]] | (Word)table[bytes.each[2 * k + 1]] << 16;
}

// a (rows, depth) or (groups, rows, depth), b (columns, depth) or (groups, columns, depth).
extern "C" __global__ void __launch_bounds__(128) grouped_product(
    const Byte* a, const Byte* b, const float* scale_a, const float* scale_b, const i64* ends,
    E* out, i64 divided, i64 groups, i64 rows, i64 columns, i64 depth, i64 tiles, i64 kind_a,
    i64 kind_b) {
    __shared__ __align__(16) unsigned short of_a[SIDE][PITCH], of_b[SIDE][PITCH];
    __shared__ unsigned short table_a[256], table_b[256];
    for (int code = threadIdx.x; code < 256; code += LANES) {
        table_a[code] = Narrowed<BFloat16>::of(decoded(code, kind_a)).bits;
        table_b[code] = Narrowed<BFloat16>::of(decoded(code, kind_b)).bits;
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g4 = lane / 4, t4 = lane % 4;
    for (i64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile;
        if (!tile.place(ends, divided, groups, rows, columns, depth, number)) continue;
        i64 g = tile.group, top = tile.top, left = tile.left;
        i64 bottom = tile.bottom, right = tile.right, until = tile.until;
        i64 shared = divided == ROWS || divided == INNER ? 0 : g * rows;
        i64 beside = divided == COLUMNS || divided == INNER ? 0 : g * columns;
        float sums[SIDE / 8][4] = {};
        for (i64 k = tile.from; k < until; k += DEPTH) {
            __syncthreads();
            load_side(of_a, a + shared * depth, top, bottom, depth, k, until, table_a);
            load_side(of_b, b + beside * depth, left, right, depth, k, until, table_b);
            __syncthreads();
#pragma unroll
            for (int step = 0; step < DEPTH; step += 16) {
                Word operand[4];
#pragma unroll
                for (int part = 0; part < 4; part++)
                    operand[part] = *(const Word*)&of_a[16 * warp + g4 + part % 2 * 8]
                                                       [step + 2 * t4 + part / 2 * 8];
#pragma unroll
                for (int j = 0; j < SIDE / 8; j++) {
                    const unsigned short* place = &of_b[8 * j + g4][step + 2 * t4];
                    multiply(sums[j], operand, *(const Word*)place, *(const Word*)(place + 8));
                }
            }
        }
        bool scaled = g < groups;
        i64 first_scale = divided == ROWS ? 0 : g * rows;
        i64 second_scale = divided == COLUMNS ? 0 : g * columns;
        i64 first_row = divided == ROWS || divided == COLUMNS ? 0 : g * rows;
        for (int j = 0; j < SIDE / 8; j++)
            for (int i = 0; i < 4; i++) {
                i64 row = top + 16 * warp + g4 + i / 2 * 8, column = left + 8 * j + 2 * t4 + i % 2;
                if (row >= bottom || column >= right) continue;
                float y = 0;
                if (scaled) y = sums[j][i] * scale_a[first_scale + row] * scale_b[second_scale + column];
                out[(first_row + row) * columns + column] = Narrowed<E>::of(y);
            }
    }
}
