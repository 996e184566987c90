"""Tiles of products of bytes that leave as bytes: sums are brought back while in registers.

Sums begin with what is added to them, and end by :func:`requantization.rounded`. What is narrowed
are four vectors at a time: two rows of two vectors of columns, or 16 channels of four vectors.
``COLUMN_VECTORS`` vectors of parameters belong to a vector of columns.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .atomics import address_of
from .building import compiled
from .dots import add_bytes, vector_bytes
from .intrinsics import full_vectors
from .requantization import (
    COLUMN_VECTORS,
    Columns,
    bytes_of,
    columns_at,
    in_order,
    limits_of,
    rounded,
)
from .spans import copy_apart, part
from .tiles import accumulated, heights, panel_width

__all__ = ["column_tile", "depthwise_tile", "row_multiplier", "window_multiplier"]

_WORD = ir.IntType(64)
_OCTET, _INT = ir.IntType(8), ir.IntType(32)


def _store(builder: Any, octets: ir.Value, first: int, count: int, address: ir.Value) -> None:
    """Write ``count`` of the bytes, from ``first`` on."""
    places = ir.Constant(ir.VectorType(_INT, count), list(range(first, first + count)))
    some = builder.shuffle_vector(octets, octets, places)
    builder.store(some, builder.inttoptr(address, some.type.as_pointer())).align = 1


@memoized
def _tile(height: int, cut: bool) -> Any:
    """Some rows times a panel, as bytes.

    Addresses, and distances in bytes; see :func:`tiles.accumulated`.
    """

    @intrinsic
    def tile(
        typingctx: Any, depth: Any, a: Any, a_row: Any, segment: Any, jump: Any, panel: Any,
        columns: Any, limits: Any, out: Any, out_row: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_row, segment, jump, panel, columns, limits, out, out_row = args
            size = vector_bytes()
            both = [
                columns_at(builder, builder.add(columns, _WORD(half * COLUMN_VECTORS * size)))
                for half in range(2)
            ]
            rows = [a, *(builder.add(a, builder.mul(a_row, _WORD(i))) for i in range(1, height))]
            sums = accumulated(
                builder, "B", [v.start for v in both] * height, depth, rows, _WORD(4), panel,
                _WORD(2 * size), (segment, jump) if cut else None,
            )  # fmt: skip
            limit = limits_of(builder, limits)
            values = [rounded(builder, total, both[i % 2]) for i, total in enumerate(sums)]
            for i in range(0, height, 2):
                two = values[2 * i : 2 * i + 4]
                octets = in_order(builder, bytes_of(builder, (two + two)[:4], limit))
                for j in range(min(2, height - i)):
                    place = builder.add(out, builder.mul(out_row, _WORD(i + j)))
                    _store(builder, octets, j * size // 2, size // 2, place)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), codegen

    return tile


def _with_edge(of_panel: Any) -> Any:
    """``multiply`` of all panels, whose last one may have fewer columns than there is room for."""
    width = panel_width("B")
    block = 2 * COLUMN_VECTORS * vector_bytes()

    @compiled()
    def multiply(
        a, at, row, count, words, segments, pitch, packed, packed_at, columns, used, parameters,
        limits, out, to, out_row, edge,
    ):  # fmt: skip
        full_vectors()
        first, depth, jump = address_of(a) + at, words * segments, pitch - 4 * words
        for k in range(0, columns, width):
            panel = address_of(packed) + 4 * (packed_at + k * depth)
            own = address_of(parameters) + k // width * block
            rest = used - k
            if rest >= width:
                target = address_of(out) + to + k
                of_panel(first, row, count, depth, words, jump, panel, own, limits, target, out_row)
                continue
            target = address_of(edge)
            of_panel(first, row, count, depth, words, jump, panel, own, limits, target, width)
            for i in range(count):
                place = to + i * out_row + k
                line = part(edge, i * width, i * width + rest)
                copy_apart(part(out, place, place + rest), line)

    return multiply


@memoized
def row_multiplier() -> Any:
    """Rows times panels, as bytes.

    ``multiply(a, at, row, count, words, segments, pitch, packed, packed_at, columns, used,
    parameters, limits, out, to, out_row, edge)``: the first of the ``count`` rows begins at the
    byte ``at`` of ``a``, each further one ``row`` bytes later; it has ``words`` of 32 bits, and
    ``segments`` is 1. ``columns`` fill panels, of which those from ``used`` on are not wanted.
    ``parameters`` begin with those of the first panel, the result at the byte ``to`` of ``out``.
    ``edge`` has room for the rows of a panel.
    """
    tallest, *shorter = heights()
    second, third, fourth = (*shorter, 1)[:3]
    t1, t2, t3, t4 = (_tile(height, False) for height in (tallest, second, third, fourth))

    @compiled()
    def of_panel(a, row, count, depth, words, jump, panel, own, limits, out, out_row):
        full_vectors()
        left = count
        while left >= tallest:
            t1(depth, a, row, 0, 0, panel, own, limits, out, out_row)
            a, out, left = a + tallest * row, out + tallest * out_row, left - tallest
        if left >= second:
            t2(depth, a, row, 0, 0, panel, own, limits, out, out_row)
            a, out, left = a + second * row, out + second * out_row, left - second
        if left >= third:
            t3(depth, a, row, 0, 0, panel, own, limits, out, out_row)
            a, out, left = a + third * row, out + third * out_row, left - third
        if left >= fourth:
            t4(depth, a, row, 0, 0, panel, own, limits, out, out_row)

    return _with_edge(of_panel)


@memoized
def window_multiplier() -> Any:
    """As :func:`row_multiplier`, with rows that are windows, which stay where they are.

    A window has ``segments`` of ``words`` of 4 bytes, which begin ``pitch`` bytes apart. Lines of
    an image are short: tiles are of nearly the same height, not tall ones and a rest.
    """
    # With 8 rows, addresses are moved out of the registers: a fourth of the time.
    most = min(heights()[0], 7)
    tiles = [_tile(height, True) for height in range(1, most + 1)]
    t1, t2, t3, t4 = tiles[:4]
    t5, t6, t7 = tiles[4:] if most == 7 else tiles[:3]

    @compiled()
    def of_panel(a, row, count, depth, words, jump, panel, own, limits, out, out_row):
        full_vectors()
        pieces = (count + most - 1) // most
        for i in range(pieces):
            height = count // pieces + (i < count % pieces)
            if height == 7:
                t7(depth, a, row, words, jump, panel, own, limits, out, out_row)
            elif height == 6:
                t6(depth, a, row, words, jump, panel, own, limits, out, out_row)
            elif height == 5:
                t5(depth, a, row, words, jump, panel, own, limits, out, out_row)
            elif height == 4:
                t4(depth, a, row, words, jump, panel, own, limits, out, out_row)
            elif height == 3:
                t3(depth, a, row, words, jump, panel, own, limits, out, out_row)
            elif height == 2:
                t2(depth, a, row, words, jump, panel, own, limits, out, out_row)
            else:
                t1(depth, a, row, words, jump, panel, own, limits, out, out_row)
            a, out = a + height * row, out + height * out_row

    return _with_edge(of_panel)


def _merged(builder: Any, a: Any, b: Any) -> list[Any]:
    """The elements of two vectors by turns, separately in every 16 bytes: low halves, high ones."""
    count = a.type.count
    each = 16 * 8 // a.type.element.width
    kind = ir.VectorType(_INT, count)
    found = []
    for half in range(2):
        places = []
        for first in range(half * each // 2, count, each):
            for k in range(first, first + each // 2):
                places += [k, count + k]
        found.append(builder.shuffle_vector(a, b, ir.Constant(kind, places)))
    return found


def _quads(builder: Any, taps: list[ir.Value]) -> list[ir.Value]:
    """Four vectors of bytes by turns: in every 16 bytes, four channels for each of four vectors.

    :func:`requantization.bytes_of` brings them into their order again.
    """
    wide = vector_bytes()
    pairs, words = ir.VectorType(ir.IntType(16), wide // 2), ir.VectorType(_INT, wide // 4)
    a, b, c, d = taps
    left = [builder.bitcast(v, pairs) for v in _merged(builder, a, b)]
    right = [builder.bitcast(v, pairs) for v in _merged(builder, c, d)]
    found = [v for two in zip(left, right, strict=True) for v in _merged(builder, *two)]
    return [builder.bitcast(v, words) for v in found]


def _vector(builder: Any, address: ir.Value, element: ir.Type) -> ir.Value:
    kind = ir.VectorType(element, vector_bytes() * 8 // element.width)
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _channels_at(builder: Any, columns: ir.Value) -> list[Columns]:
    """The parameters of as many channels as a vector has bytes."""
    size = COLUMN_VECTORS * vector_bytes()
    return [columns_at(builder, builder.add(columns, _WORD(q * size))) for q in range(4)]


def _store_place(
    builder: Any, sums: list[ir.Value], four: list[Columns], limit: tuple[ir.Value, ...],
    address: ir.Value,
) -> None:  # fmt: skip
    """Write the bytes of the channels of a place."""
    values = [rounded(builder, *both) for both in zip(sums, four, strict=True)]
    _store(builder, bytes_of(builder, values, limit), 0, vector_bytes(), address)


@memoized
def depthwise_tile(places: int) -> Any:
    """``tile(quads, x, step, offsets, weights, columns, limits, out, pitch)``: channels alone.

    Of as many channels as a vector has bytes, for some places ``step`` bytes apart: the sums over
    the taps, four at a time, of bytes at ``x`` plus an offset times signed ones of ``weights``:
    four vectors for each quad, in the order in which :func:`_quads` puts the channels, as
    ``columns`` are, too. The bytes of the next place are ``pitch`` further. All but ``quads`` and
    ``limits`` are addresses and distances in bytes. It takes :func:`dots.has_quads`.
    """
    wide = vector_bytes()

    @intrinsic
    def tile(
        typingctx: Any, quads: Any, x: Any, step: Any, offsets: Any, weights: Any, columns: Any,
        limits: Any, out: Any, pitch: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            quads, x, step, offsets, weights, columns, limits, out, pitch = args
            four = _channels_at(builder, columns)
            sums = [
                [cgutils.alloca_once_value(builder, v.start) for v in four] for _ in range(places)
            ]
            with cgutils.for_range(builder, quads) as loop:
                place = builder.add(weights, builder.mul(loop.index, _WORD(4 * wide)))
                factors = [
                    _vector(builder, builder.add(place, _WORD(q * wide)), _INT) for q in range(4)
                ]
                first = builder.add(offsets, builder.mul(loop.index, _WORD(32)))
                taps = [
                    builder.load(
                        builder.inttoptr(builder.add(first, _WORD(8 * j)), _WORD.as_pointer())
                    )
                    for j in range(4)
                ]
                for p in range(places):
                    base = builder.add(x, builder.mul(step, _WORD(p)))
                    given = [_vector(builder, builder.add(base, tap), _OCTET) for tap in taps]
                    for q, quad in enumerate(_quads(builder, given)):
                        total = builder.load(sums[p][q])
                        builder.store(add_bytes(builder, quad, factors[q], total), sums[p][q])
            limit = limits_of(builder, limits)
            for p in range(places):
                target = builder.add(out, builder.mul(pitch, _WORD(p)))
                _store_place(builder, [builder.load(s) for s in sums[p]], four, limit, target)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), codegen

    return tile


@memoized
def column_tile(places: int, wide: int, stride: int) -> Any:
    """``tile(x, aside, drop, rows, weights, columns, limits, out, pitch)``: as ``depthwise_tile``.

    Of kernels of three or four ``rows`` and ``wide`` columns, which begin ``aside`` bytes apart as
    rows begin ``drop`` bytes apart; places are ``stride`` columns apart. A quad is a column of the
    kernel, so that what is merged for one place serves its neighbours.
    """
    size = vector_bytes()

    @intrinsic
    def tile(
        typingctx: Any, x: Any, aside: Any, drop: Any, rows: Any, weights: Any, columns: Any,
        limits: Any, out: Any, pitch: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, aside, drop, rows, weights, columns, limits, out, pitch = args
            four = _channels_at(builder, columns)
            sums = [[v.start for v in four] for _ in range(places)]
            limit = limits_of(builder, limits)
            # The weights of a fourth row that is not there are 0.
            last = builder.sub(rows, _WORD(1))
            downs = [builder.mul(drop, n) for n in (_WORD(0), _WORD(1), _WORD(2), last)]
            for column in range((places - 1) * stride + wide):
                at = builder.add(x, builder.mul(aside, _WORD(column)))
                taps = [_vector(builder, builder.add(at, down), _OCTET) for down in downs]
                quads = _quads(builder, taps)
                for p in range(places):
                    j = column - p * stride
                    if not 0 <= j < wide:
                        continue
                    for q in range(4):
                        place = builder.add(weights, _WORD((4 * j + q) * size))
                        factor = _vector(builder, place, _INT)
                        sums[p][q] = add_bytes(builder, quads[q], factor, sums[p][q])
                    if j == wide - 1:
                        target = builder.add(out, builder.mul(pitch, _WORD(p)))
                        _store_place(builder, sums[p], four, limit, target)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), codegen

    return tile
