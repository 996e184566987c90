"""Copies that threads share."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.objects import copy_bytes
from coredispatch_cpu_numba.spans import copy_apart, item, part, put, row_of
from coredispatch_cpu_numba.vectors import machine, turned

__all__ = ["LINE", "LOOPS", "UNIT"]

#: bytes of a cache line
LINE = 64

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


def _transposed(char: str) -> Callable[..., None]:
    """Counts strips of matrices: the elements of a cache line in each of the ``m`` rows of ``x``.

    They become whole rows of ``out``, whose cache lines are written one after the other.
    """
    lanes = machine().lanes(char)
    line = LINE // {"f": 4, "d": 8}[char]
    block = turned(lanes)

    def loop(x, out, m, n, strips, lo, hi):
        for s in range(lo, hi):
            matrix = s // strips
            base, first = matrix * m * n, (s - matrix * strips) * line
            width = min(line, n - first)
            i = 0
            if width == line:
                while i + line <= m:
                    for down in range(first, first + line, lanes):
                        for right in range(i, i + line, lanes):
                            to, at = base + down * m + right, base + right * n + down
                            block(out, to, m, x, at, n)
                    i += line
            for j in range(first, first + width):
                for k in range(i, m):
                    put(out, base + j * m + k, item(x, base + k * n + j))

    return loop


def _exchanged(char: str) -> Callable[..., None]:
    """Counts rows of ``out``, of which a matrix has ``n``: ``m`` runs of ``size`` bytes each."""

    def loop(x, out, m, n, size, lo, hi):
        for row in range(lo, hi):
            matrix = row // n
            at, to = (matrix * m * n + row - matrix * n) * size, row * m * size
            for _ in range(m):
                copy_apart(part(out, to, to + size), part(x, at, at + size))
                to += size
                at += n * size

    return loop


def _joined(char: str) -> Callable[..., None]:
    """Counts rows of ``out``, which have ``width`` bytes: a run of each of ``many`` arrays.

    ``runs`` has the address of each array, and the bytes of its runs.
    """

    def loop(runs, many, out, width, lo, hi):
        to = address_of(out) + lo * width
        for row in range(lo, hi):
            for k in range(many):
                size = item(runs, 2 * k + 1)
                copy_bytes(to, item(runs, 2 * k) + row * size, size)
                to += size

    return loop


def _paired(char: str) -> Callable[..., None]:
    """Counts units of the bytes of ``out``: ``middle`` of them come from ``x``, then ``y``."""

    def loop(x, y, out, middle, size, lo, hi):
        start, stop = lo * UNIT, min(hi * UNIT, size)
        if start < middle:
            end = min(stop, middle)
            copy_apart(part(out, start, end), part(x, start, end))
            start = end
        if start < stop:
            copy_apart(part(out, start, stop), part(y, start - middle, stop - middle))

    return loop


def _beside(char: str) -> Callable[..., None]:
    """Counts rows of ``out``, of ``width`` bytes: ``run`` of ``x``, the others of ``y``."""

    def loop(x, y, out, run, width, lo, hi):
        rest = width - run
        for row in range(lo, hi):
            to = row * width
            copy_apart(part(out, to, to + run), part(x, row * run, row * run + run))
            copy_apart(part(out, to + run, to + width), part(y, row * rest, row * rest + rest))

    return loop


def _strung(char: str) -> Callable[..., None]:
    """Counts units of the bytes of ``out``, the last of which may be shorter: one long row.

    ``runs`` has the address of each of ``many`` arrays, and its bytes.
    """

    def loop(runs, many, out, size, lo, hi):
        start, stop, first = lo * UNIT, min(hi * UNIT, size), 0
        for k in range(many):
            behind = first + item(runs, 2 * k + 1)
            begin, end = max(start, first), min(stop, behind)
            if begin < end:
                copy_bytes(address_of(out) + begin, item(runs, 2 * k) + begin - first, end - begin)
            first = behind

    return loop


LOOPS: dict[str, Loop] = {
    "copied": Loop("aan", _copied, dtypes="B"),
    "paired": Loop("aaann", _paired, dtypes="B"),
    "beside": Loop("aaann", _beside, dtypes="B"),
    "strung": Loop("inan", _strung, dtypes="B"),
    "joined": Loop("inan", _joined, dtypes="B"),
    "transposed": Loop("aannn", _transposed, dtypes="fd"),
    "exchanged": Loop("aannn", _exchanged),
    "bordered": Loop("aainnnnns", _bordered, dtypes="fdEe"),
}
