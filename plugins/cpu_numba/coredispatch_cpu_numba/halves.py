"""Elements of half precision as the loops see them: 16 bits in memory, float32 in registers.

bfloat16 lies in arrays of uint16 and float16 in arrays of int16: Numba has neither, and the sign
tells the two apart. Both directions are integer arithmetic that LLVM widens to vectors, exact for
every bit pattern; results round once, ties to even, as in PyTorch. The instructions that some CPUs
have for it are not used: that for bfloat16 takes subnormal numbers for zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

__all__ = ["BFLOAT16", "FLOAT16", "STORED", "narrowed", "widened"]

BFLOAT16, FLOAT16 = types.uint16, types.int16
#: the Numba types that hold half precision
STORED = (BFLOAT16, FLOAT16)

_i32, _i16, _float = ir.IntType(32), ir.IntType(16), ir.FloatType()
_INFINITY = 0x7F800000


def widened(builder: Any, kind: types.Type, value: ir.Value) -> ir.Value:
    """The float32 of the 16 bits in ``value``."""
    bits = builder.zext(value, _i32)
    if kind == BFLOAT16:
        return builder.bitcast(builder.shl(bits, _i32(16)), _float)
    sign = builder.shl(builder.and_(bits, _i32(0x8000)), _i32(16))
    rest = builder.shl(builder.and_(bits, _i32(0x7FFF)), _i32(13))
    # The exponent of 5 bits as one of 8: scaled by 2**112, which makes normal numbers of the
    # subnormal ones. Infinity and NaN get an exponent that is out of reach of the scaling.
    scaled = builder.fmul(builder.bitcast(rest, _float), _float(2.0**112))
    special = builder.icmp_unsigned(">=", rest, _i32(0x7C00 << 13))
    exponent = builder.select(special, _i32(_INFINITY), _i32(0))
    magnitude = builder.or_(builder.bitcast(scaled, _i32), exponent)
    return builder.bitcast(builder.or_(magnitude, sign), _float)


def narrowed(builder: Any, kind: types.Type, value: ir.Value) -> ir.Value:
    """The 16 bits nearest to the float32 ``value``; a NaN stays one, with its sign."""
    bits = builder.bitcast(value, _i32)
    if kind == BFLOAT16:
        high = builder.lshr(bits, _i32(16))
        odd = builder.and_(high, _i32(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _i32(0x7FFF))), _i32(16))
        quiet = builder.or_(high, _i32(0x40))
        nan = builder.fcmp_unordered("uno", value, value)
        return builder.trunc(builder.select(nan, quiet, rounded), _i16)
    sign = builder.and_(builder.lshr(bits, _i32(16)), _i32(0x8000))
    magnitude = builder.and_(bits, _i32(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, _i32(13)), _i32(1))
    shifted = builder.add(magnitude, _i32((15 - 127) << 23 & 0xFFFFFFFF))
    normal = builder.lshr(builder.add(shifted, builder.add(odd, _i32(0xFFF))), _i32(13))
    # Subnormal results: adding 0.5 leaves them, rounded, in the low bits of the sum.
    raised = builder.fadd(builder.bitcast(magnitude, _float), _float(0.5))
    small = builder.sub(builder.bitcast(raised, _i32), _i32(126 << 23))
    result = builder.select(builder.icmp_unsigned("<", magnitude, _i32(113 << 23)), small, normal)
    # 65520 and more round to infinity.
    large = builder.icmp_unsigned(">=", magnitude, _i32(0x477FF000))
    result = builder.select(large, _i32(0x7C00), result)
    payload = builder.and_(builder.lshr(magnitude, _i32(13)), _i32(0x3FF))
    nan = builder.icmp_unsigned(">", magnitude, _i32(_INFINITY))
    result = builder.select(nan, builder.or_(payload, _i32(0x7E00)), result)
    return builder.trunc(builder.or_(result, sign), _i16)
