"""Elements and rows taken by index, of arrays seen as ``(outer, n, inner)``.

An index out of range is not followed: ``bad[0]`` becomes 1 and the caller throws the result away.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy_apart, item, part, put, row_of

__all__ = ["LOOPS"]


#: elements of an index that are looked at before they are followed
CHECKED = 1024


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
        if inner == 1:
            group = max(1, CHECKED // m)
            for start in range(lo, hi, group):
                stop = min(hi, start + group)
                if not within(part(index, start * m, stop * m), n):
                    bad[0] = 1
                elif m == 1:
                    for o in range(start, stop):
                        put(out, o, item(x, o * n + item(index, o)))
                elif m < 16:  # too few for the calls of a row
                    for o in range(start, stop):
                        for j in range(m):
                            put(out, o * m + j, item(x, o * n + item(index, o * m + j)))
                else:
                    for o in range(start, stop):
                        matrix = row_of(x, o, n)
                        numbers, result = row_of(index, o, m), row_of(out, o, m)
                        for j in range(m):
                            result[j] = item(matrix, numbers[j])
            return
        for o in range(lo, hi):
            matrix, place = part(x, o * n * inner, (o + 1) * n * inner), o * m * inner
            for _ in range(m):
                numbers, result = (
                    part(index, place, place + inner),
                    part(out, place, place + inner),
                )
                place += inner
                if not within(numbers, n):
                    bad[0] = 1
                else:
                    for i in range(inner):
                        result[i] = item(matrix, numbers[i] * inner + i)

    return loop


def _take_rows(char: str) -> Callable[..., None]:
    """Counts the rows that are taken: ``m`` of ``n`` rows of ``width``, of matrix after matrix.

    ``own`` is 1 where each matrix has an index of its own, else 0.
    """

    def loop(x, index, own, n, m, width, out, bad, lo, hi):
        full_vectors()
        o, j = lo // m, lo % m
        r = lo
        if width == 1:
            if own == 0 and not within(index, n):
                bad[0] = 1
                return
            while r < hi:
                count = min(hi - r, m - j)
                numbers = part(index, o * m * own + j, o * m * own + j + count)
                matrix = part(x, o * n, o * n + n)
                result = part(out, r, r + count)
                if own == 1 and not within(numbers, n):
                    bad[0] = 1
                else:
                    for i in range(count):
                        put(result, i, item(matrix, item(numbers, i)))
                r += count
                o += 1
                j = 0
            return
        while r < hi:
            k = item(index, o * m * own + j)
            if k < 0 or k >= n:
                bad[0] = 1
            else:
                copy_apart(row_of(out, r, width), row_of(x, o * n + k, width))
            r += 1
            j += 1
            if j == m:
                o += 1
                j = 0

    return loop


LOOPS: dict[str, Loop] = {
    "gather": Loop("ainnnai", _gather),
    "take_rows": Loop("ainnnnai", _take_rows, dtypes="fdEe"),
}
