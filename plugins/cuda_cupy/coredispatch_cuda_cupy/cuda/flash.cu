// Attention of 16-bit elements on tensor cores, without a matrix of all queries and keys (Dao, 2023,
// "FlashAttention-2"). A block has four warps with 16 rows each, and goes through tiles of the other
// operand in shared memory. Rows are those of all queries that share a head of keys. Depth and
// columns are at most D; what is missing is 0. Behind tensor_cores.cu, which says what lanes hold.

__device__ inline Word packed(float low, float high) {
#ifdef __CUDACC__
    Word word;
    if (IsHalf<E>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return Narrowed<E>::of(low).bits | (Word)Narrowed<E>::of(high).bits << 16;
#endif
}

// Which scores count, and their bias; see attention.cu.
struct Scores {
    i64 rows, queries, keys, causal;
    const bool* chosen;
    const E* bias;
    i64 mask_step;
    float scale;

    // The score of row r and key k of a head whose rows are those of the query's heads from `first`.
    __device__ float of(float product, i64 first, i64 r, i64 k) const {
        i64 group = quotient(r, queries), q = r - group * queries;
        if (r >= rows || k >= keys || (causal && k > q)) return -infinity_of(0.0f);
        if (!chosen && !bias) return product * scale;
        i64 place = (first + group) * mask_step + q * keys + k;
        if (chosen) return chosen[place] ? product * scale : -infinity_of(0.0f);
        float more = widened(bias[place]);
        return more == -infinity_of(0.0f) ? more : product * scale + more;
    }
    // One past the last key that rows [low, high) may use.
    __device__ i64 end(i64 low, i64 high) const {
        i64 group = quotient(low, queries);
        if (!causal || group != quotient(high - 1, queries)) return keys;
        i64 last = high - group * queries;
        return last < keys ? last : keys;
    }
};

// ---- operands -------------------------------------------------------------------------------------

__device__ inline Word word_at(const E* row, i64 k, i64 n) {
    Word low = k < n ? row[k].bits : 0, high = k + 1 < n ? row[k + 1].bits : 0;
    return low | high << 16;
}
// Rows g and g + 8 behind `first` of an array (rows, n), as operands for products over n.
template <int D>
__device__ void load_rows(Word (&a)[D / 16][4], const E* x, i64 first, i64 rows, i64 n) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int half = 0; half < 2; half++) {
        i64 r = first + g + 8 * half, length = r < rows ? n : 0;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            a[k][half] = word_at(x + r * n, 16 * k + 2 * t, length);
            a[k][half + 2] = word_at(x + r * n, 16 * k + 2 * t + 8, length);
        }
    }
}
// ROWS rows behind `first` of (rows, n) in shared memory, each D long and 8 apart from the next.
template <int D, int ROWS>
__device__ void load_tile(E (*tile)[D + 8], const E* x, i64 first, i64 rows, i64 n) {
    for (int i = threadIdx.x; i < ROWS * D / 8; i += blockDim.x) {
        int r = i / (D / 8), c = i % (D / 8) * 8;
        Pair* target = (Pair*)&tile[r][c];
        const E* source = x + (first + r) * n + c;
        if (first + r < rows && n % 8 == 0 && c < n && (unsigned long long)x % 16 == 0)
            *target = *(const Pair*)source;
        else
            for (int k = 0; k < 8; k++)
                tile[r][c + k] = first + r < rows && c + k < n ? source[k] : E{0};
    }
}
// The same the other way about: one row for each column.
template <int D, int ROWS>
__device__ void load_turned(E (*tile)[ROWS + 8], const E* x, i64 first, i64 rows, i64 n) {
    for (int i = threadIdx.x; i < ROWS / 2 * D; i += blockDim.x) {
        int r = i % (ROWS / 2) * 2, c = i / (ROWS / 2);
        const E* source = x + (first + r) * n + c;
        Word low = first + r < rows && c < n ? source[0].bits : 0;
        Word high = first + r + 1 < rows && c < n ? source[n].bits : 0;
        *(Word*)&tile[c][r] = low | high << 16;
    }
}
// Words of row g of a tile behind `row`, at columns 2t and 2t + 8 behind `column`.
template <int N> __device__ inline void words_of(
    Word& low, Word& high, const E (*tile)[N], int row, int column) {
    const E* place = &tile[row + threadIdx.x % 32 / 4][column + 2 * (threadIdx.x % 4)];
    low = *(const Word*)place;
    high = *(const Word*)(place + 8);
}
// c = the 16 rows of `a` times eight rows of a tile behind `row`.
template <int D>
__device__ inline void product(
    float (&c)[4], const Word (&a)[D / 16][4], const E (*tile)[D + 8], int row) {
    c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        Word low, high;
        words_of(low, high, tile, row, 16 * k);
        multiply<E>(c, a[k], low, high);
    }
}
// sums += the 16 x COUNT operand `a` times the transpose of a turned tile.
template <int D, int COUNT>
__device__ inline void accumulate(
    float (&sums)[D / 8][4], const Word (&a)[COUNT / 16][4], const E (*turned)[COUNT + 8]) {
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int k = 0; k < COUNT / 16; k++) {
            Word low, high;
            words_of(low, high, turned, 8 * n, 16 * k);
            multiply<E>(sums[n], a[k], low, high);
        }
}
// Two results of 16 x 8 beside each other are an operand.
__device__ inline void join(Word (&a)[4], int part, const float (&c)[4]) {
    a[2 * part] = packed(c[0], c[1]);
    a[2 * part + 1] = packed(c[2], c[3]);
}
template <int D>
__device__ void store_rows(
    E* out, const float (&sums)[D / 8][4], float first_factor, float second_factor, i64 first,
    i64 rows, i64 n) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        for (int i = 0; i < 4; i++) {
            i64 r = first + g + i / 2 * 8, c = 8 * j + 2 * t + i % 2;
            float y = sums[j][i] * (i < 2 ? first_factor : second_factor);
            if (r < rows && c < n) out[r * n + c] = Narrowed<E>::of(y);
        }
}
// A value for each of rows g and g + 8, folded over the four lanes that share them.
__device__ inline float over_lanes(float x, bool sum) {
    for (int distance = 1; distance < 4; distance *= 2) {
        float other = __shfl_xor_sync(0xffffffffu, x, distance);
        x = sum ? x + other : other > x ? other : x;
    }
    return x;
}

// ---- forward --------------------------------------------------------------------------------------

// out = softmax(scores) @ value; `logs` gets the logarithm of each row's sum of exponentials, or
// infinity, which makes all weights 0, where no key counts; `hidden` says where that is.
template <int D>
__device__ void forward(
    const E* query, const E* key, const E* value, E* out, float* logs, bool* hidden, i64 heads,
    i64 rows, i64 groups, Scores scores, i64 depth, i64 columns) {
    constexpr int KEYS = 64;
    __shared__ __align__(16) E keys_tile[KEYS][D + 8];
    __shared__ __align__(16) E turned[D][KEYS + 8];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    i64 tiles = (rows + 63) / 64, keys = scores.keys;
    for (i64 tile = blockIdx.x; tile < heads * tiles; tile += gridDim.x) {
        i64 head = quotient(tile, tiles), top = (tile - head * tiles) * 64, first = top + 16 * warp;
        Word q[D / 16][4];
        load_rows<D>(q, query + head * rows * depth, first, rows, depth);
        float sums[D / 8][4] = {}, best[2], total[2] = {0, 0};
        best[0] = best[1] = -infinity_of(0.0f);
        i64 end = scores.end(top, top + 64 < rows ? top + 64 : rows);
        for (i64 start = 0; start < end; start += KEYS) {
            __syncthreads();
            load_tile<D, KEYS>(keys_tile, key + head * keys * depth, start, keys, depth);
            load_turned<D, KEYS>(turned, value + head * keys * columns, start, keys, columns);
            __syncthreads();
            float s[KEYS / 8][4];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
                product<D>(s[j], q, keys_tile, 8 * j);
                for (int i = 0; i < 4; i++)
                    s[j][i] = scores.of(s[j][i], head * groups, first + g + i / 2 * 8,
                                        start + 8 * j + 2 * t + i % 2);
            }
            float base[2], shrink[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float highest = best[half];
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++)
                    for (int i = 2 * half; i < 2 * half + 2; i++)
                        if (s[j][i] > highest) highest = s[j][i];
                highest = over_lanes(highest, false);
                base[half] = highest == -infinity_of(0.0f) ? 0 : highest;
                shrink[half] = exp(best[half] - base[half]);
                best[half] = highest;
                total[half] *= shrink[half];
            }
            Word weights[KEYS / 16][4];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
                for (int i = 0; i < 4; i++) {
                    s[j][i] = exp(s[j][i] - base[i / 2]);
                    total[i / 2] += s[j][i];
                }
                join(weights[j / 2], j % 2, s[j]);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                for (int i = 0; i < 4; i++) sums[n][i] *= shrink[i / 2];
            accumulate<D, KEYS>(sums, weights, turned);
        }
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            total[half] = over_lanes(total[half], true);
            factor[half] = total[half] == 0 ? 0 : 1 / total[half];
            i64 r = first + g + 8 * half;
            if (t == 0 && r < rows) {
                bool none = total[half] == 0;
                logs[head * rows + r] = none ? infinity_of(0.0f) : best[half] + log(total[half]);
                if (hidden) hidden[head * rows + r] = none;
            }
        }
        store_rows<D>(out + head * rows * columns, sums, factor[0], factor[1], first, rows, columns);
    }
}

// ---- backward -------------------------------------------------------------------------------------

// Of each row the sum of grad * out.
extern "C" __global__ void along_rows(const E* grad, const E* out, float* along, i64 rows, i64 n) {
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        float sum = 0;
        for (i64 k = threadIdx.x; k < n; k += blockDim.x)
            sum += widened(grad[r * n + k]) * widened(out[r * n + k]);
        sum = over_warp<float, added<float>>(sum);
        if (threadIdx.x == 0) along[r] = sum;
    }
}

// The gradient of the query: a block for 64 rows goes through the keys.
template <int D>
__device__ void query_gradient(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* out, i64 heads, i64 rows, i64 groups, Scores scores, i64 depth,
    i64 columns) {
    constexpr int KEYS = 32;
    __shared__ __align__(16) E keys_tile[KEYS][D + 8];
    __shared__ __align__(16) E values_tile[KEYS][D + 8];
    __shared__ __align__(16) E turned[D][KEYS + 8];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    i64 tiles = (rows + 63) / 64, keys = scores.keys;
    for (i64 tile = blockIdx.x; tile < heads * tiles; tile += gridDim.x) {
        i64 head = quotient(tile, tiles), top = (tile - head * tiles) * 64, first = top + 16 * warp;
        Word q[D / 16][4], of_out[D / 16][4];
        load_rows<D>(q, query + head * rows * depth, first, rows, depth);
        load_rows<D>(of_out, grad + head * rows * columns, first, rows, columns);
        float sums[D / 8][4] = {}, log_sum[2], level[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            i64 r = first + g + 8 * half;
            log_sum[half] = r < rows ? logs[head * rows + r] : infinity_of(0.0f);
            level[half] = r < rows ? along[head * rows + r] : 0;
        }
        i64 end = scores.end(top, top + 64 < rows ? top + 64 : rows);
        for (i64 start = 0; start < end; start += KEYS) {
            __syncthreads();
            load_tile<D, KEYS>(keys_tile, key + head * keys * depth, start, keys, depth);
            load_tile<D, KEYS>(values_tile, value + head * keys * columns, start, keys, columns);
            load_turned<D, KEYS>(turned, key + head * keys * depth, start, keys, depth);
            __syncthreads();
            Word of_scores[KEYS / 16][4];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
                float s[4], of_weights[4];
                product<D>(s, q, keys_tile, 8 * j);
                product<D>(of_weights, of_out, values_tile, 8 * j);
                for (int i = 0; i < 4; i++) {
                    float score = scores.of(s[i], head * groups, first + g + i / 2 * 8,
                                            start + 8 * j + 2 * t + i % 2);
                    float weight = exp(score - log_sum[i / 2]);
                    s[i] = weight == 0 ? 0 : weight * (of_weights[i] - level[i / 2]);
                }
                join(of_scores[j / 2], j % 2, s);
            }
            accumulate<D, KEYS>(sums, of_scores, turned);
        }
        store_rows<D>(out + head * rows * depth, sums, scores.scale, scores.scale, first, rows, depth);
    }
}

// The gradients of key and value: a block for 64 keys goes through the rows.
template <int D>
__device__ void key_gradients(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* of_key, E* of_value, i64 heads, i64 rows, i64 groups, Scores scores,
    i64 depth, i64 columns) {
    constexpr int ROWS = 32;
    __shared__ __align__(16) E rows_tile[ROWS][D + 8];
    __shared__ __align__(16) E turned[D][ROWS + 8];
    __shared__ float log_sums[ROWS], levels[ROWS];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    i64 keys = scores.keys, tiles = (keys + 63) / 64;
    for (i64 tile = blockIdx.x; tile < heads * tiles; tile += gridDim.x) {
        i64 head = quotient(tile, tiles), first = (tile - head * tiles) * 64 + 16 * warp;
        const E* queries = query + head * rows * depth;
        const E* grads = grad + head * rows * columns;
        Word k[D / 16][4], v[D / 16][4];
        load_rows<D>(k, key + head * keys * depth, first, keys, depth);
        load_rows<D>(v, value + head * keys * columns, first, keys, columns);
        float key_sums[D / 8][4] = {}, value_sums[D / 8][4] = {};
        // Queries before the first key use none of these.
        i64 begin = scores.causal && groups == 1 ? (tile - head * tiles) * 64 : 0;
        for (i64 start = begin; start < rows; start += ROWS) {
            // Scores first, then what needs the gradient, in the same shared memory.
            __syncthreads();
            load_tile<D, ROWS>(rows_tile, queries, start, rows, depth);
            load_turned<D, ROWS>(turned, grads, start, rows, columns);
            if (threadIdx.x < ROWS) {
                i64 r = start + threadIdx.x;
                log_sums[threadIdx.x] = r < rows ? logs[head * rows + r] : infinity_of(0.0f);
                levels[threadIdx.x] = r < rows ? along[head * rows + r] : 0;
            }
            __syncthreads();
            float weights[ROWS / 8][4];
            Word operand[ROWS / 16][4];
#pragma unroll
            for (int j = 0; j < ROWS / 8; j++) {
                product<D>(weights[j], k, rows_tile, 8 * j);
                for (int i = 0; i < 4; i++) {
                    int row = 8 * j + 2 * t + i % 2;
                    i64 at = first + g + i / 2 * 8;
                    float score = scores.of(weights[j][i], head * groups, start + row, at);
                    weights[j][i] = exp(score - log_sums[row]);
                }
                join(operand[j / 2], j % 2, weights[j]);
            }
            accumulate<D, ROWS>(value_sums, operand, turned);
            __syncthreads();
            load_tile<D, ROWS>(rows_tile, grads, start, rows, columns);
            load_turned<D, ROWS>(turned, queries, start, rows, depth);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < ROWS / 8; j++) {
                float of_weights[4];
                product<D>(of_weights, v, rows_tile, 8 * j);
                for (int i = 0; i < 4; i++) {
                    float weight = weights[j][i], level = levels[8 * j + 2 * t + i % 2];
                    of_weights[i] = weight == 0 ? 0 : weight * (of_weights[i] - level);
                }
                join(operand[j / 2], j % 2, of_weights);
            }
            accumulate<D, ROWS>(key_sums, operand, turned);
        }
        float scale = scores.scale;
        store_rows<D>(of_key + head * keys * depth, key_sums, scale, scale, first, keys, depth);
        store_rows<D>(of_value + head * keys * columns, value_sums, 1, 1, first, keys, columns);
    }
}

// ---- kernels --------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(128) forward_64(
    const E* query, const E* key, const E* value, E* out, float* logs, bool* hidden, i64 heads,
    i64 rows, i64 groups, i64 queries, i64 keys, i64 causal, const bool* chosen, const E* bias,
    i64 mask_step, double scale, i64 depth, i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    forward<64>(
        query, key, value, out, logs, hidden, heads, rows, groups, scores, depth, columns);
}
extern "C" __global__ void __launch_bounds__(128) query_gradient_64(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* out, i64 heads, i64 rows, i64 groups, i64 queries, i64 keys, i64 causal,
    const bool* chosen, const E* bias, i64 mask_step, double scale, i64 depth, i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    query_gradient<64>(
        grad, query, key, value, logs, along, out, heads, rows, groups, scores, depth, columns);
}
extern "C" __global__ void __launch_bounds__(128) key_gradients_64(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* of_key, E* of_value, i64 heads, i64 rows, i64 groups, i64 queries,
    i64 keys, i64 causal, const bool* chosen, const E* bias, i64 mask_step, double scale, i64 depth,
    i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    key_gradients<64>(grad, query, key, value, logs, along, of_key, of_value, heads, rows, groups,
                       scores, depth, columns);
}
extern "C" __global__ void __launch_bounds__(128) forward_128(
    const E* query, const E* key, const E* value, E* out, float* logs, bool* hidden, i64 heads,
    i64 rows, i64 groups, i64 queries, i64 keys, i64 causal, const bool* chosen, const E* bias,
    i64 mask_step, double scale, i64 depth, i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    forward<128>(
        query, key, value, out, logs, hidden, heads, rows, groups, scores, depth, columns);
}
extern "C" __global__ void __launch_bounds__(128) query_gradient_128(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* out, i64 heads, i64 rows, i64 groups, i64 queries, i64 keys, i64 causal,
    const bool* chosen, const E* bias, i64 mask_step, double scale, i64 depth, i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    query_gradient<128>(
        grad, query, key, value, logs, along, out, heads, rows, groups, scores, depth, columns);
}
extern "C" __global__ void __launch_bounds__(128) key_gradients_128(
    const E* grad, const E* query, const E* key, const E* value, const float* logs,
    const float* along, E* of_key, E* of_value, i64 heads, i64 rows, i64 groups, i64 queries,
    i64 keys, i64 causal, const bool* chosen, const E* bias, i64 mask_step, double scale, i64 depth,
    i64 columns) {
    Scores scores{rows, queries, keys, causal, chosen, bias, mask_step, (float)scale};
    key_gradients<128>(grad, query, key, value, logs, along, of_key, of_value, heads, rows, groups,
                       scores, depth, columns);
}
