"""Panels of AMX tiles: how matrices are packed into them, and their products.

A *panel* is a row of tiles, one after the other, for 16 rows of the left matrix or 16 columns of
the right one; 32 numbers along the inner dimension make a tile. What is missing of the last tiles
is zero. Everything takes addresses and distances in bytes.

Where there are no tiles, AVX512-BF16 multiplies the same panels, some rows of sums at a time, which
stay in vector registers. AVX-512 rearranges the numbers. Pairs of bfloat16 are words of 32 bits;
``turn`` transposes 16 times 16 of them, and ``weave`` makes them of two rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import amx
from .atomics import array_at, stack_words
from .building import compiled
from .dots import BFloat, add_pairs, has_pairs
from .elementary.inlined import inlined
from .intrinsics import full_vectors

__all__ = [
    "DEEP",
    "LINES",
    "TILE",
    "begin",
    "copy_line",
    "end",
    "has_panels",
    "one_by_two",
    "packer",
    "round_line",
    "turn",
    "two_by_one",
    "two_by_two",
    "weave",
]

#: of a tile: numbers along the inner dimension, rows or columns, bytes
DEEP, LINES, TILE = 32, 16, 1024
_WORDS = ir.VectorType(ir.IntType(32), 16)
_HALVES, _FEW = (ir.VectorType(ir.IntType(16), n) for n in (32, 16))
_FLOATS = ir.VectorType(ir.FloatType(), 16)


def has_panels() -> bool:
    """Whether products of panels are those of tiles here."""
    return amx.has_bfloat16() and has_pairs()


def _load(builder: Any, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=2)


def _store(builder: Any, value: ir.Value, address: ir.Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=2)


def _shuffle(builder: Any, x: ir.Value, y: ir.Value, places: list[int]) -> ir.Value:
    kind = ir.VectorType(ir.IntType(32), len(places))
    return builder.shuffle_vector(x, y, ir.Constant(kind, places))


@intrinsic
def turn(typingctx: Any, source: Any, step: Any, target: Any) -> Any:
    """Write the transposed of 16 rows of 16 words, which are ``step`` bytes apart, as a tile."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, step, target = args
        rows = [
            _load(builder, builder.add(source, builder.mul(step, step.type(i))), _WORDS)
            for i in range(16)
        ]
        for far in (1, 2, 4, 8):  # blocks of this size change places across the diagonal
            for i in range(16):
                if i & far:
                    continue
                x, y = rows[i], rows[i + far]
                rows[i] = _shuffle(
                    builder, x, y, [16 + j - far if j & far else j for j in range(16)]
                )
                rows[i + far] = _shuffle(
                    builder, x, y, [16 + j if j & far else j + far for j in range(16)]
                )
        for i in range(16):
            _store(builder, rows[i], builder.add(target, target.type(64 * i)))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def copy_line(typingctx: Any, source: Any, target: Any) -> Any:
    """Copy the 64 bytes of a tile's row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, _load(builder, args[0], _WORDS), args[1])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def _pair_up(typingctx: Any, first: Any, second: Any, target: Any) -> Any:
    """Write the pairs of two rows of 16 numbers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y = (_load(builder, address, _FEW) for address in args[:2])
        places = [i // 2 + 16 * (i % 2) for i in range(32)]
        _store(builder, _shuffle(builder, x, y, places), args[2])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def weave(typingctx: Any, first: Any, second: Any, low: Any, high: Any) -> Any:
    """Write the pairs of two rows of 32 numbers, by turns four to ``low`` and four to ``high``.

    That is what one instruction makes of each; ``round_line`` restores the order.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y = (_load(builder, address, _HALVES) for address in args[:2])
        for half, target in enumerate(args[2:]):
            places = [
                8 * lane + 4 * half + i + 32 * side
                for lane in range(4)
                for i in range(4)
                for side in range(2)
            ]
            _store(builder, _shuffle(builder, x, y, places), target)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@intrinsic
def round_line(typingctx: Any, low: Any, high: Any, added: Any, target: Any) -> Any:
    """Write 32 bfloat16: sums of columns as ``weave`` left them, plus a float32, in order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.insert_element(
            ir.Constant(_FLOATS, ir.Undefined), args[2], ir.IntType(32)(0)
        )
        level = _shuffle(builder, first, first, [0] * 16)
        low, high = (builder.fadd(_load(builder, a, _FLOATS), level) for a in args[:2])
        kind = ir.FunctionType(ir.VectorType(BFloat(), 32), [_FLOATS, _FLOATS])
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        fours = ir.VectorType(ir.IntType(64), 8)
        rounded = builder.bitcast(builder.call(function, [high, low]), fours)
        _store(builder, _shuffle(builder, rounded, rounded, [0, 4, 1, 5, 2, 6, 3, 7]), args[3])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32, types.intp), codegen


_reserve_tile = stack_words(TILE // 8)
_reserve_pairs = stack_words(TILE // 8)


@memoized
def packer(across: bool, paired: bool) -> Callable[..., None]:
    """``pack(source, step, used, depth, target)``: a panel of ``used`` lines, 16 at most.

    Args:
        across: the inner dimension runs down the rows of the source, not along them
        paired: the panel is one of the right matrix: pairs, side by side for its columns
    """
    height, width = (DEEP, LINES) if across else (LINES, DEEP)
    like = np.uint16

    @inlined
    def rearrange(source, step, target):
        if across:
            for j in range(16):
                row = source + 2 * j * step
                _pair_up(row, row + step, target + 64 * j)
        elif paired:
            turn(source, step, target)
        else:
            for j in range(16):
                copy_line(source + j * step, target + 64 * j)

    @compiled()
    def pack(source, step, used, depth, target):
        full_vectors()
        place, pairs = _reserve_tile(), _reserve_pairs()
        tile = array_at(place, TILE // 2, like)
        for s in range((depth + DEEP - 1) // DEEP):
            deep = min(DEEP, depth - s * DEEP)
            at, row = source + 2 * s * DEEP * (step // 2 if across else 1), step
            if used < LINES or deep < DEEP:
                rows, columns = (deep, used) if across else (used, deep)
                for i in range(height):
                    line = array_at(at + i * row, columns, like)
                    for j in range(width):
                        tile[i * width + j] = line[j] if i < rows and j < columns else 0
                at, row = place, 2 * width
            if across and not paired:
                rearrange(at, row, pairs)
                turn(pairs, 64, target + s * TILE)
            else:
                rearrange(at, row, target + s * TILE)

    return pack


@inlined
def _nothing():
    pass


#: what a part of a loop calls before its first product, and after its last one
begin, end = (amx.configure, amx.release) if has_panels() else (_nothing, _nothing)


def _by_tiles(tall: bool, wide: bool) -> Callable[..., None]:
    """The kernel for two panels of the left matrix where ``tall``, of the right where ``wide``.

    Tiles 0 and 1 are sums of the first panel of the left matrix, 2 and 3 of the second.
    """

    @compiled()
    def multiply(a, a_panel, b, b_panel, steps, out, row, start):
        under = out + 16 * row
        if start:
            amx.load(0, out, row)
            if wide:
                amx.load(1, out + 64, row)
            if tall:
                amx.load(2, under, row)
            if tall and wide:
                amx.load(3, under + 64, row)
        else:
            amx.zero(0)
            amx.zero(1)
            amx.zero(2)
            amx.zero(3)
        for s in range(steps):
            at = s * TILE
            amx.load(4, a + at, 64)
            amx.load(6, b + at, 64)
            amx.add_bfloat16(0, 4, 6)
            if wide:
                amx.load(7, b + b_panel + at, 64)
                amx.add_bfloat16(1, 4, 7)
            if tall:
                amx.load(5, a + a_panel + at, 64)
                amx.add_bfloat16(2, 5, 6)
            if tall and wide:
                amx.add_bfloat16(3, 5, 7)
        amx.store(0, out, row)
        if wide:
            amx.store(1, out + 64, row)
        if tall:
            amx.store(2, under, row)
        if tall and wide:
            amx.store(3, under + 64, row)

    return multiply


def _lines(height: int, wide: bool) -> Any:
    """``lines(a, b, b_panel, steps, out, row, start)``: ``height`` rows of sums, in registers."""
    panels = range(2 if wide else 1)

    @intrinsic
    def lines(
        typingctx: Any, a: Any, b: Any, b_panel: Any, steps: Any, out: Any, row: Any, start: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, b, b_panel, steps, out, row, start = args
            number = row.type
            first = ir.Constant(ir.VectorType(ir.IntType(32), LINES), [0] * LINES)
            targets = [
                builder.add(builder.add(out, builder.mul(row, number(i))), number(64 * j))
                for i in range(height)
                for j in panels
            ]
            sums = [
                builder.select(start, _load(builder, at, _FLOATS), ir.Constant(_FLOATS, None))
                for at in targets
            ]
            before = builder.block
            body, after = (builder.append_basic_block(name) for name in ("step", "stored"))
            builder.branch(body)
            builder.position_at_end(body)
            step, *totals = (builder.phi(kind) for kind in (number, *[_FLOATS] * len(sums)))
            for phi, value in zip((step, *totals), (number(0), *sums), strict=True):
                phi.add_incoming(value, before)
            left, right = (builder.add(x, builder.mul(step, number(TILE))) for x in (a, b))
            sums = list(totals)
            for k in range(LINES):
                columns = [
                    _load(builder, builder.add(at, number(64 * k)), _WORDS)
                    for at in (right, builder.add(right, b_panel))[: len(panels)]
                ]
                for i in range(height):
                    place = builder.add(left, number(64 * i + 4 * k))
                    one = builder.insert_element(
                        ir.Constant(_WORDS, ir.Undefined),
                        _load(builder, place, _WORDS.element),
                        ir.IntType(32)(0),
                    )
                    pair = builder.shuffle_vector(one, one, first)
                    for j in panels:
                        at = i * len(panels) + j
                        sums[at] = add_pairs(builder, pair, columns[j], sums[at])
            following = builder.add(step, number(1))
            for phi, value in zip((step, *totals), (following, *sums), strict=True):
                phi.add_incoming(value, body)
            builder.cbranch(builder.icmp_signed("<", following, steps), body, after)
            builder.position_at_end(after)
            for value, target in zip(sums, targets, strict=True):
                _store(builder, value, target)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6, types.boolean), codegen

    return lines


def _by_lines(tall: bool, wide: bool) -> Callable[..., None]:
    """As :func:`_by_tiles`, by vectors."""
    height = 8 if wide else 16
    lines, rows = _lines(height, wide), 2 * LINES if tall else LINES

    @compiled()
    def multiply(a, a_panel, b, b_panel, steps, out, row, start):
        full_vectors()
        for i in range(0, rows, height):
            at = a + i // LINES * a_panel + i % LINES * 64
            lines(at, b, b_panel, steps, out + i * row, row, start)

    return multiply


_product = _by_tiles if has_panels() else _by_lines
#: ``multiply(a, a_panel, b, b_panel, steps, out, row, start)``: one or two panels of the left
#: matrix times one or two of the right, which are ``a_panel`` and ``b_panel`` bytes apart. Each
#: panel of the left is 16 rows of ``out``, to which the product is added where ``start``.
two_by_two, one_by_two, two_by_one = (
    _product(True, True),
    _product(False, True),
    _product(True, False),
)
