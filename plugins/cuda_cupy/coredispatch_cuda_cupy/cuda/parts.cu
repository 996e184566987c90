// Lists of tensors that one kernel goes through, as tables.py lays them out.
//
// A table of `count` tensors: a row of addresses for each list, their sizes, then for each of `parts`
// parts of at most `length` elements its tensor and its first element; at last, for each tensor, which
// part is its first. A block takes a part. Behind it may stand, for each tensor, the address of a number
// that belongs to it, and a count of the blocks that are done with it, which is 0 between kernels.
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
__device__ inline void* number_of(const i64* table, i64 rows, i64 count, i64 parts, i64 at) {
    return (void*)table[(rows + 2) * count + 2 * parts + at];
}
// Whether the block is the last one of `own` that comes here for a tensor. What the others read
// before is read: its first thread may write over it.
__device__ inline bool is_last(i64* table, i64 rows, i64 count, i64 parts, i64 at, i64 own) {
    if (own == 1) return true;
    unsigned long long* done = (unsigned long long*)table + (rows + 3) * count + 2 * parts + at;
    __threadfence();
    if (atomicAdd(done, 1ull) != (unsigned long long)own - 1) return false;
    *done = 0;
    return true;
}

// The types that a number on the device may have, besides E.
enum { FLOAT, DOUBLE, HALF, BFLOAT16 };
__device__ inline double number_at(const void* place, i64 type) {
    if (type == DOUBLE) return *(const double*)place;
    if (type == HALF) return widened(*(const Half*)place);
    if (type == BFLOAT16) return widened(*(const BFloat16*)place);
    return *(const float*)place;
}
