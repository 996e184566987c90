"""Products of small blocks of matrices, in registers: what a recurrence does at every step.

A matrix that many steps multiply with is *packed* once: into panels of ``panel_width`` columns,
each of which holds its rows one after the other. A tile is a few rows of the result times one
panel's columns; it stays in vector registers while the inner dimension is run through. OpenBLAS
packs at every call, and chooses kernels without AVX-512 on processors that it does not know.

Each element of a result is one chain of fused multiply-adds along the inner dimension, whatever
tile it is in: a result does not depend on how the rows are shared among threads.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from .atomics import address_of
from .elementary.inlined import inlined
from .intrinsics import full_vectors

__all__ = ["multiplier", "packer", "panel_width"]

_WORD = ir.IntType(64)
_ITEM = {"f": (ir.FloatType(), 4, "f32"), "d": (ir.DoubleType(), 8, "f64")}


@memoized
def _vector_bytes() -> int:
    """How wide the vector registers are; 16 bytes are everywhere."""
    features = str(cpu_target.target_context.codegen().magic_tuple()[-1]).split(",")
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


def panel_width(char: str) -> int:
    """The columns of a panel: two vectors."""
    return 2 * _vector_bytes() // _ITEM[char][1]


def _heights() -> tuple[int, ...]:
    """The rows of tiles: accumulators for the first fill the registers."""
    return (8, 4, 2, 1) if _vector_bytes() == 64 else (4, 2, 1)


@memoized
def _tile(char: str, height: int, start: bool) -> Any:
    """``c_out = c_in + a @ panel``, or without ``c_in`` where ``start`` is False.

    Addresses, each but the depth followed by the distance of rows in bytes.
    """
    item, size, suffix = _ITEM[char]
    lanes = _vector_bytes() // size
    vector = ir.VectorType(item, lanes)

    @intrinsic
    def tile(
        typingctx: Any,
        depth: Any,
        a: Any,
        a_row: Any,
        panel: Any,
        panel_row: Any,
        c_in: Any,
        c_in_row: Any,
        c_out: Any,
        c_out_row: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            depth, a, a_row, panel, panel_row, c_in, c_in_row, c_out, c_out_row = args
            splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            fused = builder.module.declare_intrinsic(
                f"llvm.fmuladd.v{lanes}{suffix}",
                fnty=ir.FunctionType(vector, [vector] * 3),
            )

            def vector_at(address: Any) -> Any:
                return builder.inttoptr(address, vector.as_pointer())

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
                        found = ir.Constant(vector, [0.0] * lanes)
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
            at = builder.add(panel, builder.mul(k, panel_row))
            columns = []
            for half in range(2):
                loaded = builder.load(vector_at(builder.add(at, _WORD(half * lanes * size))))
                loaded.align = size
                columns.append(loaded)
            offset = builder.mul(k, _WORD(size))
            for i in range(height):
                pointer = builder.inttoptr(builder.add(rows[i], offset), item.as_pointer())
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), builder.load(pointer), ir.IntType(32)(0)
                )
                factor = builder.shuffle_vector(one, one, splat)
                for half in range(2):
                    phi = totals[2 * i + half]
                    phi.add_incoming(builder.call(fused, [factor, columns[half], phi]), body)
            following = builder.add(k, _WORD(1))
            k.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
            builder.position_at_end(after)
            for i in range(height):
                for half in range(2):
                    last = totals[2 * i + half].incomings[1][0]
                    stored = builder.store(last, vector_at(place(c_out, c_out_row, i, half)))
                    stored.align = size
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), codegen

    return tile


@memoized
def packer(char: str, turned: bool) -> Any:
    """``pack(matrix, depth, columns, packed)``: the panels of ``matrix`` (depth, columns).

    ``turned``: the matrix lies there as its transposed, ``(columns, depth)``. What is missing of
    the last panel is filled with zeros.
    """
    width = panel_width(char)
    zero = np.float32(0) if char == "f" else np.float64(0)
    BLOCK = 16

    @njit(error_model="numpy", no_cpython_wrapper=True)
    def pack(matrix, depth, columns, packed):
        panels = (columns + width - 1) // width
        for p in range(panels):
            first = p * width
            used = min(width, columns - first)
            base = p * width * depth
            if used < width:
                for i in range(base, base + width * depth):
                    packed[i] = zero
            if turned:
                for start in range(0, depth, BLOCK):
                    stop = min(depth, start + BLOCK)
                    for j in range(used):
                        at = (first + j) * depth
                        for k in range(start, stop):
                            packed[base + k * width + j] = matrix[at + k]
            else:
                for k in range(depth):
                    at = k * columns + first
                    for j in range(used):
                        packed[base + k * width + j] = matrix[at + j]

    return pack


@memoized
def multiplier(char: str, start: bool) -> Any:
    """``c_out = c_in + a @ matrix`` for some rows; without ``c_in`` where ``start`` is False.

    ``multiply(a, a_at, rows, depth, packed, columns, c_in, in_at, c_out, out_at, edge, edge_at)``:
    arrays, and the element at which the rows begin in each, which have no gaps. ``edge`` has room
    for ``rows`` of one panel: of a panel that is not full, columns are copied in and out.
    """
    width = panel_width(char)
    size = _ITEM[char][1]
    tallest, *shorter = _heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first, second, third, fourth = (_tile(char, height, start) for height in (tallest, h2, h3, h4))

    @inlined
    def column(a, rows, depth, panel, panel_row, c_in, in_row, c_out, out_row):
        row = depth * size
        left = rows
        while left >= tallest:
            first(depth, a, row, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + tallest * row, c_in + tallest * in_row, c_out + tallest * out_row
            left -= tallest
        if left >= h2:
            second(depth, a, row, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h2 * row, c_in + h2 * in_row, c_out + h2 * out_row
            left -= h2
        if left >= h3:
            third(depth, a, row, panel, panel_row, c_in, in_row, c_out, out_row)
            a, c_in, c_out = a + h3 * row, c_in + h3 * in_row, c_out + h3 * out_row
            left -= h3
        if left >= h4:
            fourth(depth, a, row, panel, panel_row, c_in, in_row, c_out, out_row)

    @njit(error_model="numpy", no_cpython_wrapper=True)
    def multiply(a, a_at, rows, depth, packed, columns, c_in, in_at, c_out, out_at, edge, edge_at):
        full_vectors()
        full = columns // width
        rest = columns - full * width
        row, panel_row = columns * size, width * size
        left = address_of(a) + a_at * size
        panels = address_of(packed)
        source, target = address_of(c_in) + in_at * size, address_of(c_out) + out_at * size
        for p in range(full):
            shift = p * width * size
            panel = panels + shift * depth
            column(left, rows, depth, panel, panel_row, source + shift, row, target + shift, row)
        if rest:
            for r in range(rows):
                for j in range(rest):
                    edge[edge_at + r * width + j] = c_in[in_at + r * columns + full * width + j]
            at = address_of(edge) + edge_at * size
            panel = panels + full * width * size * depth
            column(left, rows, depth, panel, panel_row, at, panel_row, at, panel_row)
            for r in range(rows):
                for j in range(rest):
                    c_out[out_at + r * columns + full * width + j] = edge[edge_at + r * width + j]

    return multiply
