// Batch normalization of contiguous (batch, channels, spatial), and its gradients. What there is one
// number per channel of is of type A. `*_rows` share a channel, or a channel of one image, among a
// block; `*_columns` and `*_each` are for spatial == 1 and for short rows.

// Element k of channel c, of batch * spatial.
__device__ inline i64 place_of(i64 k, i64 c, i64 channels, i64 spatial) {
    i64 b = quotient(k, spatial);
    return (b * channels + c) * spatial + k - b * spatial;
}

extern "C" __global__ void __launch_bounds__(1024, 1) statistics_rows(
    const E* x, A* means, A* vars, i64 batch, i64 channels, i64 spatial) {
    __shared__ A pad[32];
    i64 count = batch * spatial;
    for (i64 c = blockIdx.x; c < channels; c += gridDim.x) {
        A mean = 0, square = 0;
        for (i64 k = threadIdx.x; k < count; k += blockDim.x)
            mean += widened(x[place_of(k, c, channels, spatial)]);
        mean = over_block<A, added<A>>(mean, pad) / count;
        for (i64 k = threadIdx.x; k < count; k += blockDim.x) {
            A centered = widened(x[place_of(k, c, channels, spatial)]) - mean;
            square += centered * centered;
        }
        square = over_block<A, added<A>>(square, pad);
        if (threadIdx.x == 0) {
            means[c] = mean;
            vars[c] = square / count;
        }
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) statistics_columns(
    const E* x, A* means, A* vars, i64 batch, i64 channels) {
    __shared__ A pad[256];
    for (Lines<false> line(1, batch, channels); line.more(); line.next()) {
        A mean = 0, square = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) mean += widened(x[line.at(k)]);
        mean = over_column<A, added<A>>(mean, pad) / batch;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A centered = widened(x[line.at(k)]) - mean;
            square += centered * centered;
        }
        square = over_column<A, added<A>>(square, pad);
        if (line.lane == 0 && line.end) {
            means[line.number()] = mean;
            vars[line.number()] = square / batch;
        }
    }
}

// What a channel's elements are multiplied by and shifted by.
struct Scaled {
    A mean, scale, shift;
    __device__ Scaled(const A* means, const A* vars, const A* weight, const A* bias, i64 c, A eps) {
        mean = means[c];
        scale = 1 / sqrt(vars[c] + eps);
        if (weight) scale *= weight[c];
        shift = bias ? bias[c] : 0;
    }
    __device__ E of(E x) const { return Narrowed<E>::of((widened(x) - mean) * scale + shift); }
};
extern "C" __global__ void __launch_bounds__(1024, 1) apply_rows(
    const E* x, const A* means, const A* vars, const A* weight, const A* bias, E* out, i64 batch,
    i64 channels, i64 spatial, double eps) {
    for (i64 r = blockIdx.x; r < batch * channels; r += gridDim.x) {
        Scaled scaled(means, vars, weight, bias, r % channels, eps);
        for (i64 k = threadIdx.x; k < spatial; k += blockDim.x)
            out[r * spatial + k] = scaled.of(x[r * spatial + k]);
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) apply_each(
    const E* x, const A* means, const A* vars, const A* weight, const A* bias, E* out, i64 batch,
    i64 channels, i64 spatial, double eps) {
    for (Each i(batch * channels * spatial); i.more(); i.next()) {
        Scaled scaled(means, vars, weight, bias, quotient(i, spatial) % channels, eps);
        out[i] = scaled.of(x[i]);
    }
}

// Per channel the sums that are the gradients of weight and bias.
extern "C" __global__ void __launch_bounds__(1024, 1) sums_rows(
    const E* grad, const E* x, const A* means, const A* vars, A* of_weight, A* of_bias, i64 batch,
    i64 channels, i64 spatial, double eps) {
    __shared__ A pad[32];
    for (i64 c = blockIdx.x; c < channels; c += gridDim.x) {
        A along = 0, level = 0;
        for (i64 k = threadIdx.x; k < batch * spatial; k += blockDim.x) {
            i64 place = place_of(k, c, channels, spatial);
            A g = widened(grad[place]);
            along += g * (widened(x[place]) - means[c]);
            level += g;
        }
        along = over_block<A, added<A>>(along, pad);
        level = over_block<A, added<A>>(level, pad);
        if (threadIdx.x == 0) {
            of_weight[c] = along / sqrt(vars[c] + (A)eps);
            of_bias[c] = level;
        }
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) sums_columns(
    const E* grad, const E* x, const A* means, const A* vars, A* of_weight, A* of_bias, i64 batch,
    i64 channels, double eps) {
    __shared__ A pad[256];
    for (Lines<false> line(1, batch, channels); line.more(); line.next()) {
        i64 c = line.number();
        A along = 0, level = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A g = widened(grad[line.at(k)]);
            along += g * (widened(x[line.at(k)]) - means[c]);
            level += g;
        }
        along = over_column<A, added<A>>(along, pad);
        level = over_column<A, added<A>>(level, pad);
        if (line.lane == 0 && line.end) {
            of_weight[c] = along / sqrt(vars[c] + (A)eps);
            of_bias[c] = level;
        }
    }
}

// The gradient of x is grad * scale + (x - mean) * slope + level (Ioffe and Szegedy, 2015), with
// the gradients of the two statistics, which are results as well.
struct Slopes {
    A mean, scale, slope, level;
    __device__ Slopes(
        const A* means, const A* vars, const A* weight, const A* of_weight, const A* of_bias,
        const A* of_mean, const A* of_var, i64 c, i64 count, A eps) {
        mean = means[c];
        A rstd = 1 / sqrt(vars[c] + eps);
        scale = weight ? rstd * weight[c] : rstd;
        slope = (2 * of_var[c] - scale * rstd * of_weight[c]) / count;
        level = (of_mean[c] - scale * of_bias[c]) / count;
    }
    __device__ E of(E g, E x) const {
        return Narrowed<E>::of(widened(g) * scale + (widened(x) - mean) * slope + level);
    }
};
extern "C" __global__ void __launch_bounds__(1024, 1) backward_rows(
    const E* grad, const E* x, const A* means, const A* vars, const A* weight, const A* of_weight,
    const A* of_bias, const A* of_mean, const A* of_var, E* out, i64 batch, i64 channels,
    i64 spatial, double eps) {
    for (i64 r = blockIdx.x; r < batch * channels; r += gridDim.x) {
        Slopes slopes(means, vars, weight, of_weight, of_bias, of_mean, of_var, r % channels,
                      batch * spatial, eps);
        for (i64 i = r * spatial + threadIdx.x; i < (r + 1) * spatial; i += blockDim.x)
            out[i] = slopes.of(grad[i], x[i]);
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) backward_each(
    const E* grad, const E* x, const A* means, const A* vars, const A* weight, const A* of_weight,
    const A* of_bias, const A* of_mean, const A* of_var, E* out, i64 batch, i64 channels,
    i64 spatial, double eps) {
    for (Each i(batch * channels * spatial); i.more(); i.next()) {
        Slopes slopes(means, vars, weight, of_weight, of_bias, of_mean, of_var,
                      quotient(i, spatial) % channels, batch * spatial, eps);
        out[i] = slopes.of(grad[i], x[i]);
    }
}
