// layer_norm, rms_norm, group_norm and their gradients. A row of n elements is normalized by itself;
// element k of row r has the weight (r % groups) * channels + k / spatial, which is k where groups
// and spatial are 1. A pointer may be 0 for a weight or bias that is not there.

struct Weights {
    i64 groups, channels, spatial;
    __device__ i64 at(i64 row, i64 k) const {
        return spatial == 1 && groups == 1 ? k : row % groups * channels + quotient(k, spatial);
    }
};

template <bool CENTERED>
__device__ void statistics(const E* row, i64 n, double eps, A* pad, A& mean, A& rstd) {
    mean = 0;
    if (CENTERED) {
        for (i64 k = threadIdx.x; k < n; k += blockDim.x) mean += widened(row[k]);
        mean = over_block<A, added<A>>(mean, pad) / n;
    }
    A square = 0;
    for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
        A centered = widened(row[k]) - mean;
        square += centered * centered;
    }
    rstd = 1 / sqrt(over_block<A, added<A>>(square, pad) / n + (A)eps);
}

template <bool CENTERED>
__device__ void forward(
    const E* x, const E* weight, const E* bias, E* out, i64 rows, i64 n, Weights at, double eps,
    A* pad) {
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        A mean, rstd;
        statistics<CENTERED>(x + r * n, n, eps, pad, mean, rstd);
        for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
            A y = (widened(x[r * n + k]) - mean) * rstd;
            if (weight) y *= widened(weight[at.at(r, k)]);
            if (bias) y += widened(bias[at.at(r, k)]);
            out[r * n + k] = Narrowed<E>::of(y);
        }
    }
}

// The gradient of x; what the gradients of weight and bias need of a row is kept in `mean` and
// `rstd`.
template <bool CENTERED>
__device__ void backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    Weights at, double eps, A* pad) {
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        A mean, rstd, level = 0, along = 0;
        statistics<CENTERED>(x + r * n, n, eps, pad, mean, rstd);
        for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
            A g = widened(grad[r * n + k]);
            if (weight) g *= widened(weight[at.at(r, k)]);
            level += g;
            along += g * (widened(x[r * n + k]) - mean) * rstd;
        }
        level = CENTERED ? over_block<A, added<A>>(level, pad) / n : 0;
        along = over_block<A, added<A>>(along, pad) / n;
        for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
            A g = widened(grad[r * n + k]);
            if (weight) g *= widened(weight[at.at(r, k)]);
            A normal = (widened(x[r * n + k]) - mean) * rstd;
            out[r * n + k] = Narrowed<E>::of((g - level - normal * along) * rstd);
        }
        if (threadIdx.x == 0) {
            means[r] = mean;
            rstds[r] = rstd;
        }
    }
}

extern "C" __global__ void layer_norm(
    const E* x, const E* weight, const E* bias, E* out, i64 rows, i64 n, i64 groups, i64 channels,
    i64 spatial, double eps) {
    __shared__ A pad[32];
    forward<true>(x, weight, bias, out, rows, n, {groups, channels, spatial}, eps, pad);
}
extern "C" __global__ void rms_norm(const E* x, const E* weight, E* out, i64 rows, i64 n, double eps) {
    __shared__ A pad[32];
    forward<false>(x, weight, nullptr, out, rows, n, {1, n, 1}, eps, pad);
}
extern "C" __global__ void layer_norm_backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    i64 groups, i64 channels, i64 spatial, double eps) {
    __shared__ A pad[32];
    backward<true>(
        grad, x, weight, out, means, rstds, rows, n, {groups, channels, spatial}, eps, pad);
}
extern "C" __global__ void rms_norm_backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    double eps) {
    __shared__ A pad[32];
    backward<false>(grad, x, weight, out, means, rstds, rows, n, {1, n, 1}, eps, pad);
}

// Gradients of weight and bias where each column has one: parts (2, strips, n), each a sum over
// `height` rows. Blocks of 256 threads: 32 columns, 8 rows at a time.
extern "C" __global__ void column_parts(
    const E* grad, const E* x, const A* means, const A* rstds, A* parts, i64 rows, i64 n,
    i64 height) {
    __shared__ A pad[256];
    i64 tiles = (n + 31) / 32, strips = (rows + height - 1) / height;
    for (i64 t = blockIdx.x; t < tiles * strips; t += gridDim.x) {
        i64 strip = t / tiles, column = t % tiles * 32 + threadIdx.x % 32;
        i64 end = column < n ? (strip + 1) * height : 0;
        A of_weight = 0, of_bias = 0;
        for (i64 r = strip * height + threadIdx.x / 32; r < end && r < rows; r += 8) {
            A g = widened(grad[r * n + column]);
            of_weight += g * (widened(x[r * n + column]) - means[r]) * rstds[r];
            of_bias += g;
        }
        of_weight = over_column<A, added<A>>(of_weight, pad);
        of_bias = over_column<A, added<A>>(of_bias, pad);
        if (threadIdx.x < 32 && column < n) {
            parts[strip * n + column] = of_weight;
            parts[(strips + strip) * n + column] = of_bias;
        }
    }
}
extern "C" __global__ void fold_parts(
    const A* parts, E* of_weight, E* of_bias, i64 strips, i64 n) {
    for (Each k(n); k.more(); k.next()) {
        A weight = 0, bias = 0;
        for (i64 strip = 0; strip < strips; strip++) {
            weight += parts[strip * n + k];
            bias += parts[(strips + strip) * n + k];
        }
        of_weight[k] = Narrowed<E>::of(weight);
        if (of_bias) of_bias[k] = Narrowed<E>::of(bias);
    }
}

// Gradients of weight and bias where each channel of (batch, channels, spatial) has one.
extern "C" __global__ void group_norm_parameters(
    const E* grad, const E* x, const A* means, const A* rstds, E* of_weight, E* of_bias, i64 batch,
    i64 channels, i64 spatial, i64 groups) {
    __shared__ A pad[32];
    for (i64 c = blockIdx.x; c < channels; c += gridDim.x) {
        i64 group = c / (channels / groups);
        A weight = 0, bias = 0;
        for (i64 k = threadIdx.x; k < batch * spatial; k += blockDim.x) {
            i64 b = quotient(k, spatial), place = (b * channels + c) * spatial + k - b * spatial;
            A g = widened(grad[place]);
            i64 row = b * groups + group;
            weight += g * (widened(x[place]) - means[row]) * rstds[row];
            bias += g;
        }
        weight = over_block<A, added<A>>(weight, pad);
        bias = over_block<A, added<A>>(bias, pad);
        if (threadIdx.x == 0) {
            of_weight[c] = Narrowed<E>::of(weight);
            of_bias[c] = Narrowed<E>::of(bias);
        }
    }
}
