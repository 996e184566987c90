"""Distances of the rows of two matrices, and their gradient.

The rows of the second matrix stand side by side, ``(columns, rows)``, filled up with zeros to whole
vectors: the loops run along them, and leave nothing over.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, copysign, fabs, full_vectors, largest
from coredispatch_cpu_numba.spans import copy, fill, part, row_of

__all__ = ["LOOPS", "ROWS"]

ROWS = 16  # rows of the first matrix that what is read of the second is used for
_TILE = 256  # rows of the second matrix that sums are kept for
_FOLD = 256  # columns added up before their sum is carried on in float64


def _distances(char: str) -> Callable[..., None]:
    """Norms of order 2 or 1, else the largest magnitudes, of the differences of rows.

    ``x`` is ``(batch, n, d)``, ``y`` is ``(batch, d, room)``, of which ``m`` count, and ``out``
    ``(batch, n, m)``. Counts groups of ``ROWS`` rows of ``x``, ``groups`` in each matrix.
    """
    zero = elementary[char].T(0.0)

    def loop(x, y, n, m, d, room, groups, order, out, lo, hi):
        full_vectors()
        totals, running = np.empty(ROWS * _TILE, np.float64), np.empty(ROWS * _TILE, x.dtype)
        for unit in range(lo, hi):
            batch, top = unit // groups, unit % groups * ROWS
            rows, start, base = min(ROWS, n - top), batch * n + top, batch * d * room
            for left in range(0, m, _TILE):
                width = min(_TILE, room - left)
                fill(totals, 0.0)
                fill(running, zero)
                for first in range(0, d, _FOLD):
                    last = min(d, first + _FOLD)
                    fours = first + (last - first) // 4 * 4 if order != 0 else first
                    for k in range(first, fours, 4):  # the sums are stored once for four
                        at = base + k * room + left
                        one = part(y, at, at + width)
                        two = part(y, at + room, at + room + width)
                        three = part(y, at + 2 * room, at + 2 * room + width)
                        four = part(y, at + 3 * room, at + 3 * room + width)
                        for r in range(rows):
                            own = part(x, (start + r) * d + k, (start + r) * d + k + 4)
                            a, b, c, e = own[0], own[1], own[2], own[3]
                            some = part(running, r * _TILE, r * _TILE + width)
                            if order == 2:
                                for j in range(width):
                                    p, q = a - one[j], b - two[j]
                                    s, t = c - three[j], e - four[j]
                                    some[j] = (((some[j] + p * p) + q * q) + s * s) + t * t
                            else:
                                for j in range(width):
                                    p, q = fabs(a - one[j]), fabs(b - two[j])
                                    some[j] += (p + q) + (fabs(c - three[j]) + fabs(e - four[j]))
                    for k in range(fours, last):
                        one = part(y, base + k * room + left, base + k * room + left + width)
                        for r in range(rows):
                            a = x[(start + r) * d + k]
                            some = part(running, r * _TILE, r * _TILE + width)
                            if order == 2:
                                for j in range(width):
                                    p = a - one[j]
                                    some[j] += p * p
                            elif order == 1:
                                for j in range(width):
                                    some[j] += fabs(a - one[j])
                            else:
                                for j in range(width):
                                    some[j] = largest(some[j], fabs(a - one[j]))
                    if order != 0:
                        for j in range(rows * _TILE):
                            totals[j] += np.float64(running[j])
                        fill(running, zero)
                filled = min(width, m - left)
                for r in range(rows):
                    to = (start + r) * m + left
                    result = part(out, to, to + filled)
                    total = part(totals, r * _TILE, r * _TILE + filled)
                    if order == 2:
                        for j in range(filled):
                            result[j] = np.sqrt(total[j])
                    elif order == 1:
                        for j in range(filled):
                            result[j] = total[j]
                    else:
                        copy(result, part(running, r * _TILE, r * _TILE + filled))

    return loop


_BLOCK = 4096  # rows added up before their sum is carried on in float64


def _gradients(char: str) -> Callable[..., None]:
    """The gradient of ``x`` of norms of order 2 or 1; counts as above.

    The arrays are as above, ``grad`` and ``norms`` are ``(batch, n, m)``. Where a norm is 0, so is
    its gradient.
    """
    T = elementary[char].T
    zero, one = T(0.0), T(1.0)

    def loop(grad, norms, x, y, n, m, d, room, groups, order, out, lo, hi):
        full_vectors()
        slopes = np.empty(ROWS * room, x.dtype)
        fill(slopes, zero)
        for unit in range(lo, hi):
            batch, top = unit // groups, unit % groups * ROWS
            rows, start = min(ROWS, n - top), batch * n + top
            for r in range(rows):
                at = (start + r) * m
                given, lengths = part(grad, at, at + m), part(norms, at, at + m)
                slope = part(slopes, r * room, r * room + m)
                if order == 2:
                    for j in range(m):
                        slope[j] = choose(lengths[j] == zero, zero, given[j] / lengths[j])
                else:
                    copy(slope, given)
            for k in range(d):
                others = row_of(y, batch * d + k, room)
                for r in range(rows):
                    own, total = x[(start + r) * d + k], 0.0
                    for first in range(0, room, _BLOCK):
                        last, some = min(room, first + _BLOCK), zero
                        other = part(others, first, last)
                        slope = part(slopes, r * room + first, r * room + last)
                        if order == 2:
                            for j in range(other.size):
                                some += slope[j] * (own - other[j])
                        else:
                            for j in range(other.size):
                                apart = own - other[j]
                                sign = choose(apart == zero, zero, copysign(one, apart))
                                some += slope[j] * choose(apart == apart, sign, apart)
                        total += np.float64(some)
                    out[(start + r) * d + k] = total

    return loop


LOOPS: dict[str, Loop] = {
    "distances": Loop("aannnnnna", _distances),
    "gradients": Loop("aaaannnnnna", _gradients, REDUCTION),
}
