// Pooling of planes of h x w, of windows kh x kw; one dimension is a height of 1. Gradients gather
// what an element gets from the windows that it lies in, so that they add in a fixed order.

struct Windows {
    i64 h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
    // The window's first place, which may lie in the padding.
    __device__ i64 top(i64 o) const { return o * sh - ph; }
    __device__ i64 left(i64 o) const { return o * sw - pw; }
};

// The window along one dimension that reaches place `i` with its element `k`; -1 where there is none.
__device__ inline i64 window_of(i64 i, i64 k, i64 count, i64 stride, i64 padding, i64 dilation) {
    i64 start = i + padding - k * dilation;
    if (start < 0) return -1;
    i64 o = quotient(start, stride);
    return o * stride == start && o < count ? o : -1;
}

// The maximum of each window, the first NaN if there is one, and the place of the first of them.
extern "C" __global__ void max_pool(
    const E* x, E* out, i64* index, i64 planes, i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw,
    i64 sh, i64 sw, i64 ph, i64 pw, i64 dh, i64 dw) {
    Windows at{h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw};
    for (Each i(planes * oh * ow); i.more(); i.next()) {
        i64 row = quotient(i, ow), plane = quotient(row, oh);
        i64 top = at.top(row - plane * oh), left = at.left(i - row * ow), best = -1;
        A value = 0;
        for (i64 a = 0; a < kh; a++) {
            i64 y = top + a * dh;
            if (y < 0 || y >= h) continue;
            for (i64 b = 0; b < kw; b++) {
                i64 z = left + b * dw;
                if (z < 0 || z >= w) continue;
                A v = widened(x[(plane * h + y) * w + z]);
                if (best < 0 || (value == value && (v > value || v != v))) {
                    value = v;
                    best = y * w + z;
                }
            }
        }
        if (out) out[i] = x[plane * h * w + best];
        if (index) index[i] = best;
    }
}
extern "C" __global__ void max_pool_backward(
    const E* grad, const i64* index, E* out, i64 planes, i64 h, i64 w, i64 oh, i64 ow, i64 kh,
    i64 kw, i64 sh, i64 sw, i64 ph, i64 pw, i64 dh, i64 dw) {
    for (Each i(planes * h * w); i.more(); i.next()) {
        i64 row = quotient(i, w), plane = quotient(row, h), y = row - plane * h, z = i - row * w;
        A sum = 0;
        for (i64 a = 0; a < kh; a++) {
            i64 o = window_of(y, a, oh, sh, ph, dh);
            if (o < 0) continue;
            for (i64 b = 0; b < kw; b++) {
                i64 p = window_of(z, b, ow, sw, pw, dw);
                i64 place = (plane * oh + o) * ow + p;
                if (p >= 0 && index[place] == y * w + z) sum += widened(grad[place]);
            }
        }
        out[i] = Narrowed<E>::of(sum);
    }
}

// How many elements a window of `k` places from `start` counts in one dimension: those inside, or
// also those in the padding, but none beyond it.
__device__ inline i64 counted(i64 start, i64 k, i64 n, i64 padding, i64 with_padding) {
    i64 low = with_padding ? start : start < 0 ? 0 : start;
    i64 end = start + k, high = with_padding ? n + padding : n;
    return (end < high ? end : high) - low;
}
extern "C" __global__ void avg_pool(
    const E* x, E* out, i64 planes, i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 sh, i64 sw,
    i64 ph, i64 pw, i64 with_padding, i64 divisor) {
    for (Each i(planes * oh * ow); i.more(); i.next()) {
        i64 row = quotient(i, ow), plane = quotient(row, oh);
        i64 top = (row - plane * oh) * sh - ph, left = (i - row * ow) * sw - pw;
        A sum = 0;
        for (i64 y = top < 0 ? 0 : top; y < top + kh && y < h; y++)
            for (i64 z = left < 0 ? 0 : left; z < left + kw && z < w; z++)
                sum += widened(x[(plane * h + y) * w + z]);
        i64 count = divisor ? divisor : counted(top, kh, h, ph, with_padding) *
                                            counted(left, kw, w, pw, with_padding);
        out[i] = Narrowed<E>::of(sum / count);
    }
}
extern "C" __global__ void avg_pool_backward(
    const E* grad, E* out, i64 planes, i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 sh, i64 sw,
    i64 ph, i64 pw, i64 with_padding, i64 divisor) {
    for (Each i(planes * h * w); i.more(); i.next()) {
        i64 row = quotient(i, w), plane = quotient(row, h), y = row - plane * h, z = i - row * w;
        A sum = 0;
        for (i64 a = 0; a < kh; a++) {
            i64 o = window_of(y, a, oh, sh, ph, 1);
            if (o < 0) continue;
            i64 rows = counted(o * sh - ph, kh, h, ph, with_padding);
            for (i64 b = 0; b < kw; b++) {
                i64 p = window_of(z, b, ow, sw, pw, 1);
                if (p < 0) continue;
                i64 count = divisor ? divisor : rows * counted(p * sw - pw, kw, w, pw, with_padding);
                sum += widened(grad[(plane * oh + o) * ow + p]) / count;
            }
        }
        out[i] = Narrowed<E>::of(sum);
    }
}

// Window o of m over n places goes from floor(o * n / m) to ceil((o + 1) * n / m).
__device__ inline i64 begin(i64 o, i64 n, i64 m) { return quotient(o * n, m); }
__device__ inline i64 behind(i64 o, i64 n, i64 m) { return quotient((o + 1) * n + m - 1, m); }

// A warp for each window: it may be the whole plane.
extern "C" __global__ void adaptive_avg_pool(
    const E* x, E* out, i64 planes, i64 h, i64 w, i64 oh, i64 ow) {
    for (i64 i = blockIdx.x; i < planes * oh * ow; i += gridDim.x) {
        i64 row = quotient(i, ow), plane = quotient(row, oh), o = row - plane * oh, p = i - row * ow;
        i64 top = begin(o, h, oh), left = begin(p, w, ow);
        i64 width = behind(p, w, ow) - left, count = (behind(o, h, oh) - top) * width;
        A sum = 0;
        for (i64 k = threadIdx.x; k < count; k += blockDim.x) {
            i64 y = quotient(k, width);
            sum += widened(x[(plane * h + top + y) * w + left + k - y * width]);
        }
        sum = over_warp<A, added<A>>(sum);
        if (threadIdx.x == 0) out[i] = Narrowed<E>::of(sum / count);
    }
}
extern "C" __global__ void adaptive_avg_pool_backward(
    const E* grad, E* out, i64 planes, i64 h, i64 w, i64 oh, i64 ow) {
    for (Each i(planes * h * w); i.more(); i.next()) {
        i64 row = quotient(i, w), plane = quotient(row, h), y = row - plane * h, z = i - row * w;
        A sum = 0;
        for (i64 o = begin(y, oh, h); o < behind(y, oh, h); o++) {
            i64 rows = behind(o, h, oh) - begin(o, h, oh);
            for (i64 p = begin(z, ow, w); p < behind(z, ow, w); p++) {
                i64 count = rows * (behind(p, w, ow) - begin(p, w, ow));
                sum += widened(grad[(plane * oh + o) * ow + p]) / count;
            }
        }
        out[i] = Narrowed<E>::of(sum);
    }
}
