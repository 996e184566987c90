"""Long short-term memory in bfloat16, whose products are those of AMX or take pairs: ``dots.py``.

As ``loops/nn/recurrent.py``. Cells, gates and their gradients are float32 within a step; outputs
are rounded before the next step multiplies them, as they are what the layer returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba import amx
from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.dots import has_pairs
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.linalg.products_amx import DEPTH, rows_times_panels
from coredispatch_cpu_numba.loops.nn.recurrent import BLOCK, activated, slopes
from coredispatch_cpu_numba.spans import copy, item, part, put, row_of
from coredispatch_cpu_numba.tile_panels import DEEP, LINES, has_panels
from coredispatch_cpu_numba.tiles import multiplier, pair_packer, panel_width

__all__ = ["LOOPS"]


@compiled()
def _widen(wide, narrow):
    full_vectors()
    for j in range(wide.size):
        wide[j] = item(narrow, j)


@compiled()
def _round(narrow, wide):
    full_vectors()
    for j in range(wide.size):
        put(narrow, j, wide[j])


@compiled()
def _add(wide, narrow):
    full_vectors()
    for j in range(wide.size):
        wide[j] += item(narrow, j)


def _pack(turned: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        pack = pair_packer(turned)

        def loop(matrix, depth, columns, packed, lo, hi):
            full_vectors()
            pack(matrix, 0, depth if turned else columns, depth, columns, packed, 0)

        return loop

    return build


@compiled()
def _up(count, size):
    """The next multiple of ``size``."""
    return (count + size - 1) // size * size


def _by_pairs(more: bool) -> tuple[Callable[..., Any], Callable[..., None]]:
    """As :func:`_by_tiles`, with panels of pairs."""
    multiply, width = multiplier("E", more), panel_width("E")

    @compiled()
    def sizes_of(most, depth, columns):
        return most, columns, 2 * most * width

    @compiled()
    def product(a, at, rows, depth, weight, columns, total, room):
        edge = room.view(np.float32)
        multiply(
            a, at // 2, depth // 2, 1, rows, depth // 2, weight, 0, columns, total, 0, columns,
            total, 0, edge, 0,
        )  # fmt: skip

    return sizes_of, product


def _by_tiles(more: bool) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Two compiled functions, for the product of some rows with a packed matrix.

    ``sizes_of(most, depth, columns)`` says how many rows and columns ``total`` has, and how many
    uint16 ``room``. ``product(a, at, rows, depth, weight, columns, total, room)`` multiplies the
    rows of ``a`` that begin at its element ``at``, and adds to ``total`` where ``more``.
    """
    multiply = rows_times_panels(False)

    @compiled()
    def sizes_of(most, depth, columns):
        rows = _up(most, LINES)
        return rows, _up(columns, 2 * LINES), rows * _up(min(depth, DEPTH), DEEP)

    @compiled()
    def product(a, at, rows, depth, weight, columns, total, room):
        amx.configure()
        multiply(
            address_of(a) + 2 * at, 2 * depth, rows, depth, address_of(weight), columns,
            address_of(room), address_of(total), more,
        )  # fmt: skip
        amx.release()

    return sizes_of, product


def _product_of(more: bool) -> tuple[Callable[..., Any], Callable[..., None]]:
    return _by_tiles(more) if has_panels() else _by_pairs(more)


def _lstm(char: str) -> Callable[..., None]:
    cell_of, (sizes_of, product) = activated("f"), _product_of(True)

    def loop(
        gates, h, c, weight, sizes, starts, steps, reverse, batch, n, out, cells, kept, lo, hi
    ):
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        most, wide, place = sizes_of(last - first, n, 4 * n)
        z, output = np.empty(most * wide, np.float32), np.empty(n, np.float32)
        room = np.empty(place, np.uint16)
        for i in range(steps):
            t = steps - 1 - i if reverse else i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            for r in range(rows):
                _widen(part(z, r * wide, r * wide + 4 * n), row_of(gates, at + r, 4 * n))
            product(h, first * n, rows, n, weight, 4 * n, z, room)
            for r in range(rows):
                a, cell = part(z, r * wide, r * wide + 4 * n), row_of(c, first + r, n)
                cell_of(a, cell, output, n)
                _round(row_of(h, first + r, n), output)
                _round(row_of(out, at + r, n), output)
                _round(row_of(cells, at + r, n), cell)
                _round(row_of(kept, at + r, 4 * n), a)

    return loop


def _lstm_backward(char: str) -> Callable[..., None]:
    gates_of, (sizes_of, product) = slopes("f"), _product_of(False)

    def loop(
        of_output, outputs, of_cells, known, cells, kept, c0, weight, sizes, starts, steps, reverse,
        batch, n, z, dh, dc, lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        most, wide, place = sizes_of(last - first, 4 * n, n)
        total, room = np.empty(most * wide, np.float32), np.empty(place, np.uint16)
        a, slope = np.empty(4 * n, np.float32), np.empty(4 * n, np.float32)
        begin, end = np.empty(n, np.float32), np.empty(n, np.float32)
        for i in range(steps):
            t = i if reverse else steps - 1 - i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            before = t + 1 if reverse else t - 1
            there = sizes[before] if 0 <= before < steps else 0
            for r in range(rows):
                above, along = row_of(dh, first + r, n), row_of(dc, first + r, n)
                if outputs:
                    _add(above, row_of(of_output, at + r, n))
                if known:
                    _add(along, row_of(of_cells, at + r, n))
                if first + r < there:
                    _widen(begin, row_of(cells, starts[before] + first + r, n))
                else:
                    _widen(begin, row_of(c0, first + r, n))
                _widen(a, row_of(kept, at + r, 4 * n))
                _widen(end, row_of(cells, at + r, n))
                gates_of(slope, a, end, begin, above, along, n)
                _round(row_of(z, at + r, 4 * n), slope)
            product(z, at * 4 * n, rows, 4 * n, weight, n, total, room)
            for r in range(rows):
                copy(row_of(dh, first + r, n), part(total, r * wide, r * wide + n))

    return loop


LOOPS: dict[str, Loop] = (
    {
        "pack": Loop("anna", _pack(False), dtypes="E"),
        "pack_turned": Loop("anna", _pack(True), dtypes="E"),
        "lstm": Loop("aawaiinnnnaaa", _lstm, dtypes="E"),
        "lstm_backward": Loop("ananaaaaiinnnnaww", _lstm_backward, dtypes="E"),
    }
    if has_pairs()
    else {}
)
