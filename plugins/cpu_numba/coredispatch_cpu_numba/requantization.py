"""From 32-bit sums back to bytes, by QNNPACK's definition, in 32 bits where that is exact.

With a multiplier ``2**30 <= m < 2**31`` and a shift ``s``: ``q = (sum * m + 2**30) >> 31`` in 64
bits, then ``q`` is divided by ``2**s`` to nearest, midpoints away from zero. For ``s >= 0`` the
first quotient is no larger than the sum. For negative ``s`` the first division is by
``2**(31 + s)`` and there is no second; what comes out may need 64 bits.

Where ``s >= 0`` and sums are known to be small enough, :func:`rounded` does both in half of the
instructions. Rounding down twice is rounding down once, so that half of ``2**s`` and the zero point
are added before ``q`` is rounded down: both to the upper 32 bits of ``2 m sum + 2**31``. Only that
midpoints go away from zero is left, which takes 1 off for negative sums. Sums come ``2**31`` too
large: the product is then one of unsigned numbers, the factor ``2 m`` fits 32 bits, and the sign is
the upper bit the other way round.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .dots import features, vector_bytes
from .elementary.inlined import inlined

__all__ = [
    "COLUMN_VECTORS",
    "Columns",
    "bytes_of",
    "columns_at",
    "in_order",
    "limits_of",
    "requantize_columns",
    "requantized",
    "requantized_wide",
    "rounded",
]

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


#: vectors of parameters that as many columns have as a vector has 32-bit numbers
COLUMN_VECTORS = 6


class Columns(NamedTuple):
    """Parameters of a vector of columns, each a vector of int32 in this order in memory.

    Args:
        start: added to the sums first, ``2**31`` included
        factor: ``2 m``, unsigned
        even: as int64, ``2**31`` and what is added to ``q`` at every other column from the first on
        odd: the same for the columns between
        step: what is added to ``q`` where the sum is not negative: 1, or 0 if ``s`` is 0
        shift: ``s``
    """

    start: ir.Value
    factor: ir.Value
    even: ir.Value
    odd: ir.Value
    step: ir.Value
    shift: ir.Value


def columns_at(builder: Any, address: ir.Value) -> Columns:
    """The parameters from ``address`` on."""
    size = vector_bytes()
    kind = ir.VectorType(_i32, size // 4)

    def load(i: int) -> ir.Value:
        place = builder.add(address, _i64(i * size))
        return builder.load(builder.inttoptr(place, kind.as_pointer()), align=4)

    return Columns(*(load(i) for i in range(COLUMN_VECTORS)))


def rounded(builder: Any, total: ir.Value, columns: Columns) -> ir.Value:
    """Sums that began with ``columns.start``, divided; the zero point is added, nothing clipped."""
    lanes = total.type.count
    half = ir.VectorType(_i64, lanes // 2)
    low, up = (ir.Constant(half, [value] * half.count) for value in (0xFFFFFFFF, 32))
    sums, factors = (builder.bitcast(v, half) for v in (total, columns.factor))
    even = builder.mul(builder.and_(sums, low), builder.and_(factors, low))
    odd = builder.mul(builder.lshr(sums, up), builder.lshr(factors, up))
    even = builder.bitcast(builder.add(even, builder.bitcast(columns.even, half)), total.type)
    odd = builder.bitcast(builder.add(odd, builder.bitcast(columns.odd, half)), total.type)
    upper = [i + lanes if i % 2 else i + 1 for i in range(lanes)]
    quotient = builder.shuffle_vector(even, odd, ir.Constant(ir.VectorType(_i32, lanes), upper))
    zero = ir.Constant(total.type, [0] * lanes)
    step = builder.select(builder.icmp_signed("<", total, zero), columns.step, zero)
    return builder.ashr(builder.add(quotient, step), columns.shift)


@memoized
def _narrowing() -> tuple[str, str] | None:
    """LLVM's functions that saturate int32 to int16 and these to uint8; None where there are not.

    They take two vectors, and put 8 bytes of one beside 8 bytes of the other.
    """
    size, prefix = vector_bytes(), "llvm.x86."
    if size == 64 and "avx512bw" in features():
        return prefix + "avx512.packssdw.512", prefix + "avx512.packuswb.512"
    if size == 32 and "avx2" in features():
        return prefix + "avx2.packssdw", prefix + "avx2.packuswb"
    if size == 16 and "sse2" in features():
        return prefix + "sse2.packssdw.128", prefix + "sse2.packuswb.128"
    return None


def _narrowed(builder: Any, name: str, x: ir.Value, y: ir.Value) -> ir.Value:
    kind = ir.VectorType(ir.IntType(x.type.element.width // 2), 2 * x.type.count)
    signature = ir.FunctionType(kind, [x.type, y.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [x, y])


def limits_of(builder: Any, limits: ir.Value) -> tuple[ir.Value, ...]:
    """Vectors of bytes: the least one, the largest one, and what they are changed by at last.

    ``limits`` has them in 8 bits each. What is changed by 128 is a signed byte from then on.
    """
    kind = ir.VectorType(_i8, vector_bytes())
    zeros = ir.Constant(ir.VectorType(_i32, kind.count), [0] * kind.count)
    found = []
    for bits in (0, 8, 16):
        one = builder.trunc(builder.lshr(limits, _i64(bits)), _i8)
        one = builder.insert_element(ir.Constant(kind, ir.Undefined), one, _i32(0))
        found.append(builder.shuffle_vector(one, one, zeros))
    return tuple(found)


def bytes_of(builder: Any, values: list[ir.Value], limits: tuple[ir.Value, ...]) -> ir.Value:
    """Four vectors of int32, clipped to bytes: by turns four of each, as x86 leaves them."""
    names, count = _narrowing(), values[0].type.count
    if names:
        halves = [_narrowed(builder, names[0], *values[i : i + 2]) for i in (0, 2)]
        found = _narrowed(builder, names[1], *halves)
    else:
        few = ir.VectorType(_i8, count)
        least, most = (ir.Constant(values[0].type, [v] * count) for v in (0, 255))
        narrow = []
        for value in values:
            value = builder.select(builder.icmp_signed("<", value, least), least, value)
            value = builder.select(builder.icmp_signed(">", value, most), most, value)
            narrow.append(builder.trunc(value, few))
        two = ir.Constant(ir.VectorType(_i32, 2 * count), list(range(2 * count)))
        pairs = [builder.shuffle_vector(*narrow[i : i + 2], two) for i in (0, 2)]
        turns = [v * count + first + k for first in range(0, count, 4) for v in range(4)
                 for k in range(4)]  # fmt: skip
        found = builder.shuffle_vector(*pairs, ir.Constant(ir.VectorType(_i32, 4 * count), turns))
    low, high, change = limits
    found = builder.select(builder.icmp_unsigned("<", found, low), low, found)
    found = builder.select(builder.icmp_unsigned(">", found, high), high, found)
    return builder.xor(found, change)


def in_order(builder: Any, octets: ir.Value) -> ir.Value:
    """What :func:`bytes_of` gave, with all bytes of each vector side by side."""
    count = octets.type.count // 4
    fours = ir.VectorType(_i32, count)
    places = [4 * piece + v for v in range(4) for piece in range(count // 4)]
    words = builder.bitcast(octets, fours)
    words = builder.shuffle_vector(words, words, ir.Constant(fours, places))
    return builder.bitcast(words, octets.type)
