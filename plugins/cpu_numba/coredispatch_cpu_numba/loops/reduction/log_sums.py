"""Running logarithms of sums of exponentials over the middle dimension of ``(outer, n, inner)``.

A running sum is kept as its largest term and the sum of all terms divided by that one, in float64:
one exponential and one logarithm for each element, where ``logaddexp`` of one result and the next
element takes as many, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, fabs, full_vectors
from coredispatch_cpu_numba.spans import fill, part, row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["LOOPS"]

_BLOCK = 256
_exp, _log = elementary["d"].exp, elementary["d"].log
# How far the largest term of a block may be above its first result. Exponentials of float64 vanish
# from 708 on. A result is the difference of two numbers of this size at most: for float32 these
# have digits to spare, for float64 they lose 3 bits.
_LIMIT = {"f": 600.0, "d": 8.0}


@inlined
def _joined(value, most, total):
    """The largest term and the sum of all over it, with one term more. NaN is in the sum."""
    apart = value - most
    if value == most:  # two infinities among them
        apart = 0.0
    share = _exp(-fabs(apart))
    above = value > most
    return choose(above, value, most), choose(above, total * share + 1.0, total + share)


def _rows(char: str) -> Callable[..., None]:
    """Counts rows. A block's exponentials and logarithms are taken side by side, where they may."""
    limit = _LIMIT[char]
    top = fold_of(char, "amax")

    def loop(x, n, out, lo, hi):
        full_vectors()
        room = np.empty(_BLOCK, np.float64)
        for r in range(lo, hi):
            row, result = row_of(x, r, n), row_of(out, r, n)
            most, total = -np.inf, 0.0
            for first in range(0, n, _BLOCK):
                stop = min(n, first + _BLOCK)
                block, target = part(row, first, stop), part(result, first, stop)
                sums = part(room, 0, stop - first)
                peak, least = np.float64(top(block)), np.float64(block[0])
                if peak <= most:
                    peak = most
                if most > least:
                    least = most
                if peak - least <= limit:  # not of infinities and NaN
                    total *= _exp(most - peak)
                    for i in range(block.size):
                        sums[i] = _exp(np.float64(block[i]) - peak)
                    for i in range(block.size):
                        total += sums[i]
                        sums[i] = total
                    for i in range(block.size):
                        target[i] = peak + _log(sums[i])
                    most = peak
                else:
                    for i in range(block.size):
                        most, total = _joined(np.float64(block[i]), most, total)
                        target[i] = most + _log(total)

    return loop


def _columns(char: str) -> Callable[..., None]:
    """Counts tiles of ``tile`` columns, ``tiles`` of them in each ``(n, inner)`` matrix."""

    def loop(x, n, inner, tile, tiles, out, lo, hi):
        full_vectors()
        peaks, sums = np.empty(tile, np.float64), np.empty(tile, np.float64)
        for unit in range(lo, hi):
            left = unit % tiles * tile
            width = min(tile, inner - left)
            base = unit // tiles * n * inner + left
            most, total = part(peaks, 0, width), part(sums, 0, width)
            fill(most, -np.inf)
            fill(total, 0.0)
            for i in range(n):
                row = part(x, base + i * inner, base + i * inner + width)
                result = part(out, base + i * inner, base + i * inner + width)
                for j in range(width):
                    peak, share = _joined(np.float64(row[j]), most[j], total[j])
                    most[j] = peak
                    total[j] = share
                    result[j] = peak + _log(share)

    return loop


LOOPS: dict[str, Loop] = {
    "rows": Loop("ana", _rows),
    "columns": Loop("annnna", _columns),
}
