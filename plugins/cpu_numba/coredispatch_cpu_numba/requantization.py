"""From 32-bit sums back to bytes, by QNNPACK's definition, in 32 bits where that is exact.

With a multiplier ``2**30 <= m < 2**31`` and a shift ``s``: ``q = (sum * m + 2**30) >> 31`` in 64
bits, then ``q`` is divided by ``2**s`` to nearest, midpoints away from zero. For ``s >= 0`` the
first quotient is no larger than the sum. For negative ``s`` the first division is by
``2**(31 + s)`` and there is no second; what comes out may need 64 bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .elementary.inlined import inlined

__all__ = ["requantize_columns", "requantized", "requantized_wide"]

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


def requantize_columns(lanes: int) -> Any:
    """An intrinsic: ``requantized`` for ``lanes`` columns of rows whose sums lie ``row`` apart.

    Its arguments are the sums and the first one's place, ``row`` and the number of rows, arrays of
    parameters (added first, multiplier, shift) and the first one's place in them, the bytes, the
    first one's place and how far rows lie apart there, and zero, low and high. What belongs to a
    column stays in registers. Two 64-bit products make room for one another in 32-bit lanes.
    """
    whole, half = ir.VectorType(_i32, lanes), ir.VectorType(_i64, lanes // 2)

    def all_of(kind: ir.Type, value: int) -> ir.Constant:
        return ir.Constant(kind, [value] * kind.count)

    @intrinsic
    def finish(
        typingctx: Any, sums: Any, at: Any, row: Any, count: Any, start: Any, factor: Any,
        shift: Any, column: Any, out: Any, to: Any, width: Any, zero: Any, low: Any, high: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            sums, start, factor, shift, out = (
                context.make_array(kinds[i])(context, builder, args[i]).data
                for i in (0, 4, 5, 6, 8)
            )
            at, row, count, column, to, width = (args[i] for i in (1, 2, 3, 7, 9, 10))

            def load(data: ir.Value, index: ir.Value) -> ir.Value:
                place = builder.bitcast(builder.gep(data, [index]), whole.as_pointer())
                return builder.load(place, align=4)

            def splat(value: ir.Value) -> ir.Value:
                undefined = ir.Constant(whole, ir.Undefined)
                one = builder.insert_element(undefined, builder.trunc(value, _i32), _i32(0))
                return builder.shuffle_vector(one, undefined, all_of(whole, 0))

            def even(value: ir.Value) -> ir.Value:
                value = builder.shl(builder.bitcast(value, half), all_of(half, 32))
                return builder.ashr(value, all_of(half, 32))

            def odd(value: ir.Value) -> ir.Value:
                return builder.ashr(builder.bitcast(value, half), all_of(half, 32))

            start, factor, shift = (load(data, column) for data in (start, factor, shift))
            factors = even(factor), odd(factor)
            zero, low, high = (splat(value) for value in args[11:])
            low, high = builder.sub(low, zero), builder.sub(high, zero)
            mask = builder.sub(builder.shl(all_of(whole, 1), shift), all_of(whole, 1))
            middle = builder.lshr(mask, all_of(whole, 1))
            rounding, thirty_one = all_of(half, 1 << 30), all_of(whole, 31)
            lanes_of_both = [i + lanes if i % 2 else i for i in range(lanes)]
            both = ir.Constant(ir.VectorType(_i32, lanes), lanes_of_both)
            bytes_ = ir.VectorType(_i8, lanes)
            with cgutils.for_range(builder, count) as loop:
                place = builder.add(at, builder.mul(loop.index, row))
                total = builder.add(load(sums, place), start)
                first, second = (
                    builder.add(builder.mul(take(total), by), rounding)
                    for take, by in zip((even, odd), factors, strict=True)
                )
                first = builder.bitcast(builder.lshr(first, all_of(half, 31)), whole)
                second = builder.bitcast(builder.shl(second, all_of(half, 1)), whole)
                value = builder.shuffle_vector(first, second, both)
                # One less where it is negative: its midpoints then go down.
                remainder = builder.add(builder.and_(value, mask), builder.ashr(value, thirty_one))
                up = builder.zext(builder.icmp_signed(">", remainder, middle), whole)
                value = builder.add(builder.ashr(value, shift), up)
                for limit, order in ((low, ">"), (high, "<")):
                    inside = builder.icmp_signed(order, value, limit)
                    value = builder.select(inside, value, limit)
                result = builder.trunc(builder.add(value, zero), bytes_)
                target = builder.gep(out, [builder.add(to, builder.mul(loop.index, width))])
                builder.store(result, builder.bitcast(target, bytes_.as_pointer()), align=1)
            return context.get_dummy_value()

        number = types.intp
        return types.void(
            sums, number, number, number, start, factor, shift, number, out, number, number,
            number, number, number,
        ), codegen  # fmt: skip

    return finish


@inlined
def requantized_wide(total, multiplier, shift, zero, low, high):
    """The same for any shift, in 64 bits; an integer from ``low`` to ``high``."""
    value = total * multiplier
    first = 31 + min(shift, 0)
    value = (value + ((1 << first) >> 1)) >> first
    if shift > 0:
        value = (value + ((1 << shift) >> 1) - (1 if value < 0 else 0)) >> shift
    return max(low, min(high, value + zero))
