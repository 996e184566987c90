"""Tiles whose rows lie anywhere: products of matrices of which a convolution is made.

A *place* is an int64: how many bytes a row lies beyond an address. Places are read from tables, so
that a tile is full whatever the positions are that it takes. Sums begin at 0 and are added to what
is there already, so that of a long sum each slice is rounded for itself.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .tiles import accumulated, transposed, vector_bytes

__all__ = ["gathered_dots", "gathered_products", "turn_apart"]

_WORD = ir.IntType(64)
_REAL = {"f": (ir.FloatType(), 4), "d": (ir.DoubleType(), 8)}


def _vector(char: str) -> tuple[ir.Type, int]:
    """The type of a vector, and the bytes of an element."""
    element, size = _REAL[char]
    return ir.VectorType(element, vector_bytes() // _REAL[char][1]), size


def _place(builder: Any, base: ir.Value, table: ir.Value, i: int) -> ir.Value:
    """``base`` plus the place ``i`` of a table."""
    pointer = builder.inttoptr(builder.add(table, _WORD(8 * i)), _WORD.as_pointer())
    return builder.add(base, builder.load(pointer))


def _apart(builder: Any, base: ir.Value, row: ir.Value, i: int) -> ir.Value:
    return builder.add(base, builder.mul(row, _WORD(i))) if i else base


def _added(
    builder: Any, vector: ir.Type, size: int, sums: list[ir.Value], given: list[ir.Value],
    made: list[ir.Value],
) -> None:  # fmt: skip
    """Write ``given`` plus the sums, two vectors for each row."""
    for i, (source, target) in enumerate(zip(given, made, strict=True)):
        for half in range(2):
            shift = _WORD(half * vector.count * size)
            before = builder.load(
                builder.inttoptr(builder.add(source, shift), vector.as_pointer()), align=size
            )
            pointer = builder.inttoptr(builder.add(target, shift), vector.as_pointer())
            builder.store(builder.fadd(before, sums[2 * i + half]), pointer, align=size)


@memoized
def gathered_products(char: str, height: int) -> Any:
    """``tile(depth, a, a_places, panel, c_in, in_places, c_out, out_places)``, addresses.

    ``height`` rows of ``c_out`` are those of ``c_in`` plus rows of ``a``, whose elements lie side
    by side, times the two vectors of each row of a panel.
    """
    vector, size = _vector(char)

    @intrinsic
    def tile(
        typingctx: Any, depth: Any, a: Any, a_places: Any, panel: Any, c_in: Any, in_places: Any,
        c_out: Any, out_places: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_places, panel, c_in, in_places, c_out, out_places = args
            rows = [_place(builder, a, a_places, i) for i in range(height)]
            sums = accumulated(
                builder, char, [ir.Constant(vector, None)] * (2 * height), depth, rows,
                _WORD(size), panel, _WORD(2 * vector.count * size),
            )  # fmt: skip
            given = [_place(builder, c_in, in_places, i) for i in range(height)]
            made = [_place(builder, c_out, out_places, i) for i in range(height)]
            _added(builder, vector, size, sums, given, made)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), codegen

    return tile


@memoized
def gathered_dots(char: str, height: int) -> Any:
    """``tile(depth, a, a_row, panel, panel_places, c, c_row)``, addresses and distances in bytes.

    ``height`` rows of ``c`` are increased by rows of ``a`` times the rows of a panel, which lie
    anywhere.
    """
    vector, size = _vector(char)

    @intrinsic
    def tile(
        typingctx: Any, depth: Any, a: Any, a_row: Any, panel: Any, panel_places: Any, c: Any,
        c_row: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_row, panel, panel_places, c, c_row = args
            rows = [_apart(builder, a, a_row, i) for i in range(height)]
            sums = accumulated(
                builder, char, [ir.Constant(vector, None)] * (2 * height), depth, rows,
                _WORD(size), panel, panel_places, gathered=True,
            )  # fmt: skip
            made = [_apart(builder, c, c_row, i) for i in range(height)]
            _added(builder, vector, size, sums, made, made)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), codegen

    return tile


@memoized
def turn_apart(char: str) -> Any:
    """``turn(source, source_row, target, places, count)``: a transposed square, rows anywhere.

    As many rows as a vector has elements are read; the first ``count`` of their columns become
    rows at ``target`` plus a place each.
    """
    vector, size = _vector(char)
    lanes = vector.count

    @intrinsic
    def turn(
        typingctx: Any, source: Any, source_row: Any, target: Any, places: Any, count: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, source_row, target, places, count = args
            rows = []
            for i in range(lanes):
                at = _apart(builder, source, source_row, i)
                rows.append(builder.load(builder.inttoptr(at, vector.as_pointer()), align=size))
            rows = transposed(builder, rows)
            done = builder.append_basic_block("turned")
            for i in range(lanes):
                store = builder.append_basic_block("column")
                builder.cbranch(builder.icmp_signed("<", _WORD(i), count), store, done)
                builder.position_at_end(store)
                at = _place(builder, target, places, i)
                builder.store(rows[i], builder.inttoptr(at, vector.as_pointer()), align=size)
            builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), codegen

    return turn
