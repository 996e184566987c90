// The elements of 16 bits, and how they become float and the other way round.

struct Half { unsigned short bits; };
struct BFloat16 { unsigned short bits; };

// The two 16-bit types are converted here, so that no header of CUDA's has to be found.
__device__ inline float widened(Half x) {
#ifdef __CUDACC__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else  // tests run these texts on the host
    _Float16 y;
    __builtin_memcpy(&y, &x, 2);
    return y;
#endif
}
__device__ inline float widened(BFloat16 x) { return __int_as_float((int)x.bits << 16); }
template <typename X> __device__ inline X widened(X x) { return x; }

template <typename X> struct Narrowed {
    template <typename Y> static __device__ X of(Y y) { return (X)y; }
};
template <> struct Narrowed<Half> {
    static __device__ Half of(float y) {
        Half x;
#ifdef __CUDACC__
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x.bits) : "f"(y));
#else
        _Float16 z = y;
        __builtin_memcpy(&x, &z, 2);
#endif
        return x;
    }
};
template <> struct Narrowed<BFloat16> {
    static __device__ BFloat16 of(float y) {  // to the nearest, of two the even one
        unsigned int bits = __float_as_int(y);
        BFloat16 x;
        x.bits = y != y ? (bits >> 16 | 0x40) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return x;
    }
};
