"""Sums of squares, for norms of whole arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import part

__all__ = ["LOOPS"]

_BLOCK = 16384


def _squares(char: str) -> Callable[..., None]:
    """``out[b]`` (float64) is the sum of squares of block ``b``: they do not overflow in float32.

    The blocks, not the threads, decide the order of additions.
    """

    def loop(x, out, lo, hi):
        full_vectors()
        for b in range(lo, hi):
            row = part(x, b * _BLOCK, min(x.size, b * _BLOCK + _BLOCK))
            total = 0.0
            for i in range(row.size):
                value = np.float64(row[i])
                total += value * value
            out[b] = total

    return loop


LOOPS: dict[str, Loop] = {"squares": Loop("ad", _squares, REDUCTION)}
