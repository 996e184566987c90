// Cross entropy over lines of logits, losses of pairs of elements, and their reductions.

template <bool ROWS> struct LogSum {  // of the exponentials of a line of logits
    A top, total;
    __device__ LogSum(const Lines<ROWS>& line, const E* x, A* pad) {
        Values<ROWS> values(line, x);
        top = values.template folded<largest<A>>(
            -infinity_of(A()), [](i64, A v) { return v; }, pad);
        A highest = top;
        total = values.template folded<added<A>>(
            0, [&](i64, A v) { return exp(v - highest); }, pad);
    }
    __device__ A log_share(E x) const { return widened(x) - top - log(total); }
    __device__ A share(E x) const { return exp(widened(x) - top) / total; }
};

// The class of a line: its weight, 0 where it is ignored or out of bounds, which is reported.
struct Class {
    i64 at;
    A weight;
    template <bool ROWS>
    __device__ Class(
        const Lines<ROWS>& line, const i64* target, const A* weights, i64 ignored, Check check) {
        at = line.end ? target[line.number()] : ignored;
        bool valid = at >= 0 && at < line.n;
        if (at != ignored && !valid && line.lane == 0) check.report(at, line.n - 1);
        if (at == ignored || !valid) at = -1;
        weight = at < 0 ? 0 : weights ? weights[at] : 1;
    }
};

// ---- classes --------------------------------------------------------------------------------------

template <bool ROWS>
__device__ void of_classes(
    const E* x, const i64* target, const A* weights, A* losses, A* own, i64 outer, i64 n, i64 inner,
    i64 ignored, A smoothing, Check check, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        Class found(line, target, weights, ignored, check);
        LogSum<ROWS> sum(line, x, pad);
        A even = 0;
        if (smoothing) {
            for (i64 k = line.lane; k < line.end; k += line.lanes) {
                A weight = weights ? weights[k] : 1;
                if (weight) even += weight * sum.log_share(x[line.at(k)]);
            }
            even = line.template folded<A, added<A>>(even, pad);
        }
        if (line.lane || !line.end) continue;
        A share = found.weight * (1 - smoothing), loss = 0;  // 0 * -inf is 0: it does not count
        if (share) loss -= share * sum.log_share(x[line.at(found.at)]);
        if (found.at >= 0) loss -= even * smoothing / n;
        losses[line.number()] = loss;
        own[line.number()] = found.weight;
    }
}
template <bool ROWS>
__device__ void of_classes_backward(
    const E* grad, i64 step, const A* divisor, const E* x, const i64* target, const A* weights,
    E* out, i64 outer, i64 n, i64 inner, i64 ignored, A smoothing, Check check, A* pad) {
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        Class found(line, target, weights, ignored, check);
        LogSum<ROWS> sum(line, x, pad);
        A every = n, even = found.at < 0 ? 0 : smoothing / n, share = found.weight * (1 - smoothing);
        if (smoothing && weights) {
            every = 0;
            for (i64 k = line.lane; k < line.end; k += line.lanes) every += weights[k];
            every = line.template folded<A, added<A>>(every, pad);
        }
        A total = share + even * every, scale = line.end ? widened(grad[line.number() * step]) : 0;
        if (divisor) scale /= *divisor;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A q = even * (weights ? weights[k] : 1) + (k == found.at ? share : 0);
            A y = (sum.share(x[line.at(k)]) * total - q) * scale;
            out[line.at(k)] = Narrowed<E>::of(total ? y : 0);
        }
    }
}

// ---- probabilities --------------------------------------------------------------------------------

struct Shares {  // q of each class: smoothed and weighted
    const E* target;
    const A* weights;
    A smoothing, even;
    __device__ A at(i64 place, i64 k) const {
        A q = widened(target[place]) * (1 - smoothing) + even;
        return weights ? q * weights[k] : q;
    }
};
template <bool ROWS>
__device__ void of_shares(
    const E* x, const E* target, const A* weights, A* losses, i64 outer, i64 n, i64 inner,
    A smoothing, A* pad) {
    Shares shares{target, weights, smoothing, smoothing / n};
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        LogSum<ROWS> sum(line, x, pad);
        A loss = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A q = shares.at(line.at(k), k);
            if (q != 0) loss -= q * sum.log_share(x[line.at(k)]);
        }
        loss = line.template folded<A, added<A>>(loss, pad);
        if (line.lane == 0 && line.end) losses[line.number()] = loss;
    }
}
template <bool ROWS>
__device__ void of_shares_backward(
    const E* grad, i64 step, A divisor, const E* x, const E* target, const A* weights, E* out,
    i64 outer, i64 n, i64 inner, A smoothing, A* pad) {
    Shares shares{target, weights, smoothing, smoothing / n};
    for (Lines<ROWS> line(outer, n, inner); line.more(); line.next()) {
        LogSum<ROWS> sum(line, x, pad);
        A total = 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) total += shares.at(line.at(k), k);
        total = line.template folded<A, added<A>>(total, pad);
        A scale = line.end ? widened(grad[line.number() * step]) / divisor : 0;
        for (i64 k = line.lane; k < line.end; k += line.lanes) {
            A y = (sum.share(x[line.at(k)]) * total - shares.at(line.at(k), k)) * scale;
            out[line.at(k)] = Narrowed<E>::of(total ? y : 0);
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1) classes(
    const E* x, const i64* target, const A* weights, A* losses, A* own, i64 outer, i64 n, i64 inner,
    i64 ignored, double smoothing, i64 low, i64* flag, i64 kind, i64 op) {
    __shared__ A pad[256];
    if (inner == 1)
        of_classes<true>(
            x, target, weights, losses, own, outer, n, inner, ignored, smoothing, {low, flag,
            kind, op}, pad);
    else
        of_classes<false>(
            x, target, weights, losses, own, outer, n, inner, ignored, smoothing, {low, flag,
            kind, op}, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) classes_backward(
    const E* grad, i64 step, const A* divisor, const E* x, const i64* target, const A* weights,
    E* out, i64 outer, i64 n, i64 inner, i64 ignored, double smoothing, i64 low, i64* flag,
    i64 kind, i64 op) {
    __shared__ A pad[256];
    if (inner == 1)
        of_classes_backward<true>(
            grad, step, divisor, x, target, weights, out, outer, n, inner, ignored, smoothing,
            {low, flag, kind, op}, pad);
    else
        of_classes_backward<false>(
            grad, step, divisor, x, target, weights, out, outer, n, inner, ignored, smoothing,
            {low, flag, kind, op}, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) shares(
    const E* x, const E* target, const A* weights, A* losses, i64 outer, i64 n, i64 inner,
    double smoothing) {
    __shared__ A pad[256];
    if (inner == 1)
        of_shares<true>(
            x, target, weights, losses, outer, n, inner, smoothing, pad);
    else
        of_shares<false>(
            x, target, weights, losses, outer, n, inner, smoothing, pad);
}
extern "C" __global__ void __launch_bounds__(1024, 1) shares_backward(
    const E* grad, i64 step, double divisor, const E* x, const E* target, const A* weights, E* out,
    i64 outer, i64 n, i64 inner, double smoothing) {
    __shared__ A pad[256];
    if (inner == 1)
        of_shares_backward<true>(
            grad, step, divisor, x, target, weights, out, outer, n, inner, smoothing, pad);
    else
        of_shares_backward<false>(
            grad, step, divisor, x, target, weights, out, outer, n, inner, smoothing, pad);
}

// What a weighted mean divides by: the weights of the targets that count. One block.
extern "C" __global__ void __launch_bounds__(1024, 1) total_weight(
    const i64* target, const A* weights, A* total, i64 size, i64 n, i64 ignored) {
    __shared__ A pad[32];
    A sum = 0;
    for (i64 i = threadIdx.x; i < size; i += blockDim.x) {
        i64 t = target[i];
        if (t != ignored && t >= 0 && t < n) sum += weights ? weights[t] : 1;
    }
    sum = over_block<A, added<A>>(sum, pad);
    if (threadIdx.x == 0) *total = sum;
}

// ---- pairs of elements ----------------------------------------------------------------------------

enum { SQUARED, ABSOLUTE, SMOOTH, HUBER, BINARY, LOGITS };

struct Pairs {
    i64 which;
    A bound;
    Check check;
    __device__ A of(A x, A y) const {
        A d = fabs(x - y), near = d < bound ? d : bound;
        if (d != d) near = d;
        if (which == SQUARED) return d * d;
        if (which == ABSOLUTE) return d;
        if (which == SMOOTH) return near * near * ((A)0.5 / bound) + (d - near);
        if (which == HUBER) return near * near * (A)0.5 + (d - near) * bound;
        if (which == LOGITS) return (1 - y) * x + log1p(exp(-fabs(x))) + largest(-x, (A)0);
        if (x < 0 || x > 1) check.report_number(x, 0);
        if (y < 0 || y > 1) check.report_number(y, 1);
        return -(y * largest(log(x), (A)-100) + (1 - y) * largest(log1p(-x), (A)-100));
    }
};
extern "C" __global__ void __launch_bounds__(1024, 1) pairs_each(
    const E* x, const E* y, const E* weight, E* out, i64 size, i64 which, double bound, i64 low,
    i64* flag, i64 kind, i64 op) {
    Pairs pairs{which, (A)bound, {low, flag, kind, op}};
    for (Each i(size); i.more(); i.next()) {
        A loss = pairs.of(widened(x[i]), widened(y[i]));
        out[i] = Narrowed<E>::of(weight ? loss * widened(weight[i]) : loss);
    }
}
extern "C" __global__ void __launch_bounds__(1024, 1) pairs_sums(  // one sum for each block
    const E* x, const E* y, const E* weight, A* sums, i64 size, i64 which, double bound, i64 low,
    i64* flag, i64 kind, i64 op) {
    __shared__ A pad[32];
    Pairs pairs{which, (A)bound, {low, flag, kind, op}};
    A sum = 0;
    for (Each i(size); i.more(); i.next()) {
        A loss = pairs.of(widened(x[i]), widened(y[i]));
        sum += weight ? loss * widened(weight[i]) : loss;
    }
    sum = over_block<A, added<A>>(sum, pad);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// ---- reductions -----------------------------------------------------------------------------------

// The sum of losses, divided by the sum of `own` or else by a number. One block.
extern "C" __global__ void __launch_bounds__(1024, 1) reduced(
    const A* losses, const A* own, E* out, i64 size, double divisor) {
    __shared__ A pad[32];
    A sum = 0, weight = 0;
    for (i64 i = threadIdx.x; i < size; i += blockDim.x) {
        sum += losses[i];
        if (own) weight += own[i];
    }
    sum = over_block<A, added<A>>(sum, pad);
    weight = over_block<A, added<A>>(weight, pad);
    if (threadIdx.x == 0) *out = Narrowed<E>::of(sum / (own ? weight : (A)divisor));
}
