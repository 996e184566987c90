"""Products of small blocks of matrices, in registers: what a recurrence does at every step.

A matrix that many steps multiply with is *packed* once: into panels of ``panel_width`` columns,
each of which holds its rows one after the other. A tile is a few rows of the result times one
panel's columns; it stays in vector registers while the inner dimension is run through. OpenBLAS
packs at every call, and chooses kernels without AVX-512 on processors that it does not know.

Of bfloat16 (``"E"``), two neighbours along the inner dimension make one element of 32 bits, in the
rows of ``a`` and in panels, and the depth counts these pairs; results are float32. Of bytes
(``"B"``), as many do as :func:`dots.add_bytes` takes at once; results are int32.

Each element of a result is one chain of fused multiply-adds along the inner dimension, whatever
tile it is in: a result does not depend on how the rows are shared among threads.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .atomics import address_of, array_at
from .building import compiled
from .dots import add_bytes, add_pairs, vector_bytes
from .elementary.inlined import inlined
from .intrinsics import full_vectors
from .spans import copy, fill, part

__all__ = [
    "depthwise_tile",
    "interleave",
    "multiplier",
    "packer",
    "pair_packer",
    "panel_width",
    "vector_bytes",
    "window_multiplier",
]

_BLOCK = 16  # elements of a row that packing reads at once
_WORD = ir.IntType(64)
_FLOAT, _DOUBLE, _INT = ir.FloatType(), ir.DoubleType(), ir.IntType(32)
#: elements of the factors, elements of the results, and their bytes
_ITEM = {
    "f": (_FLOAT, _FLOAT, 4),
    "d": (_DOUBLE, _DOUBLE, 8),
    "E": (_INT, _FLOAT, 4),
    "B": (_INT, _INT, 4),
}


def panel_width(char: str) -> int:
    """The columns of a panel: two vectors."""
    return 2 * vector_bytes() // _ITEM[char][2]


def _heights() -> tuple[int, ...]:
    """The rows of tiles: accumulators for the first fill the registers."""
    return (8, 4, 2, 1) if vector_bytes() == 64 else (4, 2, 1)


def _fused(builder: Any, char: str, x: Any, y: Any, total: Any) -> Any:
    """``total`` plus the products of two vectors."""
    if char == "E":
        return add_pairs(builder, x, y, total)
    if char == "B":
        return add_bytes(builder, x, y, total)
    kind = total.type
    function = builder.module.declare_intrinsic(
        f"llvm.fmuladd.v{kind.count}f{8 * _ITEM[char][2]}",
        fnty=ir.FunctionType(kind, [kind] * 3),
    )
    return builder.call(function, [x, y, total])


@memoized
def _tile(char: str, height: int, start: bool, cut: bool = False) -> Any:
    """``c_out = c_in + a @ panel``, or without ``c_in`` where ``start`` is False.

    Addresses, each followed by the distance of rows in bytes; ``a_step`` is that of the elements of
    a row of ``a``, which is not so close where it lies there as its transposed. *cut*: a row of
    ``a`` goes on ``jump`` bytes further after each ``segment`` of elements.
    """
    item, result, size = _ITEM[char]
    lanes = vector_bytes() // size
    given, vector = ir.VectorType(item, lanes), ir.VectorType(result, lanes)

    @intrinsic
    def tile(
        typingctx: Any,
        depth: Any,
        a: Any,
        a_row: Any,
        a_step: Any,
        segment: Any,
        jump: Any,
        panel: Any,
        panel_row: Any,
        c_in: Any,
        c_in_row: Any,
        c_out: Any,
        c_out_row: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_row, a_step, segment, jump, panel, panel_row = args[:8]
            c_in, c_in_row, c_out, c_out_row = args[8:]
            splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)

            def vector_at(address: Any, kind: Any = vector) -> Any:
                return builder.inttoptr(address, kind.as_pointer())

            def place(base: Any, row: Any, i: int, half: int) -> Any:
                at = builder.add(base, builder.mul(row, _WORD(i))) if i else base
                return builder.add(at, _WORD(half * lanes * size)) if half else at

            sums = []
            for i in range(height):
                for half in range(2):
                    if start:
                        found = builder.load(vector_at(place(c_in, c_in_row, i, half)))
                        found.align = size
                    else:
                        found = ir.Constant(vector, None)
                    sums.append(found)
            rows = [place(a, a_row, i, 0) for i in range(height)]
            before = builder.block
            body, after = (builder.append_basic_block(name) for name in ("tile", "stored"))
            builder.branch(body)
            builder.position_at_end(body)
            k = builder.phi(_WORD)
            k.add_incoming(_WORD(0), before)
            totals = []
            for found in sums:
                phi = builder.phi(vector)
                phi.add_incoming(found, before)
                totals.append(phi)
            if cut:
                offset, place_in_segment = builder.phi(_WORD), builder.phi(_WORD)
                offset.add_incoming(_WORD(0), before)
                place_in_segment.add_incoming(_WORD(0), before)
            at = builder.add(panel, builder.mul(k, panel_row))
            columns = []
            for half in range(2):
                place_of_half = builder.add(at, _WORD(half * lanes * size))
                loaded = builder.load(vector_at(place_of_half, given))
                loaded.align = size
                columns.append(loaded)
            if not cut:
                offset = builder.mul(k, a_step)
            for i in range(height):
                pointer = builder.inttoptr(builder.add(rows[i], offset), item.as_pointer())
                one = builder.insert_element(
                    ir.Constant(given, ir.Undefined), builder.load(pointer), ir.IntType(32)(0)
                )
                factor = builder.shuffle_vector(one, one, splat)
                for half in range(2):
                    phi = totals[2 * i + half]
                    phi.add_incoming(_fused(builder, char, factor, columns[half], phi), body)
            following = builder.add(k, _WORD(1))
            k.add_incoming(following, body)
            if cut:
                moved = builder.add(place_in_segment, _WORD(1))
                ends = builder.icmp_signed("==", moved, segment)
                place_in_segment.add_incoming(builder.select(ends, _WORD(0), moved), body)
                stepped = builder.add(offset, a_step)
                jumped = builder.add(stepped, jump)
                offset.add_incoming(builder.select(ends, jumped, stepped), body)
            builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
            builder.position_at_end(after)
            for i in range(height):
                for half in range(2):
                    last = totals[2 * i + half].incomings[1][0]
                    stored = builder.store(last, vector_at(place(c_out, c_out_row, i, half)))
                    stored.align = size
            return context.get_dummy_value()

        return types.void(*[types.intp] * 12), codegen

    return tile


@memoized
def _turner(char: str) -> tuple[Any, int]:
    """``turn(source, source_row, target, target_row)`` and the rows and columns that it transposes.

    Addresses, each followed by the distance of rows in bytes. Vectors half as far apart as there
    are, merged by turns, are transposed once that is done as often as their length can be halved.
    """
    item, _, size = _ITEM[char]
    lanes = vector_bytes() // size
    vector = ir.VectorType(item, lanes)
    places = ir.VectorType(ir.IntType(32), lanes)
    merged = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
    masks = [ir.Constant(places, merged[:lanes]), ir.Constant(places, merged[lanes:])]

    @intrinsic
    def turn(typingctx: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def at(base: Any, row: Any, i: int) -> Any:
                address = builder.add(base, builder.mul(row, _WORD(i)))
                return builder.inttoptr(address, vector.as_pointer())

            source, source_row, target, target_row = args
            rows = []
            for i in range(lanes):
                rows.append(builder.load(at(source, source_row, i)))
                rows[i].align = size
            for _ in range(lanes.bit_length() - 1):
                rows = [
                    builder.shuffle_vector(rows[i], rows[i + lanes // 2], mask)
                    for i in range(lanes // 2)
                    for mask in masks
                ]
            for i, row in enumerate(rows):
                builder.store(row, at(target, target_row, i)).align = size
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), codegen

    return turn, lanes


@memoized
def packer(char: str, turned: bool) -> Any:
    """``pack(matrix, at, row, depth, columns, packed, packed_at)``: panels of (depth, columns).

    The matrix begins at the element ``at``, its rows are ``row`` elements apart; ``turned``: it
    lies there as its transposed. What is missing of the last panel is filled with zeros.
    """
    width = panel_width(char)
    zero = np.float32(0) if char == "f" else np.float64(0)
    size = _ITEM[char][2]
    turn, side = _turner(char)

    @compiled()
    def pack(matrix, at, row, depth, columns, packed, packed_at):
        full_vectors()
        for p in range((columns + width - 1) // width):
            first = p * width
            used = min(width, columns - first)
            base = packed_at + first * depth
            if used < width:
                fill(part(packed, base, base + width * depth), zero)
            if turned:
                for start in range(0, depth, side):
                    whole = used // side * side if start + side <= depth else 0
                    for j in range(0, whole, side):
                        turn(
                            address_of(matrix) + (at + (first + j) * row + start) * size,
                            row * size,
                            address_of(packed) + (base + start * width + j) * size,
                            width * size,
                        )
                    stop = min(depth, start + side)
                    for j in range(whole, used):
                        source = at + (first + j) * row
                        for k in range(start, stop):
                            packed[base + k * width + j] = matrix[source + k]
            else:
                for k in range(depth):
                    source, target = at + k * row + first, base + k * width
                    if used == width:
                        copy(
                            part(packed, target, target + width),
                            part(matrix, source, source + width),
                        )
                    else:
                        copy(
                            part(packed, target, target + used), part(matrix, source, source + used)
                        )

    return pack


@compiled()
def interleave(line, matrix, at, row, both):
    """``line`` takes by turns numbers from ``at`` on and those a ``row`` further, 0 if not both."""
    full_vectors()
    count = line.size // 2
    first = part(matrix, at, at + count)
    if both:
        second = part(matrix, at + row, at + row + count)
        for i in range(count):
            line[2 * i], line[2 * i + 1] = first[i], second[i]
    else:
        for i in range(count):
            line[2 * i], line[2 * i + 1] = first[i], np.uint16(0)


@memoized
def pair_packer(turned: bool) -> Any:
    """``packer`` for bfloat16 in uint16: ``depth`` counts numbers, ``packed_at`` pairs.

    A number that is missing of the last pair is 0.
    """
    width = panel_width("E")
    zero = np.uint16(0)

    @compiled()
    def pack(matrix, at, row, depth, columns, packed, packed_at):
        full_vectors()
        pairs = (depth + 1) // 2
        for p in range((columns + width - 1) // width):
            first = p * width
            used = min(width, columns - first)
            base = packed_at + first * pairs
            whole = part(packed, 2 * base, 2 * (base + width * pairs))
            if used < width or depth % 2:
                fill(whole, zero)
            if turned:
                words = array_at(address_of(whole), width * pairs, np.uint32)
                for start in range(0, depth // 2, _BLOCK):
                    stop = min(depth // 2, start + _BLOCK)
                    for j in range(used):
                        line = at + (first + j) * row
                        source = array_at(
                            address_of(part(matrix, line, line + depth)), depth // 2, np.uint32
                        )
                        for k in range(start, stop):
                            words[k * width + j] = source[k]
                if depth % 2:
                    for j in range(used):
                        last = matrix[at + (first + j) * row + depth - 1]
                        whole[2 * ((pairs - 1) * width + j)] = last
            else:
                for k in range(0, depth, 2):
                    line = part(whole, k * width, k * width + 2 * used)
                    interleave(line, matrix, at + k * row + first, row, k + 1 < depth)

    return pack


@memoized
def window_multiplier() -> Any:
    """``total = windows @ panels`` of bytes, where the windows' rows stay where they are.

    The first window begins at the byte ``at`` of ``a``, each further one ``row`` bytes later. Its
    ``segments`` have ``words`` of 4 bytes each and begin ``pitch`` bytes apart; panels are full.
    Lines of an image are short: tiles are of nearly the same height, not tall ones and a rest.
    """
    # With 8 rows, addresses are moved out of the registers: a fourth of the time.
    width, most = panel_width("B"), min(_heights()[0], 7)
    tiles = [_tile("B", height, False, True) for height in range(1, most + 1)]
    t1, t2, t3, t4 = tiles[:4]
    t5, t6, t7 = tiles[4:] if most == 7 else tiles[:3]

    @compiled()
    def multiply(
        a, at, row, count, words, segments, pitch, packed, packed_at, columns, total
    ):  # fmt: skip
        full_vectors()
        first, target, c_row = address_of(a) + at, address_of(total), 4 * columns
        depth, jump, p_row = words * segments, pitch - 4 * words, 4 * width
        pieces = (count + most - 1) // most
        for k in range(0, columns, width):
            panel, c, x = address_of(packed) + 4 * (packed_at + k * depth), target + 4 * k, first
            for i in range(pieces):
                height = count // pieces + (i < count % pieces)
                if height == 7:
                    t7(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                elif height == 6:
                    t6(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                elif height == 5:
                    t5(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                elif height == 4:
                    t4(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                elif height == 3:
                    t3(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                elif height == 2:
                    t2(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                else:
                    t1(depth, x, row, 4, words, jump, panel, p_row, c, 0, c, c_row)
                x, c = x + height * row, c + height * c_row

    return multiply


def _merged(builder: Any, a: Any, b: Any) -> list[Any]:
    """The elements of two vectors by turns, separately in every 16 bytes: low halves, high ones."""
    count = a.type.count
    each = 16 * 8 // a.type.element.width
    kind = ir.VectorType(ir.IntType(32), count)
    found = []
    for half in range(2):
        places = []
        for first in range(half * each // 2, count, each):
            for k in range(first, first + each // 2):
                places += [k, count + k]
        found.append(builder.shuffle_vector(a, b, ir.Constant(kind, places)))
    return found


def _in_order(builder: Any, sums: list[Any]) -> list[Any]:
    """Undo of four vectors what :func:`_merged` did twice: quarters of 16 bytes in their order."""
    count = sums[0].type.count
    pieces = count // 4  # of four numbers each, in a vector
    found = []
    for v in range(4):
        joined = []
        for t in range(v * pieces, (v + 1) * pieces, 2):
            places = [
                part * count + 4 * (piece // 4) + k
                for part, piece in enumerate((t, t + 1))
                for k in range(4)
            ]
            kind = ir.VectorType(ir.IntType(32), 8)
            pair = ir.Constant(kind, places)
            joined.append(builder.shuffle_vector(sums[t % 4], sums[(t + 1) % 4], pair))
        if len(joined) == 2:
            every = ir.Constant(ir.VectorType(ir.IntType(32), 16), list(range(16)))
            joined = [builder.shuffle_vector(joined[0], joined[1], every)]
        found.append(joined[0])
    return found


@memoized
def depthwise_tile(places: int) -> Any:
    """``tile(quads, x, step, offsets, weights, out, pitch)``: channels that are each alone.

    Of as many channels as a vector has bytes, for some places ``step`` bytes apart: the sums over
    the taps, four at a time, of bytes at ``x`` plus an offset times signed ones of ``weights``:
    four vectors for each quad, in the order in which :func:`_merged` puts the channels. Sums are
    32 bits wide, those of the next place ``pitch`` bytes further. All but ``quads`` are addresses
    and distances in bytes. It takes :func:`dots.has_quads`.
    """
    wide = vector_bytes()
    octets, words = ir.VectorType(ir.IntType(8), wide), ir.VectorType(_INT, wide // 4)
    pairs = ir.VectorType(ir.IntType(16), wide // 2)

    @intrinsic
    def tile(
        typingctx: Any, quads: Any, x: Any, step: Any, offsets: Any, weights: Any, out: Any,
        pitch: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            quads, x, step, offsets, weights, out, pitch = args

            def load(address: Any, kind: Any) -> Any:
                found = builder.load(builder.inttoptr(address, kind.as_pointer()))
                found.align = 1
                return found

            zero = ir.Constant(words, [0] * words.count)
            sums = [
                [cgutils.alloca_once_value(builder, zero) for _ in range(4)] for _ in range(places)
            ]
            with cgutils.for_range(builder, quads) as loop:
                place = builder.add(weights, builder.mul(loop.index, _WORD(4 * wide)))
                factors = [load(builder.add(place, _WORD(q * wide)), words) for q in range(4)]
                first = builder.add(offsets, builder.mul(loop.index, _WORD(32)))
                taps = [load(builder.add(first, _WORD(8 * j)), _WORD) for j in range(4)]
                for p in range(places):
                    base = builder.add(x, builder.mul(step, _WORD(p)))
                    a, b, c, d = (load(builder.add(base, tap), octets) for tap in taps)
                    left = [builder.bitcast(v, pairs) for v in _merged(builder, a, b)]
                    right = [builder.bitcast(v, pairs) for v in _merged(builder, c, d)]
                    quad = [v for two in zip(left, right) for v in _merged(builder, *two)]
                    for q in range(4):
                        total = builder.load(sums[p][q])
                        given = builder.bitcast(quad[q], words)
                        builder.store(add_bytes(builder, given, factors[q], total), sums[p][q])
            for p in range(places):
                base = builder.add(out, builder.mul(pitch, _WORD(p)))
                ordered = _in_order(builder, [builder.load(s) for s in sums[p]])
                for v, vector in enumerate(ordered):
                    address = builder.add(base, _WORD(v * wide))
                    builder.store(vector, builder.inttoptr(address, words.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), codegen

    return tile


@memoized
def multiplier(char: str, start: bool) -> Any:
    """``c_out = c_in + a @ matrix`` for some rows; without ``c_in`` where ``start`` is False.

    Of each array, there is the element at which the rows begin, and of ``a`` and ``c_in`` how far
    they are apart; those of ``c_out`` have no gaps. ``a_step`` is how far the elements of a row of
    ``a`` are apart. ``edge`` has room for ``rows`` of one panel: of
    a panel that is not full, columns are copied in and out.
    """
    width = panel_width(char)
    size = _ITEM[char][2]
    tallest, *shorter = _heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first, second, third, fourth = (_tile(char, height, start) for height in (tallest, h2, h3, h4))

    @inlined
    def column(a, row, step, rows, depth, panel, panel_row, c_in, in_row, c_out, out_row):
        left = rows
        while left >= tallest:
            first(depth, a, row, step, 0, 0, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + tallest * row, c_in + tallest * in_row, c_out + tallest * out_row
            left -= tallest
        if left >= h2:
            second(depth, a, row, step, 0, 0, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h2 * row, c_in + h2 * in_row, c_out + h2 * out_row
            left -= h2
        if left >= h3:
            third(depth, a, row, step, 0, 0, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h3 * row, c_in + h3 * in_row, c_out + h3 * out_row
            left -= h3
        if left >= h4:
            fourth(depth, a, row, step, 0, 0, panel, panel_row, c_in, in_row, c_out, out_row)

    @compiled()
    def multiply(
        a, a_at, a_row, a_step, rows, depth, packed, packed_at, columns, c_in, in_at, in_row, c_out,
        out_at, edge, edge_at,
    ):  # fmt: skip
        full_vectors()
        full = columns // width
        rest = columns - full * width
        left, left_row, step = address_of(a) + a_at * size, a_row * size, a_step * size
        source, source_row = address_of(c_in) + in_at * size, in_row * size
        target, target_row = address_of(c_out) + out_at * size, columns * size
        panels, panel_row = address_of(packed) + packed_at * size, width * size
        for p in range(full):
            shift = p * panel_row
            panel = panels + shift * depth
            column(left, left_row, step, rows, depth, panel, panel_row, source + shift, source_row,
                   target + shift, target_row)  # fmt: skip
        if rest:
            done = full * width
            for r in range(rows):
                for j in range(rest):
                    edge[edge_at + r * width + j] = c_in[in_at + r * in_row + done + j]
            at = address_of(edge) + edge_at * size
            panel = panels + full * panel_row * depth
            column(
                left, left_row, step, rows, depth, panel, panel_row, at, panel_row, at, panel_row
            )
            for r in range(rows):
                for j in range(rest):
                    c_out[out_at + r * columns + done + j] = edge[edge_at + r * width + j]

    return multiply
