"""What kernels are written in: OpenCL C, computing in 64 bits and rounding once."""

from __future__ import annotations

from typing import Any

STORED = {
    "bool": "uchar", "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
    "int8": "char", "int16": "short", "int32": "int", "int64": "long",
    "float16": "half", "bfloat16": "ushort", "float32": "float", "float64": "double",
    "complex64": "float2", "complex128": "double2",
}  # fmt: skip


NARROW = ("float16", "bfloat16", "complex64")


PRELUDE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define ANY __attribute__((overloadable))
#define LOAD(m, i) m[i]
#define LOAD_half(m, i) vload_half(i, m)
#define LOAD_bfloat16(m, i) as_float((uint)(m)[i] << 16)
#define LOAD_complex64(m, i) convert_double2((m)[i])
#define STORE_complex64(m, i, v) (m)[i] = convert_float2(v)
#define STORE(T, m, i, v) (m)[i] = (T)(v)
#define STORE_bool(m, i, v) (m)[i] = (v) != 0
#define STORE_half(m, i, v) vstore_half_rte(odd(v), i, m)
#define STORE_bfloat16(m, i, v) (m)[i] = nearest(odd(v))
#define FAIL(value) { failed[1] = (value); failed[0] = 1; }

/* float, the last bit set where it is not exact: rounded again it comes out rounded once */
float ANY odd(double x) { float f = convert_float_rtz(x);
  return f == x || x != x || isinf(f) ? f : as_float(as_uint(f) | 1); }
float ANY odd(long x) { float f = convert_float_rtz(x);
  return (long)f == x ? f : as_float(as_uint(f) | 1); }
float ANY odd(ulong x) { float f = convert_float_rtz(x);
  return (ulong)f == x ? f : as_float(as_uint(f) | 1); }
float ANY odd(int x) { return odd((long)x); }
ushort nearest(float x) { uint u = as_uint(x);
  return x != x ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
ulong ANY whole(double x) { return x < 0 ? (ulong)(long)x : (ulong)x; }
ulong ANY whole(long x) { return x; }
ulong ANY whole(ulong x) { return x; }
ulong ANY whole(int x) { return x; }

double ANY modulo(double x, double y) { double r = fmod(x, y);
  return r != 0 ? ((r < 0) != (y < 0) ? r + y : r) : y != y ? y : y == 0 ? NAN : copysign(0.0, y); }
long ANY modulo(long x, long y) { long r = y == -1 ? 0 : x % y;
  return r && (r < 0) != (y < 0) ? r + y : r; }
ulong ANY modulo(ulong x, ulong y) { return x % y; }
double ANY floored(double x, double y) { double r = fmod(x, y), q;
  if (y == 0 || x != x || y != y) return x / y;
  q = (x - r) / y - (r != 0 && (r < 0) != (y < 0));
  return q == 0 ? copysign(0.0, x / y) : rint(q); }
long ANY floored(long x, long y) {
  if (y == -1) return (long)-(ulong)x;
  return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
ulong ANY floored(ulong x, ulong y) { return x / y; }
double ANY times(double x, double y) { return x * y; }
ulong ANY times(ulong x, ulong y) { return x * y; }
double2 ANY times(double2 x, double2 y) {
  return (double2)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x); }
ulong power(ulong x, ulong y) { ulong p = 1;
  for (; y; y >>= 1, x *= x) if (y & 1) p *= x;
  return p; }
/* sin (quarter 0) and cos (quarter 1) to one unit in the last place, where OpenCL allows four:
   reduced by pi/2 in three parts, then the polynomials of fdlibm (k_sin.c, k_cos.c) */
double turn(double x, int quarter) {
  if (!(fabs(x) < 1e5)) return quarter ? cos(x) : sin(x);
  double n = rint(x * 6.36619772367581382433e-01);
  double a = fma(-n, 1.57079632679489655800e+00, x), w = n * 6.12323399573676603587e-17;
  double r = a - w, b = r - a, e = (a - (r - b)) - (w + b) + fma(-n, 6.12323399573676603587e-17, w);
  e += n * 1.49738490485916983e-33; double z = r * r;
  int q = (int)n + quarter;
  double v;
  if (q & 1) {
    double p = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03
      + z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07
      + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    double h = 0.5 * z, u = 1 - h;
    v = u + ((1 - u - h) + (z * p - r * e));
  } else {
    double p = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04
      + z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08
      + z * 1.58969099521155010221e-10)));
    double c = z * r;
    v = r - ((z * (0.5 * e - c * p) - e) + c * 1.66666666666666324348e-01);
  }
  return q & 2 ? -v : x == 0 && !quarter ? x : v; }
/* the bits of the next number; mask: all but the sign */
long next(long x, long y, long mask, long infinity) { long a = x & mask, b = y & mask;
  if (a > infinity) return x;
  if (b > infinity || x == y || !(a | b)) return y;
  return !a ? (y & ~mask) | 1 : x + ((x ^ y) >= 0 && b > a ? 1 : -1); }
"""


TRUE = "(x.s0 != 0 || x.s1 != 0)"


def compute(dtype: Any) -> str:
    """The C type that elements are computed in."""
    if dtype.is_complex or dtype.is_floating_point:
        return "double2" if dtype.is_complex else "double"
    return "long" if dtype.is_signed or dtype.name == "bool" else "ulong"
