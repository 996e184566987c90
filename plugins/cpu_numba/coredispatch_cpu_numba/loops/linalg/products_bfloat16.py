"""Products of bfloat16 matrices, two numbers at a time, where the processor can: ``dots.py``.

As ``loops/linalg/products.py``, but that sums are float32 and rounded when a block of rows is
finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.dots import has_pairs
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import part, put
from coredispatch_cpu_numba.tiles import interleave, multiplier, pair_packer, panel_width

__all__ = ["DEPTH", "LOOPS", "loops_of"]

#: pairs of a slice
DEPTH = 256


def _pack(turned: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        pack, width = pair_packer(turned), panel_width("E")

        def loop(matrix, depth, columns, packed, lo, hi):
            full_vectors()
            padded = (columns + width - 1) // width * width
            for piece in range(lo, hi):
                k = 2 * DEPTH * piece
                at, row = (k, depth) if turned else (k * columns, columns)
                deep = min(2 * DEPTH, depth - k)
                pack(matrix, at, row, deep, columns, packed, DEPTH * piece * padded)

        return loop

    return build


def _product(turned: bool) -> Callable[[str], Callable[..., None]]:
    """``turned``: ``a`` lies there as its transposed, a block of which is brought together."""

    def build(char: str) -> Callable[..., None]:
        multiply, width = multiplier("E", True), panel_width("E")

        def loop(a, rows, depth, packed, columns, bias, out, tall, lo, hi):
            full_vectors()
            pairs = (depth + 1) // 2
            padded = (columns + width - 1) // width * width
            total = np.empty(tall * columns, np.float32)
            edge = np.empty(tall * width, np.float32)
            block = np.empty(2 * tall * DEPTH if turned else 1, np.uint16)
            for b in range(lo, hi):
                first = b * tall
                count = min(tall, rows - first)
                for k in range(0, pairs, DEPTH):
                    deep = min(DEPTH, pairs - k)
                    source, at, row, step = a, first * pairs + k, pairs, 1
                    if turned:
                        source, at, row, step = block, 0, 1, tall
                        for j in range(deep):
                            line = part(block, 2 * j * tall, 2 * j * tall + 2 * count)
                            place = 2 * (k + j) * rows + first
                            interleave(line, a, place, rows, 2 * (k + j) + 1 < depth)
                    start, start_row = (total, columns) if k else (bias, 0)
                    multiply(
                        source, at, row, step, count, deep, packed, k * padded, columns, start, 0,
                        start_row, total, 0, edge, 0,
                    )  # fmt: skip
                result = part(out, first * columns, (first + count) * columns)
                for i in range(result.size):
                    put(result, i, total[i])

        return loop

    return build


def loops_of(
    pack: Callable[..., Any], product: Callable[..., Any], more: str = ""
) -> dict[str, Loop]:
    """Packing and multiplying, ``build`` of each by whether the matrix lies there transposed.

    A product takes ``more`` arguments behind those that all take.
    """
    return {
        "pack": Loop("anna", pack(False), dtypes="E"),
        "pack_turned": Loop("anna", pack(True), dtypes="E"),
        "product": Loop("annanwa" + more, product(False), dtypes="E"),
        "product_turned": Loop("annanwa" + more, product(True), dtypes="E"),
    }


LOOPS: dict[str, Loop] = loops_of(_pack, _product, "n") if has_pairs() else {}
