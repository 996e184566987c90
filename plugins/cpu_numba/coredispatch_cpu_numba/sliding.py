"""Tiles of windows that slide down a plane, for convolutions of channels that are each alone.

A tile is a column of vectors of the result, ``ratio`` rows of the plane apart. For one column of
the kernel, its ``height`` weights are in registers, each row of the plane is loaded once, and goes
into all results whose windows it lies in. The sums stay in registers over the columns of the
kernel, which are a loop, so that there is a tile for each height only.

A *column* is a pair of int64: how much further its first row begins than that of the tile, and
where its first weight lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .vectors import across, below, load_some, splat, store_some, suffix

__all__ = [
    "interleaved",
    "padded",
    "separated",
    "sliding_dots",
    "sliding_sums",
    "stored",
    "total_of",
]

_WORD = ir.IntType(64)


def _data(context: Any, builder: Any, signature: Any, args: Any, i: int) -> ir.Value:
    return context.make_array(signature.args[i])(context, builder, args[i]).data


def _kind(context: Any, array: Any, lanes: int) -> tuple[ir.Type, int]:
    """The vector of elements of an array, and the bytes of one."""
    element = context.get_data_type(array.dtype)
    return ir.VectorType(element, lanes), context.get_abi_sizeof(element)


def _at(builder: Any, data: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def _fma(builder: Any, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    signature = ir.FunctionType(z.type, [z.type] * 3)
    name = f"llvm.fmuladd.{suffix(z.type)}"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [x, y, z])


def _over_columns(
    builder: Any,
    columns: ir.Value,
    first: ir.Value,
    count: ir.Value,
    start: list[ir.Value],
    body: Callable[..., list[ir.Value]],
) -> list[ir.Value]:
    """``body(place, weight, values)`` for each of ``count`` columns; ``values`` begin at ``start``.

    Returns the last values.
    """
    before = builder.block
    check, inside, after = (builder.append_basic_block(n) for n in ("column", "taps", "slid"))
    builder.branch(check)
    builder.position_at_end(check)
    index = builder.phi(_WORD)
    index.add_incoming(_WORD(0), before)
    values = []
    for value in start:
        values.append(builder.phi(value.type))
        values[-1].add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    pair = builder.mul(builder.add(first, index), _WORD(2))
    place, weight = (
        builder.load(builder.gep(columns, [builder.add(pair, _WORD(i))])) for i in range(2)
    )
    found = body(place, weight, list(values))
    index.add_incoming(builder.add(index, _WORD(1)), builder.block)
    for phi, value in zip(values, found, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(check)
    builder.position_at_end(after)
    return values


def sliding_sums(height: int, ratio: int, vectors: int, lanes: int) -> Any:
    """``f(x, at, row, columns, first, count, w, start, step, level, out, to, pitch)``.

    Writes vectors ``t < vectors`` to ``out[to + t pitch:]``: ``level`` plus the sums, over the
    columns from ``first`` on and over ``i < height``, of ``w[start + weight + i step]`` times the
    vector of ``x`` at ``at + place + (ratio t + i) row``. Vectors are written in their order.
    """

    @intrinsic
    def tile(
        typingctx: Any, x: Any, at: Any, row: Any, columns: Any, first: Any, count: Any, w: Any,
        start: Any, step: Any, level: Any, out: Any, to: Any, pitch: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, columns, w, out = (
                _data(context, builder, signature, args, i) for i in (0, 3, 6, 10)
            )
            _, at, row, _, first, count, _, start, step, level, _, to, pitch = args
            kind, size = _kind(context, signature.args[0], lanes)

            def taps(place: ir.Value, weight: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                factors, from_ = [], builder.add(start, weight)
                for _ in range(height):
                    factors.append(splat(builder, builder.load(builder.gep(w, [from_])), kind))
                    from_ = builder.add(from_, step)
                here = builder.add(at, place)
                for r in range(ratio * (vectors - 1) + height):
                    if not any(0 <= r - ratio * t < height for t in range(vectors)):
                        continue
                    there = builder.add(here, builder.mul(row, _WORD(r)))
                    given = builder.load(_at(builder, x, there, kind), align=size)
                    for t in range(vectors):
                        if 0 <= r - ratio * t < height:
                            sums[t] = _fma(builder, given, factors[r - ratio * t], sums[t])
                return sums

            begin = [splat(builder, level, kind)] * vectors
            sums = _over_columns(builder, columns, first, count, begin, taps)
            for t, total in enumerate(sums):
                target = builder.add(to, builder.mul(pitch, _WORD(t)))
                builder.store(total, _at(builder, out, target, kind), align=size)
            return context.get_dummy_value()

        n = types.intp
        return types.void(x, n, n, columns, n, n, w, n, n, level, out, n, n), codegen

    return tile


def sliding_dots(height: int, ratio: int, vectors: int, lanes: int) -> Any:
    """``f(x, at, row, columns, first, count, g, begin, pitch, sums, to, step)``: scalar products.

    The vectors of ``g`` at ``begin + t pitch``, for ``t < vectors``, meet those of ``x`` that
    :func:`sliding_sums` would multiply with a weight: the products are added to the vector with the
    number ``to + weight + i step`` of ``sums``.
    """

    @intrinsic
    def tile(
        typingctx: Any, x: Any, at: Any, row: Any, columns: Any, first: Any, count: Any, g: Any,
        begin: Any, pitch: Any, sums: Any, to: Any, step: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, columns, g, sums = (
                _data(context, builder, signature, args, i) for i in (0, 3, 6, 9)
            )
            _, at, row, _, first, count, _, begin, pitch, _, to, step = args
            kind, size = _kind(context, signature.args[0], lanes)
            lines = []
            for t in range(vectors):
                place = builder.add(begin, builder.mul(pitch, _WORD(t)))
                lines.append(builder.load(_at(builder, g, place, kind), align=size))

            def taps(place: ir.Value, weight: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                number, places = builder.add(to, weight), []
                for _ in range(height):
                    places.append(_at(builder, sums, builder.mul(number, _WORD(lanes)), kind))
                    number = builder.add(number, step)
                totals = [builder.load(p, align=size) for p in places]
                here = builder.add(at, place)
                for r in range(ratio * (vectors - 1) + height):
                    if not any(0 <= r - ratio * t < height for t in range(vectors)):
                        continue
                    there = builder.add(here, builder.mul(row, _WORD(r)))
                    given = builder.load(_at(builder, x, there, kind), align=size)
                    for t in range(vectors):
                        i = r - ratio * t
                        if 0 <= i < height:
                            totals[i] = _fma(builder, given, lines[t], totals[i])
                for value, p in zip(totals, places, strict=True):
                    builder.store(value, p, align=size)
                return []

            _over_columns(builder, columns, first, count, [], taps)
            return context.get_dummy_value()

        n = types.intp
        return types.void(x, n, n, columns, n, n, g, n, n, sums, n, n), codegen

    return tile


def _in_steps(
    builder: Any,
    rows: ir.Value,
    count: ir.Value,
    lanes: int,
    masks: tuple[ir.Value, ...],
    do: Callable[..., None],
) -> None:
    """``do(r, p, None)`` for each vector of the first ``count`` elements of each of ``rows`` rows.

    For what is left at its end, fewer than a vector has, it is ``do(r, p, masks)``.
    """
    whole = builder.and_(count, _WORD(-lanes))
    ends = builder.icmp_signed("<", whole, count)
    with builder.if_else(builder.icmp_signed("==", whole, _WORD(0))) as (short, long):
        with short, cgutils.for_range(builder, rows) as loop:
            do(loop.index, _WORD(0), masks)
        with long, cgutils.for_range(builder, rows) as loop:
            r = loop.index
            with cgutils.for_range_slice(builder, _WORD(0), whole, _WORD(lanes)) as (p, _):
                do(r, p, None)
            with builder.if_then(ends):
                do(r, whole, masks)


def _masks(builder: Any, count: ir.Value, step: int, kind: ir.Type) -> tuple[ir.Value, ...]:
    """Of the last ``step`` elements or fewer of ``count``, vector by vector."""
    left = builder.and_(count, _WORD(step - 1))
    return tuple(below(builder, left, first, kind) for first in range(0, step, kind.count))


def padded(lanes: int) -> Any:
    """``f(out, to, pitch, x, at, row, rows, count)``: rows of ``x``, each followed by zeros.

    There are zeros up to the end of its last vector, unless the next row begins before that.
    """

    @intrinsic
    def copy(
        typingctx: Any, out: Any, to: Any, pitch: Any, x: Any, at: Any, row: Any, rows: Any,
        count: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, x = (_data(context, builder, signature, args, i) for i in (0, 3))
            _, to, pitch, _, at, row, rows, count = args
            kind, size = _kind(context, signature.args[0], lanes)

            def move(r: ir.Value, p: ir.Value, masks: Any) -> None:
                place, target = (
                    builder.add(builder.add(first, builder.mul(r, step)), p)
                    for first, step in ((at, row), (to, pitch))
                )
                given = _at(builder, x, place, kind)
                if masks:
                    value = load_some(builder, given, *masks)
                else:
                    value = builder.load(given, align=size)
                builder.store(value, _at(builder, out, target, kind), align=size)

            masks = _masks(builder, count, lanes, kind)
            _in_steps(builder, rows, count, lanes, masks, move)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, x, n, n, n, n), codegen

    return copy


def separated(lanes: int) -> Any:
    """``f(out, to, other, pitch, x, at, row, rows, count)``: elements by turns to two places.

    Of rows as :func:`padded` has them, each of which becomes two.
    """

    @intrinsic
    def copy(
        typingctx: Any, out: Any, to: Any, other: Any, pitch: Any, x: Any, at: Any, row: Any,
        rows: Any, count: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, x = (_data(context, builder, signature, args, i) for i in (0, 4))
            _, to, other, pitch, _, at, row, rows, count = args
            kind, size = _kind(context, signature.args[0], lanes)
            places = ir.VectorType(ir.IntType(32), lanes)

            def move(r: ir.Value, p: ir.Value, masks: Any) -> None:
                both = []
                start = builder.add(builder.add(at, builder.mul(r, row)), p)
                for i in range(2):
                    given = _at(builder, x, builder.add(start, _WORD(i * lanes)), kind)
                    if masks:
                        both.append(load_some(builder, given, masks[i]))
                    else:
                        both.append(builder.load(given, align=size))
                begin = builder.add(builder.ashr(p, _WORD(1)), builder.mul(r, pitch))
                for side, place in enumerate((to, other)):
                    turns = ir.Constant(places, list(range(side, 2 * lanes, 2)))
                    target = _at(builder, out, builder.add(place, begin), kind)
                    builder.store(builder.shuffle_vector(*both, turns), target, align=size)

            masks = _masks(builder, count, 2 * lanes, kind)
            _in_steps(builder, rows, count, 2 * lanes, masks, move)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, n, x, n, n, n, n), codegen

    return copy


def interleaved(lanes: int) -> Any:
    """``f(out, to, pitch, x, at, other, row, rows, count)``: by turns from two places of ``x``."""

    @intrinsic
    def copy(
        typingctx: Any, out: Any, to: Any, pitch: Any, x: Any, at: Any, other: Any, row: Any,
        rows: Any, count: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, x = (_data(context, builder, signature, args, i) for i in (0, 3))
            _, to, pitch, _, at, other, row, rows, count = args
            kind, size = _kind(context, signature.args[0], lanes)
            places = ir.VectorType(ir.IntType(32), lanes)

            def move(r: ir.Value, p: ir.Value, masks: Any) -> None:
                begin = builder.add(builder.ashr(p, _WORD(1)), builder.mul(r, row))
                both = [
                    builder.load(_at(builder, x, builder.add(place, begin), kind), align=size)
                    for place in (at, other)
                ]
                start = builder.add(builder.add(to, builder.mul(r, pitch)), p)
                for i in range(2):
                    turns = [(i * lanes + k) // 2 + lanes * (k % 2) for k in range(lanes)]
                    value = builder.shuffle_vector(*both, ir.Constant(places, turns))
                    target = _at(builder, out, builder.add(start, _WORD(i * lanes)), kind)
                    if masks:
                        store_some(builder, value, target, masks[i])
                    else:
                        builder.store(value, target, align=size)

            masks = _masks(builder, count, 2 * lanes, kind)
            _in_steps(builder, rows, count, 2 * lanes, masks, move)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, x, n, n, n, n, n), codegen

    return copy


def stored(lanes: int) -> Any:
    """``f(out, to, pitch, x, at, row, whole, rows, count)``: rows that are shorter than a vector.

    Of the first ``whole`` ones, all of the vector is written.
    """

    @intrinsic
    def copy(
        typingctx: Any, out: Any, to: Any, pitch: Any, x: Any, at: Any, row: Any, whole: Any,
        rows: Any, count: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, x = (_data(context, builder, signature, args, i) for i in (0, 3))
            _, to, pitch, _, at, row, whole, rows, count = args
            kind, size = _kind(context, signature.args[0], lanes)
            mask = below(builder, count, 0, kind)
            for first, stop, some in ((_WORD(0), whole, False), (whole, rows, True)):
                with cgutils.for_range_slice(builder, first, stop, _WORD(1)) as (r, _):
                    place = builder.add(at, builder.mul(r, row))
                    value = builder.load(_at(builder, x, place, kind), align=size)
                    target = builder.add(to, builder.mul(r, pitch))
                    target = _at(builder, out, target, kind)
                    if some:
                        store_some(builder, value, target, mask)
                    else:
                        builder.store(value, target, align=size)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, x, n, n, n, n, n), codegen

    return copy


def total_of(lanes: int) -> Any:
    """``f(x, at)``: the sum of the elements of a vector."""

    @intrinsic
    def total(typingctx: Any, x: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind, size = _kind(context, signature.args[0], lanes)
            place = _at(builder, _data(context, builder, signature, args, 0), args[1], kind)
            return across(builder, builder.load(place, align=size))

        return x.dtype(x, types.intp), codegen

    return total
