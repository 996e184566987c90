"""Copies that threads share."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy_apart, part, put, row_of

__all__ = ["LOOPS", "UNIT"]

#: bytes that a copy is counted in
UNIT = 4096


def _copied(char: str) -> Callable[..., None]:
    """Counts units of bytes, the last of which may be shorter."""

    def loop(x, out, size, lo, hi):
        start, stop = lo * UNIT, min(hi * UNIT, size)
        copy_apart(part(out, start, stop), part(x, start, stop))

    return loop


def _bordered(char: str) -> Callable[..., None]:
    """Counts rows of ``width`` elements of ``out``.

    ``rows`` has the number of the row of ``x`` that each is made of, -1 where it is all border.
    Elements ``first`` and following, ``kept`` of them, come to lie behind ``before`` elements.
    """

    def loop(x, out, rows, length, width, first, before, kept, value, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, source = row_of(out, r, width), rows[r]
            inside = kept if source >= 0 else 0
            left = before if source >= 0 else width
            for i in range(left):
                put(row, i, value)
            start = source * length + first
            if inside:
                copy_apart(part(row, left, left + inside), part(x, start, start + inside))
            for i in range(left + inside, width):
                put(row, i, value)

    return loop


LOOPS: dict[str, Loop] = {
    "copied": Loop("aan", _copied, dtypes="B"),
    "bordered": Loop("aainnnnns", _bordered, dtypes="fdEe"),
}
