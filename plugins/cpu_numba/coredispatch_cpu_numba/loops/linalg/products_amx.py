"""Products of bfloat16 matrices on AMX tiles: ``out = bias + a @ b``.

``b`` is packed by slices of ``DEPTH`` along the inner dimension. Threads share blocks of ``ROWS``
rows of the result, whose rows of ``a`` they pack slice by slice. Sums are float32, and rounded when
a block is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized

import numpy as np

from coredispatch_cpu_numba import amx
from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.linalg.products_bfloat16 import loops_of
from coredispatch_cpu_numba.spans import part, put
from coredispatch_cpu_numba.tile_panels import (
    DEEP,
    LINES,
    TILE,
    has_panels,
    one_by_two,
    packer,
    two_by_two,
)

__all__ = ["DEPTH", "LOOPS", "ROWS", "rows_times_panels"]

DEPTH, ROWS = 1024, 64


def _pack(turned: bool) -> Callable[[str], Callable[..., None]]:
    """Counts panels, those of the first slice first; an odd one at the end of a slice is zero."""

    def build(char: str) -> Callable[..., None]:
        pack = packer(not turned, True)

        def loop(matrix, depth, columns, packed, lo, hi):
            full_vectors()
            panels = (columns + 2 * LINES - 1) // (2 * LINES) * 2
            for piece in range(lo, hi):
                k, p = piece // panels * DEPTH, piece % panels
                first, deep = min(p * LINES, columns), min(DEPTH, depth - k)
                used = min(LINES, columns - first)
                source = address_of(matrix)
                source += 2 * (first * depth + k if turned else k * columns + first)
                step = 2 * (depth if turned else columns)
                steps = (deep + DEEP - 1) // DEEP
                target = address_of(packed) + (k // DEEP * panels + p * steps) * TILE
                pack(source, step, used, deep, target)

        return loop

    return build


@memoized
def rows_times_panels(turned: bool) -> Callable[..., None]:
    """``multiply(a, step, rows, depth, packed, columns, block, total, start)``, of addresses.

    ``a`` has ``rows`` rows, ``step`` bytes apart; where ``turned`` those are its columns.
    ``packed`` is the right matrix, and ``block`` has room for all panels of a slice of ``a``.
    ``total`` has room for whole panels of rows, of ``columns`` float32 and what is missing of an
    even number of panels. The product is added to it where ``start``.
    """
    pack = packer(turned, False)

    @compiled()
    def multiply(a, step, rows, depth, packed, columns, block, total, start):
        full_vectors()
        panels = (columns + 2 * LINES - 1) // (2 * LINES) * 2
        wide = panels * LINES
        for k in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - k)
            steps = (deep + DEEP - 1) // DEEP
            length = steps * TILE
            for i in range(0, rows, LINES):
                source = a + (k * step + 2 * i if turned else i * step + 2 * k)
                pack(source, step, min(LINES, rows - i), deep, block + i // LINES * length)
            for p in range(0, panels, 2):
                right = packed + (k // DEEP * panels + p * steps) * TILE
                for i in range(0, rows, 2 * LINES):
                    left = block + i // LINES * length
                    to = total + 4 * (i * wide + p * LINES)
                    more = start or k > 0
                    if rows - i > LINES:
                        two_by_two(left, length, right, length, steps, to, 4 * wide, more)
                    else:
                        one_by_two(left, length, right, length, steps, to, 4 * wide, more)

    return multiply


def _product(turned: bool) -> Callable[[str], Callable[..., None]]:
    """``turned``: ``a`` lies there as its transposed."""

    def build(char: str) -> Callable[..., None]:
        multiply = rows_times_panels(turned)

        def loop(a, rows, depth, packed, columns, bias, out, lo, hi):
            full_vectors()
            wide = (columns + 2 * LINES - 1) // (2 * LINES) * 2 * LINES
            block = np.empty(ROWS * min(DEPTH, (depth + DEEP - 1) // DEEP * DEEP), np.uint16)
            total = np.empty(ROWS * wide, np.float32)
            step = 2 * (rows if turned else depth)
            for b in range(lo, hi):
                first = b * ROWS
                count = min(ROWS, rows - first)
                amx.configure()
                multiply(
                    address_of(a) + first * (2 if turned else step), step, count, depth,
                    address_of(packed), columns, address_of(block), address_of(total), False,
                )  # fmt: skip
                amx.release()
                for r in range(count):
                    result = part(out, (first + r) * columns, (first + r + 1) * columns)
                    sums = part(total, r * wide, r * wide + columns)
                    for j in range(columns):
                        put(result, j, sums[j] + bias[j])

        return loop

    return build


LOOPS: dict[str, Loop] = loops_of(_pack, _product) if has_panels() else {}
