"""Sums of squares, for norms of whole arrays, and norms along a dimension."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import fabs, full_vectors, largest
from coredispatch_cpu_numba.layout import BLOCK
from coredispatch_cpu_numba.spans import fill, part, row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["LOOPS"]

_BLOCK = 16384


def _squares(char: str) -> Callable[..., None]:
    """``out[b]`` (float64) is the sum of squares of block ``b``: they do not overflow in float32.

    The blocks, not the threads, decide the order of additions.
    """

    def loop(x, out, lo, hi):
        full_vectors()
        for b in range(lo, hi):
            row = part(x, b * _BLOCK, min(x.size, b * _BLOCK + _BLOCK))
            total = 0.0
            for i in range(row.size):
                value = np.float64(row[i])
                total += value * value
            out[b] = total

    return loop


def _norm_rows(char: str) -> Callable[..., None]:
    """Norms of rows of ``order`` 2 or 1, or for 0 the largest magnitudes.

    Sums are carried in float64 from block to block. Counts rows.
    """
    squares, magnitudes = fold_of(char, "squares"), fold_of(char, "magnitudes")
    magnitude = fold_of(char, "magnitude")

    def loop(x, n, order, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row = row_of(x, r, n)
            if order == 0:
                out[r] = magnitude(row)
                continue
            total = 0.0
            for first in range(0, n, BLOCK):
                block = part(row, first, min(n, first + BLOCK))
                if order == 2:
                    total += np.float64(squares(block))
                else:
                    total += np.float64(magnitudes(block))
            out[r] = np.sqrt(total) if order == 2 else total

    return loop


_FOLD = 256  # rows added up before their sum is folded into the column's total


def _norm_columns(char: str) -> Callable[..., None]:
    """As ``_norm_rows``, of the middle dimension of ``(outer, n, inner)``.

    Counts tiles of ``tile`` columns, ``tiles`` of them in each ``(n, inner)`` matrix.
    """
    zero = elementary[char].T(0.0)

    def loop(x, n, inner, tile, tiles, order, out, lo, hi):
        full_vectors()
        totals = np.empty(tile, np.float64)
        running = np.empty(tile, x.dtype)
        for unit in range(lo, hi):
            left = unit % tiles * tile
            width = min(tile, inner - left)
            base = unit // tiles * n * inner + left
            total, some = part(totals, 0, width), part(running, 0, width)
            fill(total, 0.0)
            fill(some, zero)
            for first in range(0, n, _FOLD):
                for i in range(first, min(n, first + _FOLD)):
                    row = part(x, base + i * inner, base + i * inner + width)
                    if order == 2:
                        for j in range(width):
                            some[j] += row[j] * row[j]
                    elif order == 1:
                        for j in range(width):
                            some[j] += fabs(row[j])
                    else:
                        for j in range(width):
                            some[j] = largest(some[j], fabs(row[j]))
                if order == 1 or order == 2:
                    for j in range(width):
                        total[j] += np.float64(some[j])
                    fill(some, zero)
            start = unit // tiles * inner + left
            result = part(out, start, start + width)
            if order == 2:
                for j in range(width):
                    result[j] = np.sqrt(total[j])
            elif order == 1:
                for j in range(width):
                    result[j] = total[j]
            else:
                for j in range(width):
                    result[j] = some[j]

    return loop


LOOPS: dict[str, Loop] = {
    "squares": Loop("ad", _squares, REDUCTION),
    "norm_rows": Loop("anna", _norm_rows, REDUCTION),
    "norm_columns": Loop("annnnna", _norm_columns, REDUCTION),
}
