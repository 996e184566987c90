"""What reads images at the taps of grid_sample, and the shortest ways to the taps.

A block has up to 64 places; rows of scratch arrays have an entry for each, or two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, floor, full_vectors, rint
from coredispatch_cpu_numba.spans import item, part, put_two

__all__ = ["flat_of", "gather_of", "pairs_of", "whole_of"]

_compiled = compiled(fastmath={"contract"})


def whole_of(char: str) -> Any:
    """A compiled ``whole(at, limit)``: a place as int32; far outside, and NaN, just outside."""
    T = elementary[char].T

    @inlined
    def whole(at, limit):
        inside = (at >= T(0)) & (at < limit)
        return np.int32(choose(inside, at, T(-1)))

    return whole


def gather_of(char: str) -> Any:
    """Compiled functions that read a plane at the taps of a block's places.

    ``gather`` adds up four taps from ``tap`` on, the first four from 0 on; ``pick`` takes one tap,
    ``dot`` adds its product with a gradient. ``every`` says that no tap is beyond the image.

    """
    T = elementary[char].T

    @_compiled
    def bring(plane, reads, at, into):
        full_vectors()
        for j in range(into.size):
            into[j] = item(plane, np.intp(item(reads, at + j)))

    @inlined
    def weighted(value, offset, share):
        return choose(offset >= 0, value, T(0)) * share

    @_compiled
    def gather(plane, offsets, reads, shares, tap, values, result):
        full_vectors()
        at, n = tap * 64, result.size
        o0, o1 = part(offsets, at, at + 64), part(offsets, at + 64, at + 128)
        o2, o3 = part(offsets, at + 128, at + 192), part(offsets, at + 192, at + 256)
        s0, s1 = part(shares, at, at + 64), part(shares, at + 64, at + 128)
        s2, s3 = part(shares, at + 128, at + 192), part(shares, at + 192, at + 256)
        v0, v1 = part(values, 0, n), part(values, 64, 64 + n)
        v2, v3 = part(values, 128, 128 + n), part(values, 192, 192 + n)
        bring(plane, reads, at, v0)
        bring(plane, reads, at + 64, v1)
        bring(plane, reads, at + 128, v2)
        bring(plane, reads, at + 192, v3)
        for j in range(n):
            v0[j] = weighted(v0[j], o0[j], s0[j]) + weighted(v1[j], o1[j], s1[j])
        for j in range(n):
            v2[j] = weighted(v2[j], o2[j], s2[j]) + weighted(v3[j], o3[j], s3[j])
        if tap == 0:
            for j in range(n):
                result[j] = v0[j] + v2[j]
        else:
            for j in range(n):
                result[j] += v0[j] + v2[j]

    @_compiled
    def pick(plane, offsets, reads, every, result):
        full_vectors()
        bring(plane, reads, 0, result)
        if not every:
            for j in range(result.size):
                result[j] = choose(offsets[j] >= 0, result[j], T(0))

    @_compiled
    def dot(plane, offsets, reads, given, values, dots):
        full_vectors()
        v = part(values, 0, given.size)
        bring(plane, reads, 0, v)
        for j in range(given.size):
            dots[j] += given[j] * choose(offsets[j] >= 0, v[j], T(0))

    return gather, pick, dot


def pairs_of(char: str) -> Any:
    """As ``gather``, for neighbours side by side, which are read as one.

    ``pairs`` says of the two taps of a row where the pair begins that holds both, or the one that
    is inside; how much its elements weigh; and which of them are taps. ``gather_pairs`` adds up
    two such rows from ``two`` on.
    """
    T = elementary[char].T

    @_compiled
    def pairs(offsets, shares, two, count, bases, pair_shares, valid):
        full_vectors()
        tap, row = two * 128, two * 128
        o, p = part(offsets, tap, tap + 64), part(offsets, tap + 64, tap + 128)
        s, t = part(shares, tap, tap + 64), part(shares, tap + 64, tap + 128)
        base, own = part(bases, two * 64, two * 64 + 64), part(pair_shares, row, row + 128)
        taken = part(valid, row, row + 128)
        zero, one = np.int32(0), np.int32(1)
        for j in range(count):
            left, right = o[j] >= 0, p[j] >= 0
            last = np.int32(o[j] - one)  # the left tap is the last of its row
            base[j] = choose(left, choose(right, o[j], last), choose(right, p[j], zero))
            own[2 * j] = choose(right, choose(left, s[j], t[j]), T(0))
            own[2 * j + 1] = choose(left, choose(right, t[j], s[j]), T(0))
            taken[2 * j] = choose(right, one, zero)
            taken[2 * j + 1] = choose(left, one, zero)

    @_compiled
    def bring_pairs(plane, bases, count, into):
        for j in range(count):
            put_two(into, 2 * j, plane, np.intp(item(bases, j)))

    @_compiled
    def gather_pairs(plane, bases, pair_shares, valid, two, every, values, result):
        full_vectors()
        row, base, n = two * 128, two * 64, result.size
        v, w = part(values, 0, 128), part(values, 128, 256)
        s, t = part(pair_shares, row, row + 128), part(pair_shares, row + 128, row + 256)
        m, k = part(valid, row, row + 128), part(valid, row + 128, row + 256)
        bring_pairs(plane, part(bases, base, base + 64), n, v)
        bring_pairs(plane, part(bases, base + 64, base + 128), n, w)
        if every:
            for j in range(2 * n):
                v[j] = v[j] * s[j] + w[j] * t[j]
        else:
            for j in range(2 * n):
                v[j] = choose(m[j] != 0, v[j], T(0)) * s[j] + choose(k[j] != 0, w[j], T(0)) * t[j]
        if two == 0:
            for j in range(n):
                result[j] = v[2 * j] + v[2 * j + 1]
        else:
            for j in range(n):
                result[j] += v[2 * j] + v[2 * j + 1]

    return pairs, gather_pairs


def flat_of(char: str) -> Any:
    """Compiled functions that do for a block of a flat image with zeros around what ``block`` does.

    Each is one loop from the grid's entries to what ``pick`` and ``gather_pairs`` read: with few
    channels the steps of ``block`` take longer than the channels. They return whether no tap is
    beyond the image.
    """
    T, whole = elementary[char].T, whole_of(char)

    @inlined
    def spot(entry, size, align):
        return ((entry + T(1)) * T(size - align) - T(1 - align)) * T(0.5)

    @_compiled
    def nearest(entries, height, width, align, offsets, reads):
        full_vectors()
        outside = np.int32(0)
        for j in range(entries.size // 2):
            x, y = (
                spot(item(entries, 2 * j), width, align),
                spot(item(entries, 2 * j + 1), height, align),
            )
            px, py = whole(T(rint(x)), T(width)), whole(T(rint(y)), T(height))
            bits, offset = np.int32(px | py), np.int32(py * width + px)
            offsets[j] = choose(bits >= 0, offset, np.int32(-1))
            reads[j] = choose(bits >= 0, offset, np.int32(0))
            outside = np.int32(outside | bits)
        return outside >= 0

    @_compiled
    def linear(entries, height, width, align, bases, pair_shares, valid):
        full_vectors()
        zero, one, outside = np.int32(0), np.int32(1), np.int32(0)
        upper, lower = part(bases, 0, 64), part(bases, 64, 128)
        s, t = part(pair_shares, 0, 128), part(pair_shares, 128, 256)
        m, k = part(valid, 0, 128), part(valid, 128, 256)
        for j in range(entries.size // 2):
            x, y = (
                spot(item(entries, 2 * j), width, align),
                spot(item(entries, 2 * j + 1), height, align),
            )
            x0, y0 = T(floor(x)), T(floor(y))
            w, u = x - x0, y - y0
            px, qx = whole(x0, T(width)), whole(x0 + T(1), T(width))
            py, qy = whole(y0, T(height)), whole(y0 + T(1), T(height))
            outside = np.int32(outside | px | qx | py | qy)
            left, right = px >= 0, qx >= 0
            last = np.int32(px - one)  # the left tap is the last of its row
            base = choose(left, choose(right, px, last), choose(right, qx, zero))
            a = choose(right, choose(left, T(1) - w, w), T(0))
            b = choose(left, choose(right, w, T(1) - w), T(0))
            above, below = py >= 0, qy >= 0
            upper[j] = np.int32(choose(above, py, zero) * width + base)
            lower[j] = np.int32(choose(below, qy, zero) * width + base)
            s[2 * j], s[2 * j + 1] = (
                choose(above, a * (T(1) - u), T(0)),
                choose(above, b * (T(1) - u), T(0)),
            )
            t[2 * j], t[2 * j + 1] = choose(below, a * u, T(0)), choose(below, b * u, T(0))
            m[2 * j], m[2 * j + 1] = (
                choose(right & above, one, zero),
                choose(left & above, one, zero),
            )
            k[2 * j], k[2 * j + 1] = (
                choose(right & below, one, zero),
                choose(left & below, one, zero),
            )
        return outside >= 0

    return nearest, linear
