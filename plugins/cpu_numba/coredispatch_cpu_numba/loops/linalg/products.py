"""Products of large matrices on register tiles: ``out = bias + a @ b``.

``b`` is packed by slices of ``DEPTH`` along the inner dimension, so that a panel stays in the first
cache; threads share blocks of ``tall`` rows of the result. Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy, part
from coredispatch_cpu_numba.tiles import multiplier, packer, panel_width

__all__ = ["DEPTH", "LOOPS", "ROWS"]

DEPTH, ROWS = 256, 64


def _pack(turned: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        pack, width = packer(char, turned), panel_width(char)

        def loop(matrix, depth, columns, packed, lo, hi):
            full_vectors()
            padded = (columns + width - 1) // width * width
            for k in range(lo * DEPTH, min(hi * DEPTH, depth), DEPTH):
                at, row = (k, depth) if turned else (k * columns, columns)
                pack(matrix, at, row, min(DEPTH, depth - k), columns, packed, k * padded)

        return loop

    return build


def _product(turned: bool) -> Callable[[str], Callable[..., None]]:
    """``turned``: ``a`` lies there as its transposed, a block of which is brought together."""

    def build(char: str) -> Callable[..., None]:
        multiply, width = multiplier(char, True), panel_width(char)

        def loop(a, rows, depth, packed, columns, bias, out, edge, block, tall, lo, hi):
            full_vectors()
            padded = (columns + width - 1) // width * width
            for b in range(lo, hi):
                first = b * tall
                count = min(tall, rows - first)
                for k in range(0, depth, DEPTH):
                    deep = min(DEPTH, depth - k)
                    source, at, row, step = a, first * depth + k, depth, 1
                    if turned:
                        source, at, row, step = block, b * tall * DEPTH, 1, tall
                        for j in range(deep):
                            place, target = (k + j) * rows + first, at + j * tall
                            copy(part(block, target, target + count), part(a, place, place + count))
                    start, start_at, start_row = bias, 0, 0
                    if k:
                        start, start_at, start_row = out, first * columns, columns
                    multiply(
                        source, at, row, step, count, deep, packed, k * padded, columns, start,
                        start_at, start_row, out, first * columns, edge, first * width,
                    )  # fmt: skip

        return loop

    return build


def _stacks(a_turned: bool, b_turned: bool) -> Callable[[str], Callable[..., None]]:
    """Counts products of small matrices, one thread each; ``turned`` ones lie there transposed."""

    def build(char: str) -> Callable[..., None]:
        pack, multiply = packer(char, b_turned), multiplier(char, True)
        width = panel_width(char)

        def loop(a, b, rows, depth, columns, bias, out, lo, hi):
            full_vectors()
            padded = (columns + width - 1) // width * width
            packed = np.empty(min(depth, DEPTH) * padded, out.dtype)
            edge = np.empty(ROWS * width, out.dtype)
            row, step = (1, rows) if a_turned else (depth, 1)
            for m in range(lo, hi):
                for k in range(0, depth, DEPTH):
                    deep = min(DEPTH, depth - k)
                    at, apart = (k, depth) if b_turned else (k * columns, columns)
                    pack(b, m * depth * columns + at, apart, deep, columns, packed, 0)
                    for first in range(0, rows, ROWS):
                        count, target = min(ROWS, rows - first), (m * rows + first) * columns
                        source = m * rows * depth + first * row + k * step
                        start, start_at, start_row = bias, 0, 0
                        if k:
                            start, start_at, start_row = out, target, columns
                        multiply(
                            a, source, row, step, count, deep, packed, 0, columns, start,
                            start_at, start_row, out, target, edge, 0,
                        )  # fmt: skip

        return loop

    return build


LOOPS: dict[str, Loop] = {
    "stacks": Loop("aannnaa", _stacks(False, False)),
    "stacks_a_turned": Loop("aannnaa", _stacks(True, False)),
    "stacks_b_turned": Loop("aannnaa", _stacks(False, True)),
    "pack": Loop("anna", _pack(False)),
    "pack_turned": Loop("anna", _pack(True)),
    "product": Loop("annanaaaan", _product(False)),
    "product_turned": Loop("annanaaaan", _product(True)),
}
