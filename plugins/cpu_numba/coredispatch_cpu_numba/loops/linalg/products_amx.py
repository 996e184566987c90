"""Products of bfloat16 matrices on AMX tiles: ``out = bias + a @ b``.

``b`` is packed by slices of ``DEPTH`` along the inner dimension. Threads share blocks of ``ROWS``
rows of the result, whose rows of ``a`` they pack slice by slice. Sums are float32, and rounded when
a block is finished.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba import amx
from coredispatch_cpu_numba.atomics import address_of
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

__all__ = ["DEPTH", "LOOPS", "ROWS"]

DEPTH, ROWS = 1024, 64
_PANELS = ROWS // LINES


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


def _product(turned: bool) -> Callable[[str], Callable[..., None]]:
    """``turned``: ``a`` lies there as its transposed."""

    def build(char: str) -> Callable[..., None]:
        pack = packer(turned, False)

        def loop(a, rows, depth, packed, columns, bias, out, lo, hi):
            full_vectors()
            panels = (columns + 2 * LINES - 1) // (2 * LINES) * 2
            wide = panels * LINES
            block = np.empty(ROWS * min(DEPTH, (depth + DEEP - 1) // DEEP * DEEP), np.uint16)
            total = np.empty(ROWS * wide, np.float32)
            for b in range(lo, hi):
                first = b * ROWS
                count = min(ROWS, rows - first)
                amx.configure()
                for k in range(0, depth, DEPTH):
                    deep = min(DEPTH, depth - k)
                    steps = (deep + DEEP - 1) // DEEP
                    for i in range(0, count, LINES):
                        source = address_of(a)
                        source += 2 * (k * rows + first + i if turned else (first + i) * depth + k)
                        target = address_of(block) + i // LINES * steps * TILE
                        used = min(LINES, count - i)
                        pack(source, 2 * (rows if turned else depth), used, deep, target)
                    for p in range(0, panels, 2):
                        right = address_of(packed) + (k // DEEP * panels + p * steps) * TILE
                        for i in range(0, count, 2 * LINES):
                            left = address_of(block) + i // LINES * steps * TILE
                            to = address_of(total) + 4 * (i * wide + p * LINES)
                            length = steps * TILE
                            if count - i > LINES:
                                two_by_two(left, length, right, length, steps, to, 4 * wide, k > 0)
                            else:
                                one_by_two(left, length, right, length, steps, to, 4 * wide, k > 0)
                amx.release()
                for r in range(count):
                    result = part(out, (first + r) * columns, (first + r + 1) * columns)
                    sums = part(total, r * wide, r * wide + columns)
                    for j in range(columns):
                        put(result, j, sums[j] + bias[j])

        return loop

    return build


LOOPS: dict[str, Loop] = loops_of(_pack, _product) if has_panels() else {}
