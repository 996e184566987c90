// Sorting by radix, selection of the first of an order, runs of equal elements.
//
// Elements are moved as they are, by their bytes; an `Order` says which comes before which. Every
// kernel is stable. Lines of n elements lie `inner` apart, as in a contiguous (outer, n, inner).

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

constexpr int DIGITS = 256, THREADS = 256, WARPS = THREADS / 32, BITS = 8 * sizeof(E);
constexpr int ITEMS = sizeof(E) == 8 ? 8 : 16, TILE = THREADS * ITEMS, SHORT = 128;

// An element's bits as an unsigned number whose order is that of the elements: kind 0 unsigned,
// 1 signed, 2 floating with the bits of its infinity. NaN is the largest, both zeros are equal.
struct Order {
    i64 kind, infinity, descending;
    static constexpr E TOP = (E)((E)1 << (BITS - 1));

    __device__ bool is_nan(E bits) const {
        return kind == 2 && (E)(bits & (E)~TOP) > (E)infinity;
    }
    __device__ E of(E bits) const {
        if (kind == 2) {
            if (is_nan(bits))
                bits = (E)~(E)0;
            else if ((E)(bits & (E)~TOP) == 0)
                bits = TOP;
            else
                bits = bits & TOP ? (E)~bits : (E)(bits | TOP);
        } else if (kind == 1) {
            bits = (E)(bits ^ TOP);
        }
        return descending ? (E)~bits : bits;
    }
};

// Where element k of a line lies, of `n` to a line.
__device__ inline i64 place_of(i64 line, i64 k, i64 n, i64 inner) {
    if (inner == 1) return line * n + k;
    i64 o = quotient(line, inner);
    return (o * n + k) * inner + line - o * inner;
}

// Sums of the values of the threads before each one; `pad` holds WARPS elements.
__device__ inline u32 sum_before(u32 own, u32* pad) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, v = own;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        u32 before = __shfl_up_sync(0xffffffffu, v, distance);
        if (lane >= distance) v += before;
    }
    if (lane == 31) pad[warp] = v;
    __syncthreads();
    u32 before = 0;
    for (u32 w = 0; w < warp; w++) before += pad[w];
    __syncthreads();
    return before + v - own;
}

// What the blocks below keep in shared memory.
struct Shared {
    E elements[TILE];
    u16 counts[WARPS][DIGITS], numbers[TILE];
    u32 starts[DIGITS], bases[DIGITS], pad[WARPS];
    u32 all;
};

// The elements of a tile, those of a warp side by side; `items` of them for each thread.
struct Tile {
    u32 lane, warp, items, size;

    __device__ Tile(u32 size)
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), items((size + THREADS - 1) / THREADS),
          size(size) {}
    __device__ u32 at(u32 j) const { return (warp * items + j) * 32 + lane; }
    __device__ bool has(u32 j) const { return j < items && at(j) < size; }

    // Where each element goes when the tile is sorted by the digits, stable; where each digit
    // starts is then in `shared.starts`, and `shared.all` says whether there is one digit only.
    __device__ void rank(const u32 (&digits)[ITEMS], u32 (&ranks)[ITEMS], Shared& shared) const {
        for (u32 w = 0; w < WARPS; w++) shared.counts[w][threadIdx.x] = 0;
        if (threadIdx.x == 0) shared.all = 0;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (j >= items) break;
            u32 digit = has(j) ? digits[j] : DIGITS;
            u32 same = __match_any_sync(0xffffffffu, digit);
            u32 below = __popc(same & ((1u << lane) - 1));
            u32 before = has(j) ? shared.counts[warp][digit] : 0;
            __syncwarp();
            if (has(j) && below == 0) shared.counts[warp][digit] = before + __popc(same);
            __syncwarp();
            ranks[j] = before + below;
        }
        __syncthreads();
        u32 total = 0;
        for (u32 w = 0; w < WARPS; w++) {
            u32 count = shared.counts[w][threadIdx.x];
            shared.counts[w][threadIdx.x] = total;
            total += count;
        }
        if (total == size) shared.all = 1;
        shared.starts[threadIdx.x] = sum_before(total, shared.pad);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            if (has(j)) ranks[j] += shared.counts[warp][digits[j]] + shared.starts[digits[j]];
    }
};

// A line of at most SHORT elements by a warp: each element counts those that come before it. Of the
// sorted line the first `keep` are written. `from` says where elements came from, or is nothing.
extern "C" __global__ void sort_short(
    const E* x, const int* from, E* values, i64* indices, i64 lines, i64 n, i64 inner, i64 keep,
    i64 kind, i64 infinity, i64 descending) {
    __shared__ E keys[WARPS][SHORT];
    Order order{kind, infinity, descending};
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 line = (i64)blockIdx.x * WARPS + warp; line < lines; line += (i64)gridDim.x * WARPS) {
        for (i64 k = lane; k < n; k += 32) keys[warp][k] = order.of(x[place_of(line, k, n, inner)]);
        __syncwarp();
        for (i64 k = lane; k < n; k += 32) {
            E key = keys[warp][k];
            i64 rank = 0;
            for (i64 i = 0; i < n; i++) {
                E other = keys[warp][i];
                rank += other < key || (other == key && i < k);
            }
            if (rank >= keep) continue;
            i64 source = place_of(line, k, n, inner), place = place_of(line, rank, keep, inner);
            values[place] = x[source];
            indices[place] = from ? from[source] : k;
        }
        __syncwarp();
    }
}

// A line of at most TILE elements by a block.
extern "C" __global__ void __launch_bounds__(256) sort_tile(
    const E* x, const int* from, E* values, i64* indices, i64 lines, i64 n, i64 inner, i64 keep,
    i64 kind, i64 infinity, i64 descending) {
    __shared__ Shared shared;
    Order order{kind, infinity, descending};
    Tile tile(n);
    for (i64 line = blockIdx.x; line < lines; line += gridDim.x) {
        E own[ITEMS];
        u32 numbers[ITEMS], digits[ITEMS], ranks[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (!tile.has(j)) continue;
            numbers[j] = tile.at(j);
            own[j] = x[place_of(line, tile.at(j), n, inner)];
        }
        for (int shift = 0; shift < BITS; shift += 8) {
#pragma unroll
            for (int j = 0; j < ITEMS; j++)
                if (tile.has(j)) digits[j] = (u32)(order.of(own[j]) >> shift) & (DIGITS - 1);
            tile.rank(digits, ranks, shared);
            bool alike = shared.all;
            __syncthreads();
            if (alike) continue;
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                if (!tile.has(j)) continue;
                shared.elements[ranks[j]] = own[j];
                shared.numbers[ranks[j]] = numbers[j];
            }
            __syncthreads();
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                if (!tile.has(j)) continue;
                own[j] = shared.elements[tile.at(j)];
                numbers[j] = shared.numbers[tile.at(j)];
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (!tile.has(j) || tile.at(j) >= keep) continue;
            i64 place = place_of(line, tile.at(j), keep, inner);
            values[place] = own[j];
            indices[place] = from ? from[place_of(line, numbers[j], n, inner)] : numbers[j];
        }
    }
}

// ---- lines of many tiles: digits counted, the counts summed up, elements moved ------------------

// The digit of a pass, from the lowest to the highest.
struct Byte {
    Order order;
    i64 shift;
    __device__ u32 of(E x, i64 line) const { return (u32)(order.of(x) >> shift) & (DIGITS - 1); }
};
// Which side of a line's bound an element is on: before it, at it, behind it.
struct Side {
    Order order;
    const i64* bounds;
    __device__ u32 of(E x, i64 line) const {
        E key = order.of(x), bound = (E)bounds[line];
        return key < bound ? 0 : key == bound ? 1 : 2;
    }
};

// counts (lines, DIGITS, tiles) of the elements of each tile by digit.
template <typename Digit>
__device__ void count(const E* x, int* counts, i64 lines, i64 n, i64 inner, i64 tiles, Digit digit) {
    __shared__ u32 own[DIGITS];
    for (i64 b = blockIdx.x; b < lines * tiles; b += gridDim.x) {
        i64 line = quotient(b, tiles), first = (b - line * tiles) * TILE;
        own[threadIdx.x] = 0;
        __syncthreads();
        for (i64 k = first + threadIdx.x; k < n && k < first + TILE; k += THREADS)
            atomicAdd(own + digit.of(x[place_of(line, k, n, inner)], line), 1u);
        __syncthreads();
        counts[(line * DIGITS + threadIdx.x) * tiles + b - line * tiles] = own[threadIdx.x];
        __syncthreads();
    }
}
extern "C" __global__ void __launch_bounds__(256) count_bytes(
    const E* x, int* counts, i64 lines, i64 n, i64 inner, i64 tiles, i64 shift, i64 kind,
    i64 infinity, i64 descending) {
    count(x, counts, lines, n, inner, tiles, Byte{{kind, infinity, descending}, shift});
}
extern "C" __global__ void __launch_bounds__(256) count_sides(
    const E* x, int* counts, i64 lines, i64 n, i64 inner, i64 tiles, const i64* bounds, i64 kind,
    i64 infinity, i64 descending) {
    count(x, counts, lines, n, inner, tiles, Side{{kind, infinity, descending}, bounds});
}

// Of each row (rows, tiles) of counts the sums before each one, in their place; totals (rows). A warp
// takes a row.
extern "C" __global__ void __launch_bounds__(256) sum_counts(
    int* counts, int* totals, i64 rows, i64 tiles) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 row = (i64)blockIdx.x * WARPS + warp; row < rows; row += (i64)gridDim.x * WARPS) {
        u32 carried = 0;
        for (i64 first = 0; first < tiles; first += 32) {
            i64 k = first + lane;
            u32 own = k < tiles ? counts[row * tiles + k] : 0, v = own;
            for (u32 distance = 1; distance < 32; distance *= 2) {
                u32 before = __shfl_up_sync(0xffffffffu, v, distance);
                if (lane >= distance) v += before;
            }
            if (k < tiles) counts[row * tiles + k] = carried + v - own;
            carried += __shfl_sync(0xffffffffu, v, 31);
        }
        if (lane == 0) totals[row] = carried;
    }
}

// The elements of each tile moved to where their digits go in the line, of which the first `keep`
// are written, with the numbers they had: `from`, or counted. `moved` or `indices` is nothing.
template <typename Digit>
__device__ void move(
    const E* x, const int* from, E* values, int* moved, i64* indices, const int* counts,
    const int* totals, i64 lines, i64 n, i64 inner, i64 inner_out, i64 keep, i64 tiles,
    Digit digit, Shared& shared) {
    for (i64 b = blockIdx.x; b < lines * tiles; b += gridDim.x) {
        i64 line = quotient(b, tiles), first = (b - line * tiles) * TILE;
        Tile tile(n - first < TILE ? n - first : TILE);
        E own[ITEMS];
        u32 digits[ITEMS], ranks[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (!tile.has(j)) continue;
            own[j] = x[place_of(line, first + tile.at(j), n, inner)];
            digits[j] = digit.of(own[j], line);
        }
        tile.rank(digits, ranks, shared);
        i64 row = line * DIGITS + threadIdx.x;
        u32 base = sum_before(totals[row], shared.pad) + counts[row * tiles + b - line * tiles];
        shared.bases[threadIdx.x] = base - shared.starts[threadIdx.x];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (!tile.has(j)) continue;
            shared.elements[ranks[j]] = own[j];
            shared.numbers[ranks[j]] = tile.at(j);
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (!tile.has(j)) continue;
            E element = shared.elements[tile.at(j)];
            i64 k = (u32)(shared.bases[digit.of(element, line)] + tile.at(j));
            if (k >= keep) continue;
            i64 place = place_of(line, k, keep, inner_out);
            i64 number = first + shared.numbers[tile.at(j)];
            if (from) number = from[place_of(line, number, n, inner)];
            values[place] = element;
            if (moved) moved[place] = number;
            if (indices) indices[place] = number;
        }
        __syncthreads();
    }
}
extern "C" __global__ void __launch_bounds__(256) move_by_bytes(
    const E* x, const int* from, E* values, int* moved, i64* indices, const int* counts,
    const int* totals, i64 lines, i64 n, i64 inner, i64 inner_out, i64 keep, i64 tiles, i64 shift,
    i64 kind, i64 infinity, i64 descending) {
    __shared__ Shared shared;
    move(x, from, values, moved, indices, counts, totals, lines, n, inner, inner_out, keep, tiles,
         Byte{{kind, infinity, descending}, shift}, shared);
}
extern "C" __global__ void __launch_bounds__(256) move_by_sides(
    const E* x, E* values, int* moved, const int* counts, const int* totals, i64 lines, i64 n,
    i64 inner, i64 inner_out, i64 keep, i64 tiles, const i64* bounds, i64 kind, i64 infinity,
    i64 descending) {
    __shared__ Shared shared;
    move(x, nullptr, values, moved, nullptr, counts, totals, lines, n, inner, inner_out, keep,
         tiles, Side{{kind, infinity, descending}, bounds}, shared);
}

// ---- the bound of the first k elements, digit by digit from the highest -------------------------

// Counts (lines, DIGITS), of zeros before, of the digits of elements that agree with the bound above.
extern "C" __global__ void __launch_bounds__(256) count_candidates(
    const E* x, const i64* bounds, int* counts, i64 lines, i64 n, i64 inner, i64 tiles, i64 shift,
    i64 kind, i64 infinity, i64 descending) {
    __shared__ u32 own[DIGITS];
    Order order{kind, infinity, descending};
    for (i64 b = blockIdx.x; b < lines * tiles; b += gridDim.x) {
        i64 line = quotient(b, tiles), first = (b - line * tiles) * TILE;
        E bound = shift + 8 < BITS ? (E)bounds[line] : 0;
        own[threadIdx.x] = 0;
        __syncthreads();
        for (i64 k = first + threadIdx.x; k < n && k < first + TILE; k += THREADS) {
            E key = order.of(x[place_of(line, k, n, inner)]);
            if (shift + 8 < BITS && (E)(key ^ bound) >> (shift + 8)) continue;
            atomicAdd(own + ((u32)(key >> shift) & (DIGITS - 1)), 1u);
        }
        __syncthreads();
        if (own[threadIdx.x]) atomicAdd(counts + line * DIGITS + threadIdx.x, (int)own[threadIdx.x]);
        __syncthreads();
    }
}
// The digit in which the `left`-th candidate of each line is goes into the bound; counts become zeros.
extern "C" __global__ void __launch_bounds__(256) choose_digit(
    i64* bounds, i64* left, int* counts, i64 lines, i64 keep, i64 shift) {
    __shared__ u32 pad[WARPS];
    for (i64 line = blockIdx.x; line < lines; line += gridDim.x) {
        bool highest = shift + 8 >= BITS;
        i64 wanted = highest ? keep : left[line];
        int* own = counts + line * DIGITS + threadIdx.x;
        i64 there = *own, before = sum_before(there, pad);
        *own = 0;
        if (before < wanted && wanted <= before + there) {
            bounds[line] = (highest ? 0 : bounds[line]) | (i64)((u64)threadIdx.x << shift);
            left[line] = wanted - before;
        }
        __syncthreads();
    }
}

// ---- runs of equal elements ---------------------------------------------------------------------

// 1 where a run begins; every NaN is a run of its own.
extern "C" __global__ void mark_runs(const E* x, i64* marks, i64 n, i64 kind, i64 infinity) {
    Order order{kind, infinity, 0};
    for (Each k(n); k.more(); k.next()) {
        bool begins = k == 0 || order.is_nan(x[k]) || order.of(x[k]) != order.of(x[k - 1]);
        marks[k] = begins;
    }
}
// The values and starts of the runs, and for each element the number of its run. `order` says where
// elements were before they were sorted, and zeros of a sorted list lose their sign.
extern "C" __global__ void write_runs(
    const E* x, const i64* order, const i64* numbers, E* values, i64* starts, i64* inverse, i64 n,
    i64 kind) {
    for (Each k(n); k.more(); k.next()) {
        i64 run = numbers[k] - 1;
        inverse[order ? order[k] : (i64)k] = run;
        if (k && numbers[k - 1] - 1 == run) continue;
        bool zero = order && kind == 2 && (E)(x[k] & (E)~Order::TOP) == 0;
        values[run] = zero ? (E)0 : x[k];
        starts[run] = k;
    }
}
extern "C" __global__ void run_lengths(const i64* starts, i64* lengths, i64 runs, i64 n) {
    for (Each r(runs); r.more(); r.next())
        lengths[r] = (r + 1 < runs ? starts[r + 1] : n) - starts[r];
}

// ---- slices along a dimension -------------------------------------------------------------------

// The n slices of a contiguous (outer, n, inner), compared by their elements one after the other.
struct Slices {
    const E* x;
    i64 outer, n, inner;
    Order order;

    __device__ i64 columns() const { return outer * inner; }
    __device__ E element(i64 slice, i64 column) const {
        i64 o = quotient(column, inner);
        return x[(o * n + slice) * inner + column - o * inner];
    }
    __device__ bool comes_before(i64 a, i64 b) const {
        for (i64 c = 0; c < columns(); c++) {
            E first = order.of(element(a, c)), second = order.of(element(b, c));
            if (first != second) return first < second;
        }
        return false;
    }
};

// Runs of `width` slices in order become runs of twice as many: each slice looks for its place in
// the other run. Of equal ones those of the first run come first.
extern "C" __global__ void merge_slices(
    const E* x, const i64* from, i64* to, i64 outer, i64 n, i64 inner, i64 kind, i64 infinity,
    i64 width) {
    Slices slices{x, outer, n, inner, {kind, infinity, 0}};
    for (Each i(n); i.more(); i.next()) {
        i64 start = quotient(i, 2 * width) * 2 * width, own = from[i];
        i64 middle = start + width < n ? start + width : n;
        i64 end = middle + width < n ? middle + width : n;
        bool first = i < middle;
        i64 low = first ? middle : start, high = first ? end : middle;
        while (low < high) {
            i64 at = (low + high) / 2, other = from[at];
            bool before = first ? slices.comes_before(other, own) : !slices.comes_before(own, other);
            if (before)
                low = at + 1;
            else
                high = at;
        }
        to[i + low - middle] = own;
    }
}
// 1 where a run of equal slices begins, in the order that `order` says or as they lie. A warp
// compares a slice with the one before it; one with a NaN is a run of its own.
extern "C" __global__ void __launch_bounds__(256) mark_slices(
    const E* x, const i64* order, i64* marks, i64 outer, i64 n, i64 inner, i64 kind, i64 infinity) {
    Slices slices{x, outer, n, inner, {kind, infinity, 0}};
    i64 lane = threadIdx.x % 32;
    for (i64 k = (i64)blockIdx.x * WARPS + threadIdx.x / 32; k < n; k += (i64)gridDim.x * WARPS) {
        bool begins = k == 0;
        i64 own = order ? order[k] : k, last = begins ? 0 : order ? order[k - 1] : k - 1;
        for (i64 first = 0; !begins && first < slices.columns(); first += 32) {
            bool differs = false;
            if (first + lane < slices.columns()) {
                E a = slices.element(own, first + lane), b = slices.element(last, first + lane);
                differs = slices.order.is_nan(a) || slices.order.of(a) != slices.order.of(b);
            }
            begins = __any_sync(0xffffffffu, differs);
        }
        if (lane == 0) marks[k] = begins;
    }
}
// Of each run its first slice and where it starts, and for each slice the number of its run.
extern "C" __global__ void number_slices(
    const i64* order, const i64* numbers, i64* chosen, i64* starts, i64* inverse, i64 n) {
    for (Each k(n); k.more(); k.next()) {
        i64 run = numbers[k] - 1, own = order ? order[k] : (i64)k;
        inverse[own] = run;
        if (k && numbers[k - 1] - 1 == run) continue;
        chosen[run] = own;
        starts[run] = k;
    }
}
// values (outer, runs, inner), the chosen slices; zeros lose their sign where that is asked for.
extern "C" __global__ void take_slices(
    const E* x, const i64* chosen, E* values, i64 outer, i64 n, i64 inner, i64 runs, i64 kind,
    i64 unsigned_zeros) {
    for (Each i(outer * runs * inner); i.more(); i.next()) {
        i64 row = quotient(i, inner), o = quotient(row, runs);
        E element = x[(o * n + chosen[row - o * runs]) * inner + i - row * inner];
        bool zero = unsigned_zeros && kind == 2 && (E)(element & (E)~Order::TOP) == 0;
        values[i] = zero ? (E)0 : element;
    }
}
