"""gather, scatter_add and sums of rows by index, of arrays seen as ``(outer, n, inner)``.

An index out of range is not followed: ``bad[0]`` becomes 1 and the caller throws the result away.
Additions are made in the order of the index, whatever the number of threads: threads share rows or
columns, never the elements of one sum.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import add_to, copy_apart, item, part, put, row_of

__all__ = ["LOOPS"]


@inlined
def within(numbers, n):
    """Whether all ``numbers`` are from 0 to ``n - 1``: the sign bits say so."""
    signs = 0
    for i in range(numbers.size):
        signs |= numbers[i] | (n - 1 - numbers[i])
    return signs >= 0


def _gather(char: str) -> Callable[..., None]:
    """Counts the ``outer`` matrices; ``m`` is what the index has in the place of ``n``."""

    def loop(x, index, n, m, inner, out, bad, lo, hi):
        full_vectors()
        for o in range(lo, hi):
            matrix, place = part(x, o * n * inner, (o + 1) * n * inner), o * m * inner
            count, length = (1, m) if inner == 1 else (m, inner)
            for _ in range(count):
                numbers, result = (
                    part(index, place, place + length),
                    part(out, place, place + length),
                )
                place += length
                if not within(numbers, n):
                    bad[0] = 1
                elif inner == 1:
                    for j in range(length):
                        result[j] = item(matrix, numbers[j])
                else:
                    for i in range(length):
                        result[i] = item(matrix, numbers[i] * inner + i)

    return loop


def _scatter_add(char: str) -> Callable[..., None]:
    """Counts tiles of ``tile`` columns, ``tiles`` of them in each of the ``outer`` matrices.

    Tiles that lie side by side are worked on together.
    """

    def loop(out, index, source, n, m, inner, tile, tiles, bad, lo, hi):
        if inner == 1:
            for o in range(lo, hi):
                row, numbers = row_of(out, o, n), row_of(index, o, m)
                if within(numbers, n):
                    for j in range(m):
                        add_to(row, item(numbers, j), item(source, o * m + j))
                else:
                    bad[0] = 1
            return
        unit = lo
        while unit < hi:
            o, first = unit // tiles, unit % tiles
            count = min(hi - unit, tiles - first)
            unit += count
            left, right = first * tile, min(inner, (first + count) * tile)
            matrix, place = part(out, o * n * inner, (o + 1) * n * inner), o * m * inner
            for _ in range(m):
                numbers = part(index, place + left, place + right)
                given = part(source, place + left, place + right)
                place += inner
                if not within(numbers, n):
                    bad[0] = 1
                else:
                    for i in range(right - left):
                        add_to(matrix, numbers[i] * inner + left + i, given[i])

    return loop


def _take_rows(char: str) -> Callable[..., None]:
    """Counts the rows that are taken: ``m`` of ``n`` rows of ``width``, of matrix after matrix."""

    def loop(x, index, n, m, width, out, bad, lo, hi):
        for r in range(lo, hi):
            k = item(index, r % m)
            if k < 0 or k >= n:
                bad[0] = 1
            elif width == 1:
                put(out, r, item(x, r // m * n + k))
            else:
                copy_apart(row_of(out, r, width), row_of(x, r // m * n + k, width))

    return loop


def _add_rows(char: str) -> Callable[..., None]:
    """Counts tiles of ``tile`` columns; rows whose index is ``skipped`` are left out."""

    def loop(out, index, source, n, width, tile, skipped, bad, lo, hi):
        full_vectors()
        left, right = lo * tile, min(width, hi * tile)
        for r in range(index.size):
            k = index[r]
            if k < 0 or k >= n:
                bad[0] = 1
            elif k != skipped:
                target = part(out, k * width + left, k * width + right)
                row = part(source, r * width + left, r * width + right)
                for i in range(target.size):
                    target[i] += row[i]

    return loop


LOOPS: dict[str, Loop] = {
    "gather": Loop("ainnnai", _gather),
    "scatter_add": Loop("aiannnnni", _scatter_add),
    "take_rows": Loop("ainnnai", _take_rows, dtypes="fdEe"),
    "add_rows": Loop("aiannnni", _add_rows),
}
