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
from functools import cache as memoized
from typing import Any

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, floor, full_vectors, rint
from coredispatch_cpu_numba.loops.nn.grid_taps import flat_of, gather_of, pairs_of, whole_of
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


@memoized
def _axis_of(char: str) -> Any:
    """``axis(given, count, size, mode, padding, align, places, weights, slopes, at, turn)``.

    Fills rows of 64 entries with the neighbours along one dimension, their weights and the
    derivatives of these with respect to the entries of the grid that are ``given``. What is beyond
    the image has place -1. ``at`` and ``turn`` are scratch.
    """
    T = elementary[char].T
    bounded, whole = _bounded_of(char), whole_of(char)
    A = _CUBIC

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
    def axis(given, count, size, mode, padding, align, places, weights, slopes, at, turn):
        full_vectors()
        one, half, limit = T(1), T(0.5), T(size)
        for j in range(count):
            at[j] = given[j]
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


@memoized
def _block_of(char: str) -> Any:
    """``block(...)``: the taps of the places ``[start, start + count)``; whether all are inside."""
    T = elementary[char].T
    axis = _axis_of(char)

    @_compiled
    def split(entries, dims, into):
        """The first, second and third entry of each place, in rows of 64."""
        full_vectors()
        x, y, z = part(into, 0, 64), part(into, 64, 128), part(into, 128, 192)
        if dims == 2:
            for j in range(entries.size // 2):
                x[j], y[j] = item(entries, 2 * j), item(entries, 2 * j + 1)
        else:
            for j in range(entries.size // 3):
                x[j], y[j] = item(entries, 3 * j), item(entries, 3 * j + 1)
                z[j] = item(entries, 3 * j + 2)

    @_compiled
    def block(
        grid, start, count, dims, depth, height, width, mode, padding, align,
        places, weights, slopes, offsets, reads, shares, at, turn,
    ):  # fmt: skip
        full_vectors()
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        deep = each if dims == 3 else 1
        split(part(grid, start * dims, (start + count) * dims), dims, shares)
        for d in range(3):
            here, w = part(places, d * 256, d * 256 + 256), part(weights, d * 256, d * 256 + 256)
            s = part(slopes, d * 256, d * 256 + 256)
            if d < dims:
                size = width if d == 0 else (height if d == 1 else depth)
                given = part(shares, d * 64, d * 64 + 64)
                axis(given, count, size, mode, padding, align, here, w, s, at, turn)
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
            read = part(reads, first, first + 64)
            for j in range(count):
                bits = np.int32(px[j] | py[j] | pz[j])
                offset = np.int32((pz[j] * height + py[j]) * width + px[j])
                own[j] = choose(bits >= 0, offset, np.int32(-1))
                read[j] = choose(bits >= 0, offset, np.int32(0))
                outside = np.int32(outside | bits)
            for j in range(count):
                share[j] = choose(own[j] >= 0, (wx[j] * wy[j]) * wz[j], T(0))
        return deep * each * each, outside >= 0

    return block


# The scratch arrays of a loop: bytes from its beginning. Numbers have room for float64.
_WEIGHTS, _SLOPES, _OFFSETS = 3072, 9216, 15360
_SHARES, _DOTS, _AT, _TURN, _READS, _END = 19456, 27648, 35840, 37888, 39936, 44032


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
            array_at(address + _READS, 1024, np.int32),
        )

    return scratch


def _grid_sample(char: str) -> Callable[..., None]:
    """Counts blocks of all images."""
    block, scratch = _block_of(char), _scratch_of(char)
    gather, pick, _ = gather_of(char)
    pairs, gather_pairs = pairs_of(char)
    nearest, linear = flat_of(char)
    T, reserve, reserve_pairs = elementary[char].T, stack_words(_END // 8), stack_words(1024)

    def loop(
        x, grid, channels, depth, height, width, dims, places, mode, padding, align, out, lo, hi
    ):
        full_vectors()
        at, weights, slopes, offsets, shares, spot, turn, reads = scratch(reserve())
        # rooms for 8 rows of 64 pairs of float64
        pair_shares, values = array_at(reserve_pairs(), 512, T), array_at(reserve_pairs(), 256, T)
        valid, bases = (
            array_at(reserve_pairs(), 512, np.int32), array_at(reserve_pairs(), 256, np.int32),
        )  # fmt: skip
        paired, flat = mode == 1 and width > 1, dims == 2 and padding == 0
        blocks = (places + 63) // 64
        size = depth * height * width
        for r in range(lo, hi):
            image = r // blocks
            begin = (r - image * blocks) * 64
            count = min(64, places - begin)
            start = image * places + begin
            entries, taps = part(grid, start * dims, (start + count) * dims), 4
            if flat and mode == 0:
                every = nearest(entries, height, width, align, offsets, reads)
            elif flat and paired:
                every = linear(entries, height, width, align, bases, pair_shares, valid)
            else:
                taps, every = block(
                    grid, start, count, dims, depth, height, width, mode, padding, align,
                    at, weights, slopes, offsets, reads, shares, spot, turn,
                )  # fmt: skip
                if paired:
                    for two in range(taps // 2):
                        pairs(offsets, shares, two, count, bases, pair_shares, valid)
            for c in range(channels):
                first = (image * channels + c) * size
                plane = part(x, first, first + size)
                first = (image * channels + c) * places + begin
                result = part(out, first, first + count)
                if mode == 0:
                    pick(plane, offsets, reads, every, result)
                elif paired:
                    for two in range(0, taps // 2, 2):
                        gather_pairs(plane, bases, pair_shares, valid, two, every, values, result)
                else:
                    for tap in range(0, taps, 4):
                        gather(plane, offsets, reads, shares, tap, spot, result)

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
    dot = gather_of(char)[2]
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
        at, weights, slopes, offsets, shares, spot, turn, reads = scratch(address)
        dots = array_at(address + _DOTS, 1024, T)
        size = depth * height * width
        each = 1 if mode == 0 else (2 if mode == 1 else 4)
        for image in range(lo, hi):
            for begin in range(0, places, 64):
                count = min(64, places - begin)
                start = image * places + begin
                taps, _ = block(
                    grid, start, count, dims, depth, height, width, mode, padding, align,
                    at, weights, slopes, offsets, reads, shares, spot, turn,
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
                            plane, part(offsets, own, own + 64), part(reads, own, own + 64),
                            given, spot, part(dots, own, own + 64),
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
