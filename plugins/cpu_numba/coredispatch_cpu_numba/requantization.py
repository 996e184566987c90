"""From 32-bit sums back to bytes, by QNNPACK's definition, in 32 bits where that is exact.

With a multiplier ``2**30 <= m < 2**31`` and a shift ``s``: ``q = (sum * m + 2**30) >> 31`` in 64
bits, then ``q`` is divided by ``2**s`` to nearest, midpoints away from zero. For ``s >= 0`` the
first quotient is no larger than the sum. For negative ``s`` the first division is by
``2**(31 + s)`` and there is no second; what comes out may need 64 bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .elementary.inlined import inlined

__all__ = ["requantized", "requantized_wide"]

_i8, _i32, _i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@intrinsic
def requantized(
    typingctx: Any, total: Any, multiplier: Any, shift: Any, zero: Any, low: Any, high: Any
) -> Any:
    """The byte for the int32 ``total``; ``0 <= shift <= 31``, and ``low <= zero <= high``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, multiplier, shift = args[:3]
        zero, low, high = (builder.trunc(a, _i32) for a in args[3:])
        product = builder.mul(builder.sext(total, _i64), builder.sext(multiplier, _i64))
        quotient = builder.ashr(builder.add(product, _i64(1 << 30)), _i64(31))
        value = builder.trunc(quotient, _i32)
        mask = builder.sub(builder.shl(_i32(1), shift), _i32(1))
        # One less where it is negative: its midpoints then go down.
        remainder = builder.add(builder.and_(value, mask), builder.ashr(value, _i32(31)))
        up = builder.icmp_signed(">", remainder, builder.lshr(mask, _i32(1)))
        value = builder.add(builder.ashr(value, shift), builder.zext(up, _i32))
        for limit, order in ((builder.sub(low, zero), ">"), (builder.sub(high, zero), "<")):
            inside = builder.icmp_signed(order, value, limit)
            value = builder.select(inside, value, limit)
        return builder.trunc(builder.add(value, zero), _i8)

    return types.uint8(total, multiplier, shift, zero, low, high), codegen


@inlined
def requantized_wide(total, multiplier, shift, zero, low, high):
    """The same for any shift, in 64 bits; an integer from ``low`` to ``high``."""
    value = total * multiplier
    first = 31 + min(shift, 0)
    value = (value + ((1 << first) >> 1)) >> first
    if shift > 0:
        value = (value + ((1 << shift) >> 1) - (1 if value < 0 else 0)) >> shift
    return max(low, min(high, value + zero))
