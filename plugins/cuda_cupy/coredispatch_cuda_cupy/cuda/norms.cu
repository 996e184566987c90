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
__device__ void statistics(const Values<true>& row, double eps, A* pad, A& mean, A& rstd) {
    i64 n = row.line.n;
    mean = 0;
    if (CENTERED) mean = row.folded<added<A>>(0, [](i64, A v) { return v; }, pad) / n;
    A center = mean;
    A square = row.folded<added<A>>(
        0, [&](i64, A v) { return (v - center) * (v - center); }, pad);
    rstd = 1 / sqrt(square / n + (A)eps);
}

template <bool CENTERED>
__device__ void forward(
    const E* x, const E* weight, const E* bias, E* out, i64 rows, i64 n, Weights at, double eps,
    A* pad) {
    for (Lines<true> line(rows, n, 1); line.more(); line.next()) {
        Values<true> row(line, x);
        A mean, rstd;
        statistics<CENTERED>(row, eps, pad, mean, rstd);
        row.each([&](i64 k, A v) {
            A y = (v - mean) * rstd;
            if (weight) y *= widened(weight[at.at(line.tile, k)]);
            if (bias) y += widened(bias[at.at(line.tile, k)]);
            out[line.at(k)] = Narrowed<E>::of(y);
        });
    }
}

// The gradient of x; what the gradients of weight and bias need of a row is kept in `means` and
// `rstds`.
template <bool CENTERED>
__device__ void backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    Weights at, double eps, A* pad) {
    for (Lines<true> line(rows, n, 1); line.more(); line.next()) {
        Values<true> row(line, x);
        i64 r = line.tile;
        A mean, rstd, level = 0, along = 0;
        statistics<CENTERED>(row, eps, pad, mean, rstd);
        auto gradient = [&](i64 k) {
            A g = widened(grad[line.at(k)]);
            return weight ? g * widened(weight[at.at(r, k)]) : g;
        };
        row.each([&](i64 k, A v) {
            A g = gradient(k);
            level += g;
            along += g * (v - mean) * rstd;
        });
        level = CENTERED ? over_block<A, added<A>>(level, pad) / n : 0;
        along = over_block<A, added<A>>(along, pad) / n;
        row.each([&](i64 k, A v) {
            A normal = (v - mean) * rstd;
            out[line.at(k)] = Narrowed<E>::of((gradient(k) - level - normal * along) * rstd);
        });
        if (threadIdx.x == 0) {
            means[r] = mean;
            rstds[r] = rstd;
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1) layer_norm(
    const E* x, const E* weight, const E* bias, E* out, i64 rows, i64 n, i64 groups, i64 channels,
    i64 spatial, double eps) {
    __shared__ A pad[32];
    forward<true>(x, weight, bias, out, rows, n, {groups, channels, spatial}, eps, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) rms_norm(
    const E* x, const E* weight, E* out, i64 rows, i64 n, double eps) {
    __shared__ A pad[32];
    forward<false>(x, weight, nullptr, out, rows, n, {1, n, 1}, eps, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) layer_norm_backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    i64 groups, i64 channels, i64 spatial, double eps) {
    __shared__ A pad[32];
    backward<true>(
        grad, x, weight, out, means, rstds, rows, n, {groups, channels, spatial}, eps, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) rms_norm_backward(
    const E* grad, const E* x, const E* weight, E* out, A* means, A* rstds, i64 rows, i64 n,
    double eps) {
    __shared__ A pad[32];
    backward<false>(grad, x, weight, out, means, rstds, rows, n, {1, n, 1}, eps, pad);
}

// Gradients of weight and bias where each column has one: parts (2, strips, n), each a sum over
// `height` rows. Blocks of 256 threads: 32 columns, 8 rows at a time.
extern "C" __global__ void __launch_bounds__(1024, 1) column_parts(
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
extern "C" __global__ void __launch_bounds__(1024, 1) fold_parts(
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
extern "C" __global__ void __launch_bounds__(1024, 1) group_norm_parameters(
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
