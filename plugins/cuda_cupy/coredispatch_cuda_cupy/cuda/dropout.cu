// Dropout with random numbers by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011): element i of draw `offset` is word i % 4 of the block of counter (i / 4, offset)
// under the key `seed`, on every device and in every grid.

struct Philox {
    unsigned int word[4];
    __device__ Philox(unsigned long long seed, unsigned long long block, unsigned long long offset) {
        unsigned int key0 = seed, key1 = seed >> 32;
        word[0] = block, word[1] = block >> 32, word[2] = offset, word[3] = offset >> 32;
        for (int round = 0; round < 10; round++) {
            unsigned long long a = 0xd2511f53ull * word[0], b = 0xcd9e8d57ull * word[2];
            word[0] = (unsigned int)(b >> 32) ^ word[1] ^ key0;
            word[2] = (unsigned int)(a >> 32) ^ word[3] ^ key1;
            word[1] = b;
            word[3] = a;
            key0 += 0x9e3779b9u;
            key1 += 0xbb67ae85u;
        }
    }
    // A number in [0, 1), a multiple of 2^-24.
    __device__ float uniform(int k) const { return (word[k] >> 8) * 5.9604644775390625e-8f; }
};

// Elements whose number is at least p are kept, times `scale`. In a captured graph `base` has the seed,
// and the offset of the first draw, which replays find written anew.
extern "C" __global__ void dropout(
    const E* x, E* out, bool* mask, i64 size, double p, double scale, const i64* base, i64 seed,
    i64 offset) {
    if (base) seed = base[0], offset += base[1];
    for (Each block((size + 3) / 4); block.more(); block.next()) {
        Philox drawn(seed, block, offset);
        for (int k = 0; k < 4 && 4 * block.at + k < size; k++) {
            i64 i = 4 * block.at + k;
            bool kept = drawn.uniform(k) >= p;
            mask[i] = kept;
            out[i] = Narrowed<E>::of(kept ? widened(x[i]) * (A)scale : 0);
        }
    }
}
extern "C" __global__ void dropout_backward(
    const E* grad, const bool* mask, E* out, i64 size, double scale) {
    for (Each i(size); i.more(); i.next())
        out[i] = Narrowed<E>::of(mask[i] ? widened(grad[i]) * (A)scale : 0);
}
