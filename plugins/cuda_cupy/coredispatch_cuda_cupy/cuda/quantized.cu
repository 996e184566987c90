// Products of 8-bit integers and what brings their sums back to 8 bits.
//
// Factors are signed bytes: unsigned ones have `flip` 0x80, which subtracts 128. With the zero points
// shifted as they are, over K products
//
//     sum (x - zx)(w - zw) = sum x w - zw sum x - zx sum w + K zx zw
//
// Rows of factors are padded with zeros to a multiple of 16 bytes.

typedef unsigned int u32;
typedef signed char Byte;

constexpr int TILE = 64, DEPTH = 8, OWN = 4;  // rows and columns of a block; words of 4 bytes; a thread's

__device__ inline int sum_of_warp(int x) {
    for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// Rows (count, k) as (count, padded) and their sums, each by a warp. Of `per` rows each, `apart` lie
// in the result.
extern "C" __global__ void factor_rows(
    const E* x, Byte* out, int* sums, i64 count, i64 k, i64 padded, i64 per, i64 apart, i64 flip) {
    i64 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (i64 r = blockIdx.x * warps + threadIdx.x / 32; r < count; r += gridDim.x * warps) {
        i64 place = quotient(r, per) * apart + r % per;
        int sum = 0;
        for (i64 j = lane; j < padded; j += 32) {
            Byte v = j < k ? (Byte)(x[r * k + j] ^ flip) : 0;
            out[place * padded + j] = v;
            sum += v;
        }
        sum = sum_of_warp(sum);
        if (lane == 0) sums[place] = sum;
    }
}
// The windows of images (batch, groups * channels, height, width) as rows (groups, batch * out_height
// * out_width, padded), and their sums. What is beyond an image is its zero point.
extern "C" __global__ void factor_windows(
    const E* x, Byte* out, int* sums, i64 batch, i64 groups, i64 channels, i64 height, i64 width,
    i64 kernel_height, i64 kernel_width, i64 out_height, i64 out_width, i64 stride_down,
    i64 stride_along, i64 padding_down, i64 padding_along, i64 dilation_down, i64 dilation_along,
    i64 padded, i64 flip, i64 zero) {
    i64 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    i64 spatial = out_height * out_width, count = groups * batch * spatial;
    i64 area = kernel_height * kernel_width, k = channels * area;
    for (i64 r = blockIdx.x * warps + threadIdx.x / 32; r < count; r += gridDim.x * warps) {
        i64 g = quotient(r, batch * spatial), image = quotient(r - g * batch * spatial, spatial);
        i64 at = r - (g * batch + image) * spatial, down = quotient(at, out_width);
        i64 along = at - down * out_width;
        const E* first = x + (image * groups + g) * channels * height * width;
        int sum = 0;
        for (i64 j = lane; j < padded; j += 32) {
            i64 c = quotient(j, area), tap = j - c * area, i = quotient(tap, kernel_width);
            i64 y = down * stride_down - padding_down + i * dilation_down;
            i64 z = along * stride_along - padding_along + (tap - i * kernel_width) * dilation_along;
            bool inside = y >= 0 && y < height && z >= 0 && z < width;
            E v = (E)zero;
            if (inside && j < k) v = first[(c * height + y) * width + z];
            Byte own = j < k ? (Byte)(v ^ flip) : 0;
            out[r * padded + j] = own;
            sum += own;
        }
        sum = sum_of_warp(sum);
        if (lane == 0) sums[r] = sum;
    }
}

// out (batch, m, n) = a (batch, m, k) times the transpose of b (batch, n, k), k in words of four bytes.
extern "C" __global__ void __launch_bounds__(256) byte_product(
    const int* a, const int* b, int* out, i64 batch, i64 m, i64 n, i64 k) {
    __shared__ int left[TILE][DEPTH + 1], right[TILE][DEPTH + 1];
    i64 down = (m + TILE - 1) / TILE, along = (n + TILE - 1) / TILE;
    int row = threadIdx.x / 16, column = threadIdx.x % 16;
    for (i64 t = blockIdx.x; t < batch * down * along; t += gridDim.x) {
        i64 g = quotient(t, down * along), rest = t - g * down * along;
        i64 first = quotient(rest, along) * TILE, beside = rest % along * TILE;
        int sums[OWN][OWN] = {};
        for (i64 depth = 0; depth < k; depth += DEPTH) {
            for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
                i64 r = i / DEPTH, d = depth + i % DEPTH;
                bool there = d < k;
                left[r][i % DEPTH] = there && first + r < m ? a[(g * m + first + r) * k + d] : 0;
                right[r][i % DEPTH] = there && beside + r < n ? b[(g * n + beside + r) * k + d] : 0;
            }
            __syncthreads();
            for (int d = 0; d < DEPTH; d++)
                for (int i = 0; i < OWN; i++)
                    for (int j = 0; j < OWN; j++)
                        sums[i][j] = __dp4a(left[row + 16 * i][d], right[column + 16 * j][d],
                                            sums[i][j]);
            __syncthreads();
        }
        for (int i = 0; i < OWN; i++)
            for (int j = 0; j < OWN; j++) {
                i64 r = first + row + 16 * i, c = beside + column + 16 * j;
                if (r < m && c < n) out[(g * m + r) * n + c] = sums[i][j];
            }
    }
}
// The same with an element for each thread, where there are few columns.
extern "C" __global__ void byte_product_each(
    const int* a, const int* b, int* out, i64 batch, i64 m, i64 n, i64 k) {
    for (Each i(batch * m * n); i.more(); i.next()) {
        i64 row = quotient(i, n), g = quotient(row, m), column = i - row * n;
        int sum = 0;
        for (i64 d = 0; d < k; d++) sum = __dp4a(a[row * k + d], b[(g * n + column) * k + d], sum);
        out[i] = sum;
    }
}

// Sums (groups, rows, apart) of `per` columns each as bytes, rows being images of `spatial` places:
// out (images, groups * per, spatial). The factor of a channel is multiplier * 2^-31 * 2^-shift.
extern "C" __global__ void brought_back(
    const int* sums, const int* row_sums, const int* column_sums, const i64* zeros, const i64* bias,
    const i64* multiplier, const i64* shift, E* out, i64 groups, i64 rows, i64 per, i64 apart,
    i64 spatial, i64 k, i64 x_zero, i64 weight_shifted, i64 zero_point, i64 low, i64 high) {
    for (Each i(groups * rows * per); i.more(); i.next()) {
        i64 line = quotient(i, per), column = i - line * per, g = quotient(line, rows);
        i64 row = line - g * rows, channel = g * per + column;
        i64 zero = zeros[channel] - weight_shifted;
        i64 total = sums[line * apart + column] - zero * row_sums[line];
        total += k * x_zero * zero - x_zero * column_sums[g * apart + column] + bias[channel];
        i64 s = shift[channel], first = s < 0 ? 31 + s : 31, second = s > 0 ? s : 0;
        total = (total * multiplier[channel] + (1ll << first >> 1)) >> first;
        total = (total + (1ll << second >> 1) - (total < 0 && second > 0)) >> second;
        if (total < low - zero_point) total = low - zero_point;
        if (total > high - zero_point) total = high - zero_point;
        i64 image = quotient(row, spatial), at = row - image * spatial;
        out[(image * groups * per + channel) * spatial + at] = (E)(total + zero_point);
    }
}
