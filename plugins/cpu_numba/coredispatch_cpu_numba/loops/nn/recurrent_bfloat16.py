"""Long short-term memory in bfloat16, whose products take two numbers at a time: ``dots.py``.

As ``loops/nn/recurrent.py``. Cells, gates and their gradients are float32 within a step; outputs
are rounded before the next step multiplies them, as they are what the layer returns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.dots import has_pairs
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.nn.recurrent import BLOCK, activated, slopes
from coredispatch_cpu_numba.spans import item, part, put, row_of
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


def _lstm(char: str) -> Callable[..., None]:
    cell_of, multiply, width = activated("f"), multiplier("E", True), panel_width("E")

    def loop(
        gates, h, c, weight, sizes, starts, steps, reverse, batch, n, out, cells, kept, lo, hi
    ):
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        most = last - first
        z, output = np.empty(most * 4 * n, np.float32), np.empty(n, np.float32)
        edge = np.empty(most * width, np.float32)
        for i in range(steps):
            t = steps - 1 - i if reverse else i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            _widen(part(z, 0, rows * 4 * n), part(gates, at * 4 * n, (at + rows) * 4 * n))
            multiply(
                h, first * n // 2, n // 2, 1, rows, n // 2, weight, 0, 4 * n, z, 0, 4 * n, z, 0,
                edge, 0,
            )  # fmt: skip
            for r in range(rows):
                a, cell = row_of(z, r, 4 * n), row_of(c, first + r, n)
                cell_of(a, cell, output, n)
                _round(row_of(h, first + r, n), output)
                _round(row_of(out, at + r, n), output)
                _round(row_of(cells, at + r, n), cell)
                _round(row_of(kept, at + r, 4 * n), a)

    return loop


def _lstm_backward(char: str) -> Callable[..., None]:
    gates_of, multiply, width = slopes("f"), multiplier("E", False), panel_width("E")

    def loop(
        of_output, outputs, of_cells, known, cells, kept, c0, weight, sizes, starts, steps, reverse,
        batch, n, z, dh, dc, lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        edge = np.empty((last - first) * width, np.float32)
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
            multiply(
                z, at * 2 * n, 2 * n, 1, rows, 2 * n, weight, 0, n, dh, first * n, n, dh, first * n,
                edge, 0,
            )  # fmt: skip

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
