"""Borders of elements of the array itself, around the last two dimensions. Counts rows."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.spans import copy_apart, item, part, put, row_of

__all__ = ["LOOPS"]


def _rows(char: str) -> Callable[..., None]:
    """``rows`` and ``columns`` say where each row and each column of a result comes from.

    The columns from ``left`` on, ``length`` of them, are neighbours, in order.
    """

    def loop(x, rows, columns, left, length, h, w, out, lo, hi):
        width, height = columns.size, rows.size
        right = left + length
        first = item(columns, left) if length > 0 else 0
        plane, y = lo // height, lo % height
        for r in range(lo, hi):
            source = row_of(x, plane * h + item(rows, y), w)
            result = row_of(out, r, width)
            for i in range(left):
                put(result, i, item(source, item(columns, i)))
            copy_apart(part(result, left, right), part(source, first, first + length))
            for i in range(right, width):
                put(result, i, item(source, item(columns, i)))
            y += 1
            if y == height:
                y = 0
                plane += 1

    return loop


LOOPS: dict[str, Loop] = {"rows": Loop("aiinnnna", _rows)}
