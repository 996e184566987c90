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
from numba.extending import intrinsic

from .atomics import address_of, array_at
from .building import compiled
from .dots import add_bytes, add_pairs, vector_bytes
from .elementary.inlined import inlined
from .intrinsics import full_vectors
from .spans import copy, fill, part

__all__ = [
    "accumulated",
    "heights",
    "interleave",
    "multiplier",
    "packer",
    "pair_packer",
    "panel_width",
    "transposed",
    "turner",
    "vector_bytes",
]

_ROWS = 8  # rows that it reads at once
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


def heights() -> tuple[int, ...]:
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


def accumulated(
    builder: Any,
    char: str,
    sums: list[ir.Value],
    depth: ir.Value,
    rows: list[ir.Value],
    step: ir.Value,
    panel: ir.Value,
    panel_row: ir.Value,
    cut: tuple[ir.Value, ir.Value] | None = None,
    gathered: bool = False,
) -> list[ir.Value]:
    """``sums`` of rows times two vectors of a panel, plus their products: a loop over ``depth``.

    Addresses of the rows and of the panel; ``step`` and ``panel_row`` are the distances of their
    elements in bytes. *cut*: after each so many elements a row goes on so many bytes further.
    *gathered*: ``panel_row`` is the address of int64, how far each row of the panel is from it.
    """
    item, result, size = _ITEM[char]
    lanes = vector_bytes() // size
    given, vector = ir.VectorType(item, lanes), ir.VectorType(result, lanes)
    splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
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
    if gathered:
        place = builder.add(panel_row, builder.mul(k, _WORD(8)))
        at = builder.add(panel, builder.load(builder.inttoptr(place, _WORD.as_pointer())))
    else:
        at = builder.add(panel, builder.mul(k, panel_row))
    columns = []
    for half in range(2):
        place = builder.add(at, _WORD(half * lanes * size))
        loaded = builder.load(builder.inttoptr(place, given.as_pointer()))
        loaded.align = size
        columns.append(loaded)
    if not cut:
        offset = builder.mul(k, step)
    found = []
    for i, row in enumerate(rows):
        pointer = builder.inttoptr(builder.add(row, offset), item.as_pointer())
        one = builder.insert_element(
            ir.Constant(given, ir.Undefined), builder.load(pointer), ir.IntType(32)(0)
        )
        factor = builder.shuffle_vector(one, one, splat)
        for half in range(2):
            phi = totals[2 * i + half]
            found.append(_fused(builder, char, factor, columns[half], phi))
            phi.add_incoming(found[-1], body)
    following = builder.add(k, _WORD(1))
    k.add_incoming(following, body)
    if cut:
        segment, jump = cut
        moved = builder.add(place_in_segment, _WORD(1))
        ends = builder.icmp_signed("==", moved, segment)
        place_in_segment.add_incoming(builder.select(ends, _WORD(0), moved), body)
        stepped = builder.add(offset, step)
        jumped = builder.add(stepped, jump)
        offset.add_incoming(builder.select(ends, jumped, stepped), body)
    builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
    builder.position_at_end(after)
    return found


@memoized
def _tile(char: str, height: int, start: bool) -> Any:
    """``c_out = c_in + a @ panel``, or without ``c_in`` where ``start`` is False.

    Addresses, each followed by the distance of rows in bytes; ``a_step`` is that of the elements of
    a row of ``a``, which is not so close where it lies there as its transposed.
    """
    _, result, size = _ITEM[char]
    lanes = vector_bytes() // size
    vector = ir.VectorType(result, lanes)

    @intrinsic
    def tile(
        typingctx: Any,
        depth: Any,
        a: Any,
        a_row: Any,
        a_step: Any,
        panel: Any,
        panel_row: Any,
        c_in: Any,
        c_in_row: Any,
        c_out: Any,
        c_out_row: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_row, a_step, panel, panel_row, c_in, c_in_row, c_out, c_out_row = args

            def place(base: Any, row: Any, i: int, half: int) -> Any:
                at = builder.add(base, builder.mul(row, _WORD(i))) if i else base
                return builder.add(at, _WORD(half * lanes * size)) if half else at

            def vector_at(base: Any, row: Any, i: int, half: int) -> Any:
                return builder.inttoptr(place(base, row, i, half), vector.as_pointer())

            sums = []
            for i in range(height):
                for half in range(2):
                    if start:
                        sums.append(builder.load(vector_at(c_in, c_in_row, i, half)))
                        sums[-1].align = size
                    else:
                        sums.append(ir.Constant(vector, None))
            rows = [place(a, a_row, i, 0) for i in range(height)]
            found = accumulated(builder, char, sums, depth, rows, a_step, panel, panel_row)
            for i in range(height):
                for half in range(2):
                    target = vector_at(c_out, c_out_row, i, half)
                    builder.store(found[2 * i + half], target).align = size
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), codegen

    return tile


def transposed(builder: Any, rows: list[ir.Value]) -> list[ir.Value]:
    """As many vectors as each has elements, as rows of a square, which is transposed.

    Vectors half as far apart as there are, merged by turns, are transposed once that is done as
    often as their length can be halved.
    """
    lanes = len(rows)
    places = ir.VectorType(ir.IntType(32), lanes)
    merged = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
    masks = [ir.Constant(places, merged[:lanes]), ir.Constant(places, merged[lanes:])]
    for _ in range(lanes.bit_length() - 1):
        rows = [
            builder.shuffle_vector(rows[i], rows[i + lanes // 2], mask)
            for i in range(lanes // 2)
            for mask in masks
        ]
    return rows


@memoized
def turner(char: str) -> tuple[Any, int]:
    """``turn(source, source_row, target, target_row)`` and the rows and columns that it transposes.

    Addresses, each followed by the distance of rows in bytes.
    """
    item, _, size = _ITEM[char]
    lanes = vector_bytes() // size
    vector = ir.VectorType(item, lanes)

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
            for i, row in enumerate(transposed(builder, rows)):
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
    turn, side = turner(char)

    @inlined
    def gather(matrix, at, row, depth, columns, packed, packed_at):
        """Some rows of all panels, then the next ones: few pages are read at a time."""
        full = columns // width * width
        for start in range(0, depth, _ROWS):
            stop = min(depth, start + _ROWS)
            for first in range(0, full, width):
                for k in range(start, stop):
                    source, target = at + k * row + first, packed_at + first * depth + k * width
                    copy(part(packed, target, target + width), part(matrix, source, source + width))
            if full < columns:
                for k in range(start, stop):
                    source, target = at + k * row + full, packed_at + full * depth + k * width
                    used = columns - full
                    copy(part(packed, target, target + used), part(matrix, source, source + used))

    @inlined
    def gather_turned(matrix, at, row, depth, columns, packed, packed_at):
        for first in range(0, columns, width):
            used, base = min(width, columns - first), packed_at + first * depth
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

    @compiled()
    def pack(matrix, at, row, depth, columns, packed, packed_at):
        full_vectors()
        full = columns // width * width
        if full < columns:
            base = packed_at + full * depth
            fill(part(packed, base, base + width * depth), zero)
        if turned:
            gather_turned(matrix, at, row, depth, columns, packed, packed_at)
        else:
            gather(matrix, at, row, depth, columns, packed, packed_at)

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
    turn, side = turner("E")

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
                for start in range(0, depth // 2, side):
                    stop = min(depth // 2, start + side)
                    squares = used // side * side if stop - start == side else 0
                    for j in range(0, squares, side):
                        turn(
                            address_of(matrix) + 2 * (at + (first + j) * row + 2 * start), 2 * row,
                            address_of(words) + 4 * (start * width + j), 4 * width,
                        )  # fmt: skip
                    for j in range(squares, used):
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
def multiplier(char: str, start: bool) -> Any:
    """``c_out = c_in + a @ matrix`` for some rows; without ``c_in`` where ``start`` is False.

    Of each array, there is the element at which the rows begin, and of ``a`` and ``c_in`` how far
    they are apart; those of ``c_out`` have no gaps. ``a_step`` is how far the elements of a row of
    ``a`` are apart. ``edge`` has room for ``rows`` of one panel: of
    a panel that is not full, columns are copied in and out.
    """
    width = panel_width(char)
    size = _ITEM[char][2]
    tallest, *shorter = heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first, second, third, fourth = (_tile(char, height, start) for height in (tallest, h2, h3, h4))

    @inlined
    def column(a, row, step, rows, depth, panel, panel_row, c_in, in_row, c_out, out_row):
        left = rows
        while left >= tallest:
            first(depth, a, row, step, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + tallest * row, c_in + tallest * in_row, c_out + tallest * out_row
            left -= tallest
        if left >= h2:
            second(depth, a, row, step, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h2 * row, c_in + h2 * in_row, c_out + h2 * out_row
            left -= h2
        if left >= h3:
            third(depth, a, row, step, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h3 * row, c_in + h3 * in_row, c_out + h3 * out_row
            left -= h3
        if left >= h4:
            fourth(depth, a, row, step, panel, panel_row, c_in, in_row, c_out, out_row)

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
