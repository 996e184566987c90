"""grid_sample: images at places between their elements, and both gradients.

A block of up to 64 places of one image is worked out first: for each neighbour (``tap``) of each
place its offset in a channel, -1 beyond the image, and its weight. Then channel by channel the taps
are gathered, or the gradients scattered. A flat image is one of depth 1.

Everything but the scattering is loops over the places of a block without a branch, which LLVM turns
into vectors: a tap beyond the image is read at offset 0 and not taken.

Codes: ``mode`` 0 nearest, 1 linear, 2 cubic; ``padding`` 0 zeros, 1 border, 2 reflection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, floor, full_vectors, rint
from coredispatch_cpu_numba.spans import add_to, fill, item, part

__all__ = ["LOOPS", "PLACES"]

#: places of a block
PLACES = 64
_TAPS = 16
_CUBIC = -0.75

_compiled = compiled(fastmath={"contract"})


def _bounded_of(char: str) -> Any:
    """``bounded(at, slopes, size, padding, align)``: where the image is read, and its slope."""
    T = elementary[char].T

    @_compiled
    def bounded(at, slopes, size, padding, align):
        full_vectors()
        zero, one, half, two = T(0), T(1), T(0.5), T(2)
        last = T(size - 1)
        fill(slopes, one)
        if padding == 0:
            return
        if padding == 2:
            low = zero if align else -half
            span = last if align else T(size)
            if span == zero:
                for j in range(at.size):
                    at[j], slopes[j] = at[j] * zero, zero
            else:
                for j in range(at.size):
                    distance = at[j] - low
                    back = distance < zero
                    distance = choose(back, -distance, distance)
                    slope = choose(back, -one, one)
                    flips = T(floor(distance / span))
                    extra = distance - flips * span
                    even = flips - two * T(floor(flips * half)) == zero
                    at[j] = choose(even, extra + low, span - extra + low)
                    slopes[j] = choose(even, slope, -slope)
        for j in range(at.size):
            above = at[j] > zero  # not of NaN
            near = choose(above, at[j], zero)
            slope = choose(above, slopes[j], zero)
            below = near < last
            at[j], slopes[j] = choose(below, near, last), choose(below, slope, zero)

    return bounded


def _axis_of(char: str) -> Any:
    """``axis(grid, start, dims, size, mode, padding, align, places, weights, slopes, at, turn)``.

    Fills rows of 64 entries with the neighbours along one dimension, their weights and the
    derivatives of these with respect to the entries of ``grid``, which begin at ``start`` and lie
    ``dims`` apart. What is beyond the image has place -1. ``at`` and ``turn`` are scratch.
    """
    T = elementary[char].T
    bounded = _bounded_of(char)
    A = _CUBIC

    @inlined
    def whole(at, limit):
        # Far outside, and NaN: just outside.
        inside = (at >= T(0)) & (at < limit)
        return np.int32(choose(inside, at, T(-1)))

    @_compiled  # called from an inlined function, ``bounded`` would have to be inlined, too
    def cubic(scale, size, padding, align, count, places, weights, slopes, at, turn):
        full_vectors()
        one, two, three, limit = T(1), T(2), T(3), T(size)
        for j in range(count):
            low = T(floor(at[j]))
            turn[j] = at[j] - low
            at[j] = low
        for k in range(4):
            row = k * 64
            away, sign = T(k - 1), (T(-1) if k < 2 else T(1))
            w, s = part(weights, row, row + 64), part(slopes, row, row + 64)
            if k == 1 or k == 2:
                for j in range(count):
                    d = (away - turn[j]) * sign
                    w[j] = (one - d) * (one + d * (one - T(A + 2) * d))
                    s[j] = (T(3 * (A + 2)) * d - T(2 * (A + 3))) * d * (-sign * scale)
            else:
                for j in range(count):
                    d = (away - turn[j]) * sign
                    w[j] = (d - one) * ((d - two) * (d - two)) * T(A)
                    s[j] = (three * d - T(4)) * (d - two) * T(A) * (-sign * scale)
        for k in range(3, -1, -1):
            row, away = part(at, k * 64, k * 64 + 64), T(k - 1)
            for j in range(count):
                row[j] = at[j] + away
            fill(part(row, count, 64), T(0))
        bounded(at, turn, size, padding, align)
        for j in range(256):
            places[j] = whole(T(rint(at[j])), limit)

    @_compiled
    def axis(
        grid, start, dims, count, size, mode, padding, align, places, weights, slopes, at, turn
    ):
        full_vectors()
        one, half, limit = T(1), T(0.5), T(size)
        if dims == 2:
            for j in range(count):
                at[j] = item(grid, start + 2 * j)
        else:
            for j in range(count):
                at[j] = item(grid, start + 3 * j)
        scale = (T(size - 1) if align else limit) * half
        if align:
            for j in range(count):
                at[j] = (at[j] + one) * scale
        else:
            for j in range(count):
                at[j] = ((at[j] + one) * limit - one) * half
        if mode == 2:
            cubic(scale, size, padding, align, count, places, weights, slopes, at, turn)
            return
        bounded(part(at, 0, count), part(slopes, 0, count), size, padding, align)
        if mode == 0:
            for j in range(count):
                places[j] = whole(T(rint(at[j])), limit)
            fill(part(weights, 0, count), one)
            return
        for j in range(count):
            low = T(floor(at[j]))
            turn[j] = at[j] - low
            places[j] = whole(low, limit)
            places[64 + j] = whole(low + one, limit)
        for j in range(count):
            weights[j], weights[64 + j] = one - turn[j], turn[j]
        for j in range(count):
            slope = slopes[j] * scale
            slopes[j], slopes[64 + j] = -slope, slope

    return axis


def _block_of(char: str) -> Any:
    """``block(...)``: the taps of the places ``[start, start + count)``; whether all are inside."""
    T = elementary[char].T
    axis = _axis_of(char)

    @_compiled
    def block(
        grid, start, count, dims, depth, height, width, mode, padding, align,
        places, weights, slopes, offsets, shares, at, turn,
    ):  # fmt: skip
        full_vectors()
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        deep = each if dims == 3 else 1
        for d in range(3):
            here, w = part(places, d * 256, d * 256 + 256), part(weights, d * 256, d * 256 + 256)
            s = part(slopes, d * 256, d * 256 + 256)
            if d < dims:
                size = width if d == 0 else (height if d == 1 else depth)
                first = start * dims + d
                axis(grid, first, dims, count, size, mode, padding, align, here, w, s, at, turn)
            else:
                for j in range(count):
                    here[j], w[j], s[j] = np.int32(0), T(1), T(0)
        outside = np.int32(0)
        for tap in range(deep * each * each):
            x, y = tap % each * 64, 256 + tap // each % each * 64
            z = 512 + tap // (each * each) * 64
            px, py, pz = part(places, x, x + 64), part(places, y, y + 64), part(places, z, z + 64)
            wx, wy, wz = (
                part(weights, x, x + 64), part(weights, y, y + 64), part(weights, z, z + 64),
            )  # fmt: skip
            first = tap * 64
            own, share = part(offsets, first, first + 64), part(shares, first, first + 64)
            for j in range(count):
                bits = np.int32(px[j] | py[j] | pz[j])
                offset = np.int32((pz[j] * height + py[j]) * width + px[j])
                own[j] = choose(bits >= 0, offset, np.int32(-1))
                outside = np.int32(outside | bits)
            for j in range(count):
                share[j] = choose(own[j] >= 0, (wx[j] * wy[j]) * wz[j], T(0))
        return deep * each * each, outside >= 0

    return block


def _gather_of(char: str) -> Any:
    """Compiled functions that read a plane at the taps of a block's places.

    ``gather`` adds up four taps from ``tap`` on, the first four from 0 on; ``pick`` takes one tap,
    ``dot`` adds its product with a gradient. ``every`` says that no tap is beyond the image.

    """
    T = elementary[char].T

    @_compiled
    def bring(plane, offsets, at, into):
        full_vectors()
        for j in range(into.size):
            offset = item(offsets, at + j)
            into[j] = item(plane, np.intp(choose(offset < 0, np.int32(0), offset)))

    @inlined
    def weighted(value, offset, share):
        return choose(offset >= 0, value, T(0)) * share

    @_compiled
    def gather(plane, offsets, shares, tap, values, result):
        full_vectors()
        at, n = tap * 64, result.size
        o0, o1 = part(offsets, at, at + 64), part(offsets, at + 64, at + 128)
        o2, o3 = part(offsets, at + 128, at + 192), part(offsets, at + 192, at + 256)
        s0, s1 = part(shares, at, at + 64), part(shares, at + 64, at + 128)
        s2, s3 = part(shares, at + 128, at + 192), part(shares, at + 192, at + 256)
        v0, v1 = part(values, 0, n), part(values, 64, 64 + n)
        v2, v3 = part(values, 128, 128 + n), part(values, 192, 192 + n)
        bring(plane, offsets, at, v0)
        bring(plane, offsets, at + 64, v1)
        bring(plane, offsets, at + 128, v2)
        bring(plane, offsets, at + 192, v3)
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
    def pick(plane, offsets, every, result):
        full_vectors()
        bring(plane, offsets, 0, result)
        if not every:
            for j in range(result.size):
                result[j] = choose(offsets[j] >= 0, result[j], T(0))

    @_compiled
    def dot(plane, offsets, given, values, dots):
        full_vectors()
        v = part(values, 0, given.size)
        bring(plane, offsets, 0, v)
        for j in range(given.size):
            dots[j] += given[j] * choose(offsets[j] >= 0, v[j], T(0))

    return gather, pick, dot


# The scratch arrays of a loop: bytes from its beginning. Numbers have room for float64.
_WEIGHTS, _SLOPES, _OFFSETS = 3072, 9216, 15360
_SHARES, _DOTS, _AT, _TURN, _END = 19456, 27648, 35840, 37888, 39936


def _scratch_of(char: str) -> Any:
    T = elementary[char].T

    @inlined
    def scratch(address):
        return (
            array_at(address, 768, np.int32),
            array_at(address + _WEIGHTS, 768, T),
            array_at(address + _SLOPES, 768, T),
            array_at(address + _OFFSETS, 1024, np.int32),
            array_at(address + _SHARES, 1024, T),
            array_at(address + _AT, 256, T),
            array_at(address + _TURN, 256, T),
        )

    return scratch


def _grid_sample(char: str) -> Callable[..., None]:
    """Counts blocks of all images."""
    block, scratch = _block_of(char), _scratch_of(char)
    gather, pick, _ = _gather_of(char)
    reserve = stack_words(_END // 8)

    def loop(
        x, grid, channels, depth, height, width, dims, places, mode, padding, align, out, lo, hi
    ):
        full_vectors()
        at, weights, slopes, offsets, shares, spot, turn = scratch(reserve())
        blocks = (places + 63) // 64
        size = depth * height * width
        for r in range(lo, hi):
            image = r // blocks
            begin = (r - image * blocks) * 64
            count = min(64, places - begin)
            taps, every = block(
                grid, image * places + begin, count, dims, depth, height, width, mode, padding,
                align, at, weights, slopes, offsets, shares, spot, turn,
            )  # fmt: skip
            for c in range(channels):
                first = (image * channels + c) * size
                plane = part(x, first, first + size)
                first = (image * channels + c) * places + begin
                result = part(out, first, first + count)
                if mode == 0:
                    pick(plane, offsets, every, result)
                else:
                    for tap in range(0, taps, 4):
                        gather(plane, offsets, shares, tap, spot, result)

    return loop


def _scatter_of(char: str) -> Any:
    @inlined
    def scatter(target, offset, value):
        if offset >= 0:
            add_to(target, np.intp(offset), value)

    @_compiled
    def add(target, given, offsets, shares, tap):
        """Four taps of each place after the other."""
        full_vectors()
        at = tap * 64
        o0, o1 = part(offsets, at, at + 64), part(offsets, at + 64, at + 128)
        o2, o3 = part(offsets, at + 128, at + 192), part(offsets, at + 192, at + 256)
        s0, s1 = part(shares, at, at + 64), part(shares, at + 64, at + 128)
        s2, s3 = part(shares, at + 128, at + 192), part(shares, at + 192, at + 256)
        for j in range(given.size):
            value = given[j]
            scatter(target, o0[j], value * s0[j])
            scatter(target, o1[j], value * s1[j])
            scatter(target, o2[j], value * s2[j])
            scatter(target, o3[j], value * s3[j])

    @_compiled
    def put_back(target, given, offsets):
        full_vectors()
        for j in range(given.size):
            scatter(target, offsets[j], given[j])

    return add, put_back


def _grid_sample_backward(char: str) -> Callable[..., None]:
    """Counts images; ``into`` and ``of_grid`` begin with zeros."""
    T = elementary[char].T
    block, scratch = _block_of(char), _scratch_of(char)
    dot = _gather_of(char)[2]
    add, put_back = _scatter_of(char)
    reserve = stack_words(_END // 8)

    @_compiled
    def collect(dots, weights, slopes, tap, each, dx, dy, dz):
        """Add what one tap says about the places; ``dots`` is how much each would gain by it."""
        full_vectors()
        x, y = tap % each * 64, 256 + tap // each % each * 64
        z = 512 + tap // (each * each) * 64
        wx, wy, wz = part(weights, x, x + 64), part(weights, y, y + 64), part(weights, z, z + 64)
        sx, sy, sz = part(slopes, x, x + 64), part(slopes, y, y + 64), part(slopes, z, z + 64)
        zero = T(0)
        for j in range(dx.size):  # beyond the image a weight may be NaN
            dx[j] += choose(dots[j] != zero, dots[j] * sx[j] * wy[j] * wz[j], zero)
        for j in range(dx.size):
            dy[j] += choose(dots[j] != zero, dots[j] * wx[j] * sy[j] * wz[j], zero)
        for j in range(dx.size):
            dz[j] += choose(dots[j] != zero, dots[j] * wx[j] * wy[j] * sz[j], zero)

    def loop(
        grad, x, grid, channels, depth, height, width, dims, places, mode, padding, align,
        into, of_grid, lo, hi,
    ):  # fmt: skip
        full_vectors()
        address = reserve()
        at, weights, slopes, offsets, shares, spot, turn = scratch(address)
        dots = array_at(address + _DOTS, 1024, T)
        size = depth * height * width
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        for image in range(lo, hi):
            for begin in range(0, places, 64):
                count = min(64, places - begin)
                start = image * places + begin
                taps, _ = block(
                    grid, start, count, dims, depth, height, width, mode, padding, align,
                    at, weights, slopes, offsets, shares, spot, turn,
                )  # fmt: skip
                fill(part(dots, 0, taps * 64), T(0))
                for c in range(channels):
                    first = (image * channels + c) * size
                    plane, target = part(x, first, first + size), part(into, first, first + size)
                    first = (image * channels + c) * places + begin
                    given = part(grad, first, first + count)
                    if mode == 0:
                        put_back(target, given, offsets)
                        continue
                    for tap in range(0, taps, 4):
                        add(target, given, offsets, shares, tap)
                    for tap in range(taps):
                        own = tap * 64
                        dot(
                            plane, part(offsets, own, own + 64), given, spot,
                            part(dots, own, own + 64),
                        )  # fmt: skip
                if mode == 0:
                    continue  # no place moves a tap
                fill(part(spot, 0, 192), T(0))
                dx, dy = part(spot, 0, count), part(spot, 64, 64 + count)
                dz = part(spot, 128, 128 + count)
                for tap in range(taps):
                    own = tap * 64
                    collect(part(dots, own, own + 64), weights, slopes, tap, each, dx, dy, dz)
                for j in range(count):
                    place = (start + j) * dims
                    of_grid[place], of_grid[place + 1] = dx[j], dy[j]
                    if dims == 3:
                        of_grid[place + 2] = dz[j]

    return loop


LOOPS: dict[str, Loop] = {
    "grid_sample": Loop("aannnnnnnnna", _grid_sample),
    "grid_sample_backward": Loop("aaannnnnnnnnaa", _grid_sample_backward),
}
