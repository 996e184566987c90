// Products of groups of matrices, cut into tiles of SIDE x SIDE elements of the result.
//
// Where groups end is read here, so that nothing waits for it.

constexpr int SIDE = 64;
enum { EVEN, ROWS, COLUMNS, INNER };  // which dimension the groups divide

// The part of `length` that group g has: ends that go back, or beyond it, give none.
struct Span {
    i64 start, end;
    __device__ void next(const i64* ends, i64 g, i64 groups, i64 length) {
        start = end;
        i64 wanted = g < groups ? ends[g] : length;
        end = wanted < start ? start : wanted < length ? wanted : length;
    }
};

// One tile: its group, the rows [top, bottom) and columns [left, right) of the result that are the
// group's, and the part [from, until) of what is summed. The group behind the last one has zeros.
struct Tile {
    i64 group, top, left, bottom, right, from, until;

    // Where tile `number` lies; false where it has no elements.
    __device__ bool place(
        const i64* ends, i64 divided, i64 groups, i64 rows, i64 columns, i64 depth, i64 number) {
        group = top = left = from = 0, bottom = rows, right = columns, until = depth;
        i64 down = (rows + SIDE - 1) / SIDE, along = (columns + SIDE - 1) / SIDE;
        if (divided == ROWS || divided == COLUMNS) {
            // Tiles of one group after the other; what is behind the last group is one more.
            i64 beside = divided == ROWS ? along : down, tile = quotient(number, beside);
            i64 rest = (number - tile * beside) * SIDE, length = divided == ROWS ? rows : columns;
            Span span{0, 0};
            for (group = 0;; group++) {
                span.next(ends, group, groups, length);
                i64 count = (span.end - span.start + SIDE - 1) / SIDE;
                if (tile < count || group == groups) break;
                tile -= count;
            }
            i64 first = span.start + tile * SIDE;
            if (first >= span.end) return false;
            if (group == groups) until = 0;
            if (divided == ROWS)
                top = first, bottom = span.end, left = rest;
            else
                left = first, right = span.end, top = rest;
            return true;
        }
        group = quotient(number, down * along);
        i64 tile = number - group * down * along, row = quotient(tile, along);
        top = row * SIDE, left = (tile - row * along) * SIDE;
        if (divided == INNER) {
            Span span{0, 0};
            for (i64 k = 0; k <= group; k++) span.next(ends, k, groups, depth);
            from = span.start, until = span.end;
        }
        return true;
    }
};
