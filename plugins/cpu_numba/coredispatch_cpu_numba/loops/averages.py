"""Means of windows and their gradient. Counts planes.

``bounds`` has of each of ``oh`` windows down its first row, one past its last, and how many rows it
is divided by; then the same of the ``ow`` windows across. Every window has elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy, fill, item, put, row_of

__all__ = ["LOOPS"]


def _forward(char: str) -> Callable[..., None]:
    """The rows of a row of windows are added up, then what each window has of them."""
    T = elementary[char].T
    zero = T(0.0)

    def loop(x, bounds, h, w, oh, ow, out, lo, hi):
        full_vectors()
        sums, shares = np.empty(w, x.dtype), np.empty(ow, x.dtype)
        for j in range(ow):
            shares[j] = T(item(bounds, 3 * oh + 2 * ow + j))
        for plane in range(lo, hi):
            for i in range(oh):
                top, bottom = item(bounds, i), item(bounds, oh + i)
                copy(sums, row_of(x, plane * h + top, w))
                for y in range(top + 1, bottom):
                    row = row_of(x, plane * h + y, w)
                    for z in range(w):
                        sums[z] += row[z]
                result, share = row_of(out, plane * oh + i, ow), T(item(bounds, 2 * oh + i))
                for j in range(ow):
                    total = zero
                    for z in range(item(bounds, 3 * oh + j), item(bounds, 3 * oh + ow + j)):
                        total += item(sums, z)
                    put(result, j, total)
                for j in range(ow):
                    result[j] = result[j] / (share * shares[j])

    return loop


def _backward(char: str) -> Callable[..., None]:
    """The shares of a row of windows are added into one row, which is added to all they cover."""
    T = elementary[char].T
    zero = T(0.0)

    def loop(grad, bounds, h, w, oh, ow, out, lo, hi):
        full_vectors()
        sums, shares = np.empty(w, grad.dtype), np.empty(ow, grad.dtype)
        given = np.empty(ow, grad.dtype)
        for j in range(ow):
            shares[j] = T(item(bounds, 3 * oh + 2 * ow + j))
        for plane in range(lo, hi):
            covered = 0  # rows that something was added to
            for i in range(oh):
                top, bottom = item(bounds, i), item(bounds, oh + i)
                row, share = row_of(grad, plane * oh + i, ow), T(item(bounds, 2 * oh + i))
                for j in range(ow):
                    given[j] = row[j] / (share * shares[j])
                fill(sums, zero)
                for j in range(ow):
                    value = item(given, j)
                    for z in range(item(bounds, 3 * oh + j), item(bounds, 3 * oh + ow + j)):
                        put(sums, z, item(sums, z) + value)
                while covered < top:  # no window sees these
                    fill(row_of(out, plane * h + covered, w), zero)
                    covered += 1
                for y in range(top, min(bottom, covered)):
                    target = row_of(out, plane * h + y, w)
                    for z in range(w):
                        target[z] += sums[z]
                while covered < bottom:
                    copy(row_of(out, plane * h + covered, w), sums)
                    covered += 1
            for y in range(covered, h):
                fill(row_of(out, plane * h + y, w), zero)

    return loop


LOOPS: dict[str, Loop] = {
    "forward": Loop("ainnnna", _forward),
    "backward": Loop("ainnnna", _backward),
}
