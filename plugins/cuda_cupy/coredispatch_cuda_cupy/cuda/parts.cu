// Lists of tensors that one kernel goes through, as tables.py lays them out.
//
// A table of `count` tensors: a row of addresses for each list, their sizes, then for each of `parts`
// parts of at most `length` elements its tensor and its first element; at last, for each tensor, which
// part is its first. A block takes a part.
struct Part {
    i64 at, start, end;
    __device__ Part(
        const i64* table, i64 rows, i64 count, i64 parts, i64 length, i64 part) {
        const i64* behind = table + (rows + 1) * count;
        at = behind[part];
        start = behind[parts + part];
        i64 size = table[rows * count + at];
        end = start + length < size ? start + length : size;
    }
};
__device__ inline E* address(const i64* table, i64 row, i64 count, i64 at) {
    return (E*)table[row * count + at];
}
__device__ inline i64 first_part(const i64* table, i64 rows, i64 count, i64 parts, i64 at) {
    return table[(rows + 1) * count + 2 * parts + at];
}
