// 8-bit floats, which lie in memory as bytes: numbers to the nearest of them, of two the one with
// the even significand, and back. `kind` is the type:

enum { E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ, E8M0FNU };

struct Type {
    int digits, bias;
    bool fnuz;  // no infinity, no zero with a sign, and one NaN in the place of that zero
    __device__ Type(i64 kind) : digits(3 - kind % 2), fnuz(kind >= E4M3FNUZ) {
        bias = (kind % 2 ? 15 : 7) + fnuz;
    }
};

__device__ unsigned int encoded(float x, i64 kind) {
    unsigned int bits = __float_as_int(x), size = bits & 0x7fffffff, sign = bits >> 31 << 7, code;
    if (kind == E8M0FNU) {  // the nearest power of two, of two the greater one, as in PyTorch
        unsigned int exponent = size >> 23, rest = size & 0x7fffff;
        if (exponent == 255) return 255;
        return exponent + (rest > 0x400000 || (rest == 0x400000 && exponent));
    }
    Type type(kind);
    if (size > 0x7f800000) return type.fnuz ? 0x80 : sign | 0x7f;
    if (size < (unsigned int)(128 - type.bias) << 23) {
        // Below the least normal number: the last digit of this sum is the least number of all.
        unsigned int anchor = (unsigned int)(151 - type.bias - type.digits) << 23;
        code = __float_as_int(__int_as_float(size) + __int_as_float(anchor)) - anchor;
    } else {
        int dropped = 23 - type.digits;
        size += (1u << (dropped - 1)) - 1 + (size >> dropped & 1);
        code = (size >> dropped) - ((127 - type.bias) << type.digits);
    }
    if (type.fnuz) return code > 0x7f ? 0x80 : code ? sign | code : 0;
    unsigned int most = kind == E5M2 ? 0x7c : 0x7e;  // infinity, or the greatest number
    return sign | (code < most ? code : most);
}

__device__ float decoded(unsigned int code, i64 kind) {
    const unsigned int nan = 0x7fc00000;
    if (kind == E8M0FNU) return __int_as_float(code == 255 ? nan : code ? code << 23 : 0x400000);
    Type type(kind);
    unsigned int sign = code >> 7 << 31, size = code & 0x7f, exponent = size >> type.digits;
    if (type.fnuz ? code == 0x80 : kind == E4M3FN ? size == 0x7f : size > 0x7c)
        return __int_as_float(sign | nan);
    if (kind == E5M2 && size == 0x7c) return __int_as_float(sign | 0x7f800000);
    if (!exponent) {
        float least = __int_as_float((unsigned int)(128 - type.bias - type.digits) << 23);
        return __int_as_float(sign | __float_as_int(size * least));
    }
    return __int_as_float(sign | (size << (23 - type.digits)) + ((127 - type.bias) << 23));
}

extern "C" __global__ void encode(const E* x, unsigned char* out, i64 size, i64 kind) {
    for (Each i(size); i.more(); i.next()) out[i] = encoded((float)widened(x[i]), kind);
}
extern "C" __global__ void decode(const unsigned char* x, E* out, i64 size, i64 kind) {
    for (Each i(size); i.more(); i.next()) out[i] = Narrowed<E>::of((A)decoded(x[i], kind));
}
