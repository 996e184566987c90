// Products of 16-bit elements on tensor cores, summed in float32.
//
// Lane 4 * g + t of a warp holds of a 16 x 16 operand the words (two elements) of rows g and g + 8 at
// columns 2t and 2t + 8; of a 16 x 8 operand rows 2t and 2t + 8 of column g; of a 16 x 8 result
// columns 2t and 2t + 1 of rows g and g + 8.

typedef unsigned int Word;

// Which of the two 16-bit types X is.
template <typename X> struct IsHalf { static constexpr bool value = false; };
template <> struct IsHalf<Half> { static constexpr bool value = true; };

template <typename X>
__device__ inline void multiply(float (&c)[4], const Word (&a)[4], Word b0, Word b1) {
#ifdef __CUDACC__
    if (IsHalf<X>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    multiply_on_host(c, a, b0, b1, [](unsigned short bits) { return widened(X{bits}); });
#endif
}
