"""Reductions of an array seen as ``(outer, n, inner)`` over its middle dimension.

*Rows* (``inner == 1``) count rows and vectorize along them; *columns* vectorize across the
``inner`` elements that lie side by side. Sums also take arrays with gaps: ``across`` is how far one
row or matrix is from the next, ``down`` how far one row of a matrix is.

Sums and products of float32 are carried in float64 from block to block: within a block of
``BLOCK`` elements the vector accumulators each see ``BLOCK / 64`` of them, so the error does not
grow with ``n``. The blocks, not the threads, decide the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, full_vectors, largest, smallest
from coredispatch_cpu_numba.layout import BLOCK, NARROW
from coredispatch_cpu_numba.spans import copy, fill, part, row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["LOOPS"]

_reducing = compiled(fastmath=set(REDUCTION), forceinline=True)


@memoized
def total_of(char: str) -> Callable[..., Any]:
    """A compiled ``total(row)``: the sum in float64."""
    block_sum = fold_of(char, "sum")

    @inlined
    def total(row):
        n = row.size
        if n <= BLOCK:
            return np.float64(block_sum(row))
        result = 0.0
        for start in range(0, n, BLOCK):
            result += np.float64(block_sum(part(row, start, min(n, start + BLOCK))))
        return result

    return total


def _sum_rows(char: str) -> Callable[..., None]:
    total = total_of(char)

    def loop(x, n, across, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            out[r] = total(part(x, r * across, r * across + n))

    return loop


def _sum_around(char: str) -> Callable[..., None]:
    """Sums over all but the middle dimension; counts that one."""
    total = total_of(char)

    def loop(x, n, inner, mean, out, lo, hi):
        full_vectors()
        outer = x.size // (n * inner)
        for c in range(lo, hi):
            whole = 0.0
            for i in range(outer):
                whole += total(row_of(x, i * n + c, inner))
            out[c] = whole / (outer * inner) if mean else whole

    return loop


def _mean_rows(char: str) -> Callable[..., None]:
    total = total_of(char)

    def loop(x, n, across, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            out[r] = total(part(x, r * across, r * across + n)) / n

    return loop


def _sum_blocks(char: str) -> Callable[..., None]:
    """One row, cut into blocks: ``out[b]`` (float64) is the sum of block ``b``."""
    total = total_of(char)

    def loop(x, out, lo, hi):
        full_vectors()
        for b in range(lo, hi):
            out[b] = total(part(x, b * BLOCK, min(x.size, b * BLOCK + BLOCK)))

    return loop


def _fold(mean: bool) -> Callable[[str], Callable[..., None]]:
    """``out[0]`` is the sum of the float64 ``parts``, in order; for a mean, over ``n``."""

    def build(char: str) -> Callable[..., None]:
        def loop(parts, n, out, lo, hi):
            total = 0.0
            for part_sum in parts:
                total += part_sum
            out[0] = total / n if mean else total

        return loop

    return build


def _prod_rows(char: str) -> Callable[..., None]:
    one = elementary[char].T(1.0)

    @_reducing
    def product(row):
        result = one
        for i in range(row.size):
            result *= row[i]
        return result

    def loop(x, n, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            out[r] = product(row_of(x, r, n))

    return loop


def _extreme_rows(name: str) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        extreme = fold_of(char, name)

        def loop(x, n, out, lo, hi):
            full_vectors()
            for r in range(lo, hi):
                out[r] = extreme(row_of(x, r, n))

        return loop

    return build


def _extreme_blocks(name: str) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        extreme = fold_of(char, name)

        def loop(x, out, lo, hi):
            full_vectors()
            for b in range(lo, hi):
                out[b] = extreme(part(x, b * BLOCK, min(x.size, b * BLOCK + BLOCK)))

        return loop

    return build


_SHORT = 16  # elements that are quicker compared one by one
_SEARCH = 128  # elements of which the position of the extreme one is looked for one by one


def _arg_rows(name: str) -> Callable[[str], Callable[..., None]]:
    """Position of the first extreme element, of the first NaN if there is one.

    Where ``both`` is 1 the element itself goes to ``values``.
    """

    def build(char: str) -> Callable[..., None]:
        extreme = fold_of(char, name)
        upward = name == "amax"

        def loop(x, n, out, both, values, lo, hi):
            full_vectors()
            for r in range(lo, hi):
                row = row_of(x, r, n)
                best, where = row[0], 0
                if n <= _SHORT:
                    for i in range(1, n):
                        value = row[i]
                        better = value > best if upward else value < best
                        better |= (value != value) & (best == best)
                        best, where = choose(better, value, best), choose(better, i, where)
                    out[r] = where
                    if both == 1:
                        values[r] = best
                    continue
                for start in range(0, n, _SEARCH):
                    block = part(row, start, min(n, start + _SEARCH))
                    value = extreme(block)
                    if value != value:
                        best, where = value, start
                        break
                    if (value > best) if upward else (value < best):
                        best, where = value, start
                if best != best:
                    while row[where] == row[where]:
                        where += 1
                else:
                    while row[where] != best:
                        where += 1
                out[r] = where
                if both == 1:
                    values[r] = row[where]

        return loop

    return build


_FOLD = 256  # rows added up before their sum is folded into the column's total


def _sum_columns(mean: bool) -> Callable[[str], Callable[..., None]]:
    """Counts tiles of ``tile`` columns, ``tiles`` of them in each matrix of ``inner`` columns."""

    def build(char: str) -> Callable[..., None]:
        zero = elementary[char].T(0.0)

        def loop(x, n, inner, across, down, tile, tiles, out, lo, hi):
            full_vectors()
            total = np.empty(tile, np.float64)
            running = np.empty(tile, out.dtype)
            for unit in range(lo, hi):
                left = unit % tiles * tile
                width = min(tile, inner - left)
                base = unit // tiles * across + left
                fill(part(total, 0, width), 0.0)
                for first in range(0, n, _FOLD):
                    fill(part(running, 0, width), zero)
                    last = min(n, first + _FOLD)
                    fours = first + (last - first) // 4 * 4
                    for i in range(first, fours, 4):  # the running sums are stored once for four
                        at = base + i * down
                        one = part(x, at, at + width)
                        two = part(x, at + down, at + down + width)
                        three = part(x, at + 2 * down, at + 2 * down + width)
                        four = part(x, at + 3 * down, at + 3 * down + width)
                        for j in range(width):
                            running[j] += (one[j] + two[j]) + (three[j] + four[j])
                    for i in range(fours, last):
                        row = part(x, base + i * down, base + i * down + width)
                        for j in range(width):
                            running[j] += row[j]
                    for j in range(width):
                        total[j] += running[j]
                start = unit // tiles * inner + left
                result = part(out, start, start + width)
                for j in range(width):
                    result[j] = total[j] / n if mean else total[j]

        return loop

    return build


def _sum_strips(char: str) -> Callable[..., None]:
    """Counts strips of ``height`` rows of one ``(n, inner)`` matrix, ``inner < NARROW``.

    ``out[strip]`` (float64, ``inner`` wide) receives the strip's column sums.
    """
    zero = elementary[char].T(0.0)

    def loop(x, n, inner, height, out, lo, hi):
        full_vectors()
        group = (2 * NARROW) // inner  # rows that make one long row
        width = group * inner
        running = np.empty(width, x.dtype)
        wide = np.empty(width, np.float64)
        for strip in range(lo, hi):
            rows = part(x, strip * height * inner, min(n, strip * height + height) * inner)
            fill(wide, 0.0)
            for first in range(0, rows.size, width * _FOLD):
                chunk = part(rows, first, min(rows.size, first + width * _FOLD))
                fill(running, zero)
                for start in range(0, chunk.size, width):
                    row = part(chunk, start, min(chunk.size, start + width))
                    for j in range(row.size):
                        running[j] += row[j]
                for j in range(width):
                    wide[j] += running[j]
            result = row_of(out, strip, inner)
            fill(result, 0.0)
            for start in range(0, width, inner):
                for j in range(inner):
                    result[j] += wide[start + j]

    return loop


def _extreme_columns(name: str) -> Callable[[str], Callable[..., None]]:
    better = largest if name == "amax" else smallest

    def build(char: str) -> Callable[..., None]:
        def loop(x, n, inner, tile, tiles, out, lo, hi):
            full_vectors()
            for unit in range(lo, hi):
                left = unit % tiles * tile
                width = min(tile, inner - left)
                base = unit // tiles * n * inner + left
                start = unit // tiles * inner + left
                result = part(out, start, start + width)
                copy(result, part(x, base, base + width))
                fours = 1 + (n - 1) // 4 * 4
                for i in range(1, fours, 4):  # the results are stored once for four rows
                    at = base + i * inner
                    one = part(x, at, at + width)
                    two = part(x, at + inner, at + inner + width)
                    three = part(x, at + 2 * inner, at + 2 * inner + width)
                    four = part(x, at + 3 * inner, at + 3 * inner + width)
                    for j in range(width):
                        some = better(better(one[j], two[j]), better(three[j], four[j]))
                        result[j] = better(result[j], some)
                for i in range(fours, n):
                    row = part(x, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        result[j] = better(result[j], row[j])

        return loop

    return build


def _arg_columns(name: str) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        upward = name == "amax"
        index = np.int32 if char == "f" else np.int64  # as wide as the elements: one mask for both

        def loop(x, n, inner, tile, tiles, out, both, values, lo, hi):
            full_vectors()
            best = np.empty(tile, x.dtype)
            where = np.empty(tile, index)
            for unit in range(lo, hi):
                left = unit % tiles * tile
                width = min(tile, inner - left)
                base = unit // tiles * n * inner + left
                copy(part(best, 0, width), part(x, base, base + width))
                fill(part(where, 0, width), 0)
                for i in range(1, n):
                    row = part(x, base + i * inner, base + i * inner + width)
                    position = index(i)
                    for j in range(width):
                        old, new = best[j], row[j]
                        better = new > old if upward else new < old
                        # The first NaN beats every number, and stays.
                        better = better | ((new != new) & (old == old))
                        best[j] = new if better else old
                        where[j] = position if better else where[j]
                start = unit // tiles * inner + left
                for j in range(width):
                    out[start + j] = where[j]
                if both == 1:
                    copy(part(values, start, start + width), part(best, 0, width))

        return loop

    return build


LOOPS: dict[str, Loop] = {
    "sum_rows": Loop("anna", _sum_rows),
    "sum_around": Loop("annna", _sum_around),
    "mean_rows": Loop("anna", _mean_rows),
    "prod_rows": Loop("ana", _prod_rows),
    "amax_rows": Loop("ana", _extreme_rows("amax")),
    "amin_rows": Loop("ana", _extreme_rows("amin")),
    "argmax_rows": Loop("anina", _arg_rows("amax")),
    "argmin_rows": Loop("anina", _arg_rows("amin")),
    "sum_blocks": Loop("ad", _sum_blocks),
    "sum_fold": Loop("dna", _fold(False)),
    "mean_fold": Loop("dna", _fold(True)),
    "amax_blocks": Loop("aa", _extreme_blocks("amax")),
    "amin_blocks": Loop("aa", _extreme_blocks("amin")),
    "sum_columns": Loop("annnnnna", _sum_columns(False)),
    "mean_columns": Loop("annnnnna", _sum_columns(True)),
    "sum_strips": Loop("annnd", _sum_strips),
    "amax_columns": Loop("annnna", _extreme_columns("amax")),
    "amin_columns": Loop("annnna", _extreme_columns("amin")),
    "argmax_columns": Loop("annnnina", _arg_columns("amax")),
    "argmin_columns": Loop("annnnina", _arg_columns("amin")),
}
