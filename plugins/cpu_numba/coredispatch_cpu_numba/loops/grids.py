"""grid_sample: images at places between their elements, and both gradients.

A block of up to 64 places of one image is worked out first: for each neighbour (``tap``) of each
place its offset in a channel, -1 beyond the image, and its weight. Then channel by channel the taps
are gathered, or the gradients scattered. A flat image is one of depth 1.

Codes: ``mode`` 0 nearest, 1 linear, 2 cubic; ``padding`` 0 zeros, 1 border, 2 reflection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import floor, full_vectors, rint
from coredispatch_cpu_numba.spans import part

__all__ = ["LOOPS", "PLACES"]

#: places of a block
PLACES = 64
_TAPS = 16
_CUBIC = -0.75


def _inside_of(char: str) -> Any:
    """``inside(at, size, padding, align)``: where the image is read, and its derivative."""
    T = elementary[char].T

    @inlined
    def inside(at, size, padding, align):
        zero, one, half, two = T(0), T(1), T(0.5), T(2)
        last = T(size - 1)
        if padding == 0:
            return at, one
        slope = one
        if padding == 2:
            low = zero if align else -half
            span = last if align else T(size)
            if span == zero:
                at, slope = at * zero, zero
            else:
                distance = at - low
                if distance < zero:
                    distance, slope = -distance, -slope
                flips = T(floor(distance / span))
                extra = distance - flips * span
                if flips - two * T(floor(flips * half)) == zero:
                    at = extra + low
                else:
                    at, slope = span - extra + low, -slope
        if not at > zero:  # also NaN
            at, slope = zero, zero
        if not at < last:
            at, slope = last, zero
        return at, slope

    return inside


def _taps_of(char: str) -> Any:
    """``taps(v, size, mode, padding, align, positions, weights, slopes, first)``.

    Fills four entries from ``first`` on, 64 apart, with the neighbours along one dimension, their
    weights and the derivatives of these with respect to ``v``. What is beyond has position -1.
    """
    T = elementary[char].T
    inside = _inside_of(char)
    A = _CUBIC

    @inlined
    def whole(at, size):
        # Far outside, and NaN: just outside.
        return int(at) if at >= T(0) and at < T(size) else -1

    @inlined
    def taps(v, size, mode, padding, align, positions, weights, slopes, first):
        one, half = T(1), T(0.5)
        if align:
            scale = T(size - 1) * half
            at = (v + one) * scale
        else:
            scale = T(size) * half
            at = ((v + one) * T(size) - one) * half
        if mode == 2:
            low = T(floor(at))
            share = at - low
            for k in range(4):
                near, _ = inside(low + T(k - 1), size, padding, align)
                d = T(k - 1) - share
                sign = T(-1)
                if d < T(0):
                    d, sign = -d, T(1)
                if k == 1 or k == 2:
                    weight = (one - d) * (one + d * (one - T(A + 2) * d))
                    slope = (T(3 * (A + 2)) * d - T(2 * (A + 3))) * d
                else:
                    weight = (d - one) * ((d - T(2)) * (d - T(2))) * T(A)
                    slope = (T(3) * d - T(4)) * (d - T(2)) * T(A)
                p = first + k * 64
                positions[p] = whole(T(rint(near)), size)
                weights[p] = weight
                slopes[p] = slope * sign * scale
            return
        at, slope = inside(at, size, padding, align)
        if mode == 0:
            positions[first] = whole(T(rint(at)), size)
            weights[first] = one
            slopes[first] = T(0)
            return
        low = T(floor(at))
        share = at - low
        slope *= scale
        positions[first] = whole(low, size)
        positions[first + 64] = whole(low + one, size)
        weights[first], weights[first + 64] = one - share, share
        slopes[first], slopes[first + 64] = -slope, slope

    return taps


def _block_of(char: str) -> Any:
    """``block(...)``: the taps of the places ``[start, stop)``; whether all are inside."""
    T = elementary[char].T
    taps = _taps_of(char)

    @inlined
    def block(
        grid, start, stop, dims, depth, height, width, mode, padding, align,
        positions, weights, slopes, offsets, shares,
    ):  # fmt: skip
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        deep = each if dims == 3 else 1
        every = True
        for j in range(stop - start):
            at = (start + j) * dims
            taps(grid[at], width, mode, padding, align, positions, weights, slopes, j)
            taps(grid[at + 1], height, mode, padding, align, positions, weights, slopes, 256 + j)
            if dims == 3:
                taps(grid[at + 2], depth, mode, padding, align, positions, weights, slopes, 512 + j)
            else:
                positions[512 + j], weights[512 + j], slopes[512 + j] = 0, T(1), T(0)
            tap = 0
            for z in range(deep):
                pz = positions[512 + z * 64 + j]
                for y in range(each):
                    py = positions[256 + y * 64 + j]
                    for x in range(each):
                        px = positions[x * 64 + j]
                        own = tap * 64 + j
                        if px < 0 or py < 0 or pz < 0:
                            offsets[own] = -1
                            every = False
                        else:
                            offsets[own] = (pz * height + py) * width + px
                        shares[own] = (weights[x * 64 + j] * weights[256 + y * 64 + j]) * weights[
                            512 + z * 64 + j
                        ]
                        tap += 1
        return tap, every

    return block


_WORDS = 64 * (12 * 3 + _TAPS * 3)


def _grid_sample(char: str) -> Callable[..., None]:
    """Counts blocks of all images."""
    T = elementary[char].T
    block = _block_of(char)
    reserve = stack_words(_WORDS)

    def loop(
        x, grid, channels, depth, height, width, dims, places, mode, padding, align, out, lo, hi
    ):
        full_vectors()
        address = reserve()
        positions = array_at(address, 768, np.int64)
        weights = array_at(address + 6144, 768, T)
        slopes = array_at(address + 12288, 768, T)
        offsets = array_at(address + 18432, 1024, np.int64)
        shares = array_at(address + 26624, 1024, T)
        blocks = (places + 63) // 64
        size = depth * height * width
        for r in range(lo, hi):
            image = r // blocks
            begin = (r - image * blocks) * 64
            count = min(64, places - begin)
            start = image * places + begin
            count_taps, every = block(
                grid, start, start + count, dims, depth, height, width, mode, padding, align,
                positions, weights, slopes, offsets, shares,
            )  # fmt: skip
            for c in range(channels):
                first = (image * channels + c) * size
                plane = part(x, first, first + size)
                first = (image * channels + c) * places + begin
                result = part(out, first, first + count)
                if every and count_taps == 4:
                    for j in range(count):
                        result[j] = (
                            plane[offsets[j]] * shares[j] + plane[offsets[64 + j]] * shares[64 + j]
                        ) + (
                            plane[offsets[128 + j]] * shares[128 + j]
                            + plane[offsets[192 + j]] * shares[192 + j]
                        )
                    continue
                for j in range(count):
                    total = T(0)
                    for tap in range(count_taps):
                        offset = offsets[tap * 64 + j]
                        if offset >= 0:
                            total += plane[offset] * shares[tap * 64 + j]
                    result[j] = total

    return loop


def _grid_sample_backward(char: str) -> Callable[..., None]:
    """Counts images; ``into`` begins with zeros."""
    T = elementary[char].T
    block = _block_of(char)
    reserve = stack_words(_WORDS)

    def loop(
        grad, x, grid, channels, depth, height, width, dims, places, mode, padding, align,
        into, of_grid, lo, hi,
    ):  # fmt: skip
        full_vectors()
        address = reserve()
        positions = array_at(address, 768, np.int64)
        weights = array_at(address + 6144, 768, T)
        slopes = array_at(address + 12288, 768, T)
        offsets = array_at(address + 18432, 1024, np.int64)
        shares = array_at(address + 26624, 1024, T)
        dots = array_at(address + 34816, 1024, T)
        size = depth * height * width
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        deep = each if dims == 3 else 1
        for image in range(lo, hi):
            for begin in range(0, places, 64):
                count = min(64, places - begin)
                start = image * places + begin
                count_taps, _ = block(
                    grid, start, start + count, dims, depth, height, width, mode, padding, align,
                    positions, weights, slopes, offsets, shares,
                )  # fmt: skip
                for i in range(count_taps * 64):
                    dots[i] = T(0)
                for c in range(channels):
                    first = (image * channels + c) * size
                    plane, target = part(x, first, first + size), part(into, first, first + size)
                    first = (image * channels + c) * places + begin
                    given = part(grad, first, first + count)
                    for tap in range(count_taps):
                        for j in range(count):
                            own = tap * 64 + j
                            offset = offsets[own]
                            if offset >= 0:
                                target[offset] += given[j] * shares[own]
                                dots[own] += given[j] * plane[offset]
                for j in range(count):
                    dx, dy, dz = T(0), T(0), T(0)
                    tap = 0
                    for z in range(deep):
                        wz, sz = weights[512 + z * 64 + j], slopes[512 + z * 64 + j]
                        for y in range(each):
                            wy, sy = weights[256 + y * 64 + j], slopes[256 + y * 64 + j]
                            for k in range(each):
                                dot = dots[tap * 64 + j]
                                wx, sx = weights[k * 64 + j], slopes[k * 64 + j]
                                tap += 1
                                if dot != T(0):  # beyond the image a weight may be NaN
                                    dx += dot * sx * wy * wz
                                    dy += dot * wx * sy * wz
                                    dz += dot * wx * wy * sz
                    at = (start + j) * dims
                    of_grid[at], of_grid[at + 1] = dx, dy
                    if dims == 3:
                        of_grid[at + 2] = dz

    return loop


LOOPS: dict[str, Loop] = {
    "grid_sample": Loop("aannnnnnnnna", _grid_sample),
    "grid_sample_backward": Loop("aaannnnnnnnnaa", _grid_sample_backward),
}
