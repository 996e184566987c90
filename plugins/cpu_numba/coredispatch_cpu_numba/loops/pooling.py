"""Max pooling and its gradient, of windows of 2 by 2 side by side and of any. Counts planes.

The first maximum of a window, in row order, gets the gradient; a NaN is larger than every number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import copy, fill, item, part, put, row_of

__all__ = ["LOOPS"]


@inlined
def _larger(x, y):
    """The larger; NaN if either is."""
    return choose((y > x) | (y != y), y, x)


def _halving(char: str) -> Callable[..., None]:
    """A last row or column that no window covers is passed over."""

    def loop(x, out, h, w, lo, hi):
        full_vectors()
        oh, ow = h // 2, w // 2
        for plane in range(lo, hi):
            for y in range(oh):
                base, to = (plane * h + 2 * y) * w, (plane * oh + y) * ow
                above, below = part(x, base, base + w), part(x, base + w, base + 2 * w)
                result = part(out, to, to + ow)
                for z in range(ow):
                    first = _larger(item(above, 2 * z), item(above, 2 * z + 1))
                    second = _larger(item(below, 2 * z), item(below, 2 * z + 1))
                    put(result, z, _larger(first, second))

    return loop


def _windows(char: str) -> Callable[..., None]:
    """The rows that a row of windows covers are made one, which is gone through by position."""
    lowest = elementary[char].T(-np.inf)

    def loop(x, out, numbers, lo, hi):
        full_vectors()
        h, w, oh, ow = numbers[0], numbers[1], numbers[2], numbers[3]
        kh, kw, sh, sw = numbers[4], numbers[5], numbers[6], numbers[7]
        ph, pw, dh, dw = numbers[8], numbers[9], numbers[10], numbers[11]
        tops = np.empty(w, x.dtype)
        evens, odds = np.empty((w + 1) // 2, x.dtype), np.empty(w // 2, x.dtype)
        for plane in range(lo, hi):
            for i in range(oh):
                result = row_of(out, plane * oh + i, ow)
                fill(result, lowest)
                begin = i * sh - ph
                first = begin if begin >= 0 else begin + (dh - 1 - begin) // dh * dh
                if first < min(h, begin + kh * dh):
                    copy(tops, row_of(x, plane * h + first, w))
                else:
                    fill(tops, lowest)
                for y in range(first + dh, min(h, begin + kh * dh), dh):
                    row = row_of(x, plane * h + y, w)
                    for z in range(w):
                        tops[z] = _larger(tops[z], row[z])
                if sw == 2:  # shuffles of vectors, where each position would gather its elements
                    for z in range(w // 2):
                        put(evens, z, item(tops, 2 * z))
                        put(odds, z, item(tops, 2 * z + 1))
                    if w % 2:
                        evens[w // 2] = tops[w - 1]
                for kx in range(kw):
                    begin = kx * dw - pw
                    first = max(0, (sw - 1 - begin) // sw)
                    stop = min(ow, (w - 1 - begin) // sw + 1)
                    if sw == 2:
                        odd = begin % 2
                        shift = (begin - odd) // 2
                        half = part(odds, 0, w // 2) if odd == 1 else part(evens, 0, (w + 1) // 2)
                        for z in range(first, stop):
                            put(result, z, _larger(item(result, z), item(half, z + shift)))
                    else:
                        for z in range(first, stop):
                            put(result, z, _larger(item(result, z), item(tops, z * sw + begin)))

    return loop


def _halving_backward(char: str) -> Callable[..., None]:
    """A last row or column that no window covers gets 0."""
    zero = elementary[char].T(0.0)

    def loop(grad, x, out, h, w, lo, hi):
        full_vectors()
        oh, ow = h // 2, w // 2
        for plane in range(lo, hi):
            if h % 2:
                fill(part(out, ((plane + 1) * h - 1) * w, (plane + 1) * h * w), zero)
            for y in range(oh):
                base = (plane * h + 2 * y) * w
                given = part(grad, (plane * oh + y) * ow, (plane * oh + y + 1) * ow)
                above, below = part(x, base, base + w), part(x, base + w, base + 2 * w)
                upper, lower = part(out, base, base + w), part(out, base + w, base + 2 * w)
                if w % 2:
                    upper[w - 1] = zero
                    lower[w - 1] = zero
                for z in range(ow):
                    a, b = item(above, 2 * z), item(above, 2 * z + 1)
                    c, d = item(below, 2 * z), item(below, 2 * z + 1)
                    g = item(given, z)
                    # Whether the later one is larger, or the first NaN.
                    right = (b > a) | ((b != b) & (a == a))
                    first = choose(right, b, a)
                    beside = (d > c) | ((d != d) & (c == c))
                    second = choose(beside, d, c)
                    low = (second > first) | ((second != second) & (first == first))
                    put(upper, 2 * z, choose(low | right, zero, g))
                    put(upper, 2 * z + 1, choose((not low) & right, g, zero))
                    put(lower, 2 * z, choose(low & (not beside), g, zero))
                    put(lower, 2 * z + 1, choose(low & beside, g, zero))

    return loop


def _windows_backward(char: str) -> Callable[..., None]:
    """The maxima of a row of windows are found position by position, then their places are met."""
    zero = elementary[char].T(0.0)

    def loop(grad, x, out, numbers, lo, hi):
        full_vectors()
        h, w, oh, ow = numbers[0], numbers[1], numbers[2], numbers[3]
        kh, kw, sh, sw = numbers[4], numbers[5], numbers[6], numbers[7]
        ph, pw, dh, dw = numbers[8], numbers[9], numbers[10], numbers[11]
        best, places = np.empty(ow, x.dtype), np.empty(ow, np.int32)
        for plane in range(lo, hi):
            source = part(x, plane * h * w, (plane + 1) * h * w)
            target = part(out, plane * h * w, (plane + 1) * h * w)
            fill(target, zero)
            for i in range(oh):
                for z in range(ow):
                    places[z] = -1
                    best[z] = zero
                for ky in range(kh):
                    y = i * sh - ph + ky * dh
                    if y < 0 or y >= h:
                        continue
                    for kx in range(kw):
                        begin = kx * dw - pw
                        first = max(0, (sw - 1 - begin) // sw)
                        stop = min(ow, (w - 1 - begin) // sw + 1)
                        for z in range(first, stop):
                            at = y * w + z * sw + begin
                            value, most = item(source, at), item(best, z)
                            place = item(places, z)
                            # Larger, or the first NaN, or the first element at all.
                            above = (value > most) | ((value != value) & (most == most))
                            above |= place < 0
                            put(best, z, choose(above, value, most))
                            put(places, z, choose(above, np.int32(at), place))
                given = part(grad, (plane * oh + i) * ow, (plane * oh + i + 1) * ow)
                for z in range(ow):
                    at = item(places, z)
                    if at >= 0:
                        put(target, at, item(target, at) + item(given, z))

    return loop


FEW = 16  # elements of which any may be the largest so far: no branch tells beforehand


def _maxima(char: str) -> Callable[..., None]:
    """The largest element of each window, and where in its plane it is: the first, or a NaN.

    ``bounds`` has the first row of each of ``oh`` windows and one past its last, the same of the
    ``ow`` columns. Every window has elements.
    """

    def loop(x, bounds, h, w, oh, ow, dh, dw, out, places, lo, hi):
        for plane in range(lo, hi):
            base = plane * h * w
            for i in range(oh):
                top, bottom = item(bounds, i), item(bounds, oh + i)
                for j in range(ow):
                    left = item(bounds, 2 * oh + j)
                    right = item(bounds, 2 * oh + ow + j)
                    place = top * w + left
                    best = item(x, base + place)
                    if (bottom - top) * (right - left) <= FEW:
                        for y in range(top, bottom, dh):
                            for z in range(left, right, dw):
                                value = item(x, base + y * w + z)
                                better = (value > best) | ((value != value) & (best == best))
                                best = choose(better, value, best)
                                place = choose(better, y * w + z, place)
                    elif best == best:
                        for y in range(top, bottom, dh):
                            for z in range(left, right, dw):
                                value = item(x, base + y * w + z)
                                if not value <= best:  # larger, or no number
                                    best, place = value, y * w + z
                                    if best != best:
                                        break
                            if best != best:
                                break
                    put(out, (plane * oh + i) * ow + j, best)
                    put(places, (plane * oh + i) * ow + j, place)

    return loop


LOOPS: dict[str, Loop] = {
    "maxima": Loop("ainnnnnnai", _maxima),
    "halving": Loop("aann", _halving),
    "windows": Loop("aai", _windows),
    "halving_backward": Loop("aaann", _halving_backward),
    "windows_backward": Loop("aaai", _windows_backward, dtypes="fd"),
}
