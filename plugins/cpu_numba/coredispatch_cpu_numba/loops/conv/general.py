"""Convolutions as sums of shifted planes.

The padded input of some images lies in a scratch array, one plane for each channel, the rows of a
plane at a *pitch* that is the padded width. Then the input of every tap (channel and kernel
position) is the plane moved by a constant, and an output channel is the sum over taps of
``weight times moved plane``: no columns are gathered, and vectors run across the ends of rows. What
they compute there is not stored. The padding behind a row is that in front of the next one, and the
padding below an image that above the next one. Where that takes fewer of them, each vector lies in
one row: rows of 16 elements, of which flat ones of 17 would waste a ninth with their tiles' ends.

With a stride, a plane is cut into its *phases*, the positions that leave the same remainder: moved
planes are then contiguous again. Dilation and groups only change which taps there are. The gradient
of the input is the same sum over the planes of the output's gradient, once for each phase of the
input; the gradient of the weight is a scalar product for each output channel and tap.

``kernels/conv/plans.py`` makes the plans. One or two spatial dimensions count as three of which the
first have size 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import ELEMENTWISE, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.activation.softmax import dot_of
from coredispatch_cpu_numba.spans import fill, item, part, put
from coredispatch_cpu_numba.vectors import (
    copied,
    dot_tile,
    halved,
    machine,
    parted,
    product_tile,
)

__all__ = ["LOOPS", "filled_planes", "filled_upstream", "written_rows"]


@inlined
def block(left):
    """How many of ``left`` output channels the next tile takes."""
    return MOST if left >= MOST else (4 if left >= 4 else (2 if left >= 2 else 1))


_machine = machine()
MOST = 8 if _machine.registers >= 32 else 4
_LONG = 256  # taps


_compiled = compiled(fastmath=set(ELEMENTWISE))


@memoized
def filled_planes(char: str) -> Callable[..., None]:
    """A compiled function that lays out the planes of some channels of some images.

    It writes what lies inside the input. The padding around it is 0 from the beginning, and is at
    the same place for every block of images.
    """
    lanes = _machine.lanes(char)
    copy_row, copy_half, copy_halves = copied(lanes), halved(lanes), parted(lanes)

    @inlined
    def paired(phases, f, step):
        """Whether the next phase takes the elements between those of this one."""
        return (
            step == 2
            and 3 * f + 5 < phases.size
            and phases[3 * f] == phases[3 * f + 3]
            and phases[3 * f + 1] == phases[3 * f + 4]
            and phases[3 * f + 2] + 1 == phases[3 * f + 5]
        )

    @inlined
    def ends(r, step, size, width):
        """Where elements begin in a row of a plane, and where they end."""
        left = min(width, max(0, -(r // step)))
        return left, max(left, min(width, (size - r + step - 1) // step))

    def filled(scratch, x, source, phases, first, images, room, channel, channels):
        total, sd, sh, sw = source[0], source[1], source[2], source[3]
        pd, ph, pw = source[4], source[5], source[6]
        td, th, tw = source[7], source[8], source[9]
        bd, bh, bw, length = source[10], source[11], source[12], source[13]
        count = phases.size // 3
        for c in range(channel, channel + channels):
            second = False
            for f in range(count):
                if second:  # done with the phase before it
                    second = False
                    continue
                second = paired(phases, f, tw)
                rd, rh, rw = phases[3 * f] - bd, phases[3 * f + 1] - bh, phases[3 * f + 2] - bw
                left, right = ends(rw, tw, sw, pw)
                low, high = ends(rh, th, sh, ph)
                after, until = ends(rw + 1, tw, sw, pw)
                base = ((c - channel) * count + f) * length
                for i in range(first, min(first + room, images)):
                    for z in range(pd):
                        zz = z * td + rd
                        if zz < 0 or zz >= sd:
                            continue
                        place = base + (((i - first) * pd + z) * ph + low) * pw
                        start = (((i * total + c) * sd + zz) * sh + low * th + rh) * sw + rw
                        for _ in range(low, high):
                            if second:
                                to, other = place + left, place + length + after
                                many, rest = right - left, until - after
                                if (rw + tw * left) % 2:  # the row's first one is the other's
                                    to, other, many, rest = other, to, rest, many
                                copy_halves(scratch, to, many, other, rest, x, start - rw)
                            elif tw == 1:
                                copy_row(scratch, place + left, x, start + left, right - left)
                            elif tw == 2:
                                copy_half(scratch, place + left, x, start + 2 * left, right - left)
                            else:
                                row = part(scratch, place, place + pw)
                                for w in range(left, right):
                                    row[w] = x[start + w * tw]
                            place += pw
                            start += th * sw

    return _compiled(filled)


def filled_upstream(char: str) -> Callable[..., None]:
    """A compiled function that lays out the output's gradient as the planes of some images lie.

    It takes the channels of a group from ``low`` to ``high``, and writes rows, with zeros for
    images that a block lacks. What is between rows is 0 from the beginning. Channels are ``size``
    elements apart.
    """
    zero = np.uint16(0) if char == "E" else elementary[char].T(0.0)
    copy_row = copied(_machine.lanes(char))

    def filled(upstream, size, grad, source, target, group, first, low, high):
        images, groups, channels, room = target[0], target[1], target[3], target[4]
        od, oh, ow = target[7], target[8], target[9]
        pd, ph, pw = source[4], source[5], source[6]
        for c in range(low, high):
            for i in range(room):
                for z in range(od):
                    for y in range(oh):
                        to = (c - low) * size + ((i * pd + z) * ph + y) * pw
                        if first + i >= images:
                            fill(part(upstream, to, to + ow), zero)
                            continue
                        base = ((first + i) * groups + group) * channels + c
                        base = ((base * od + z) * oh + y) * ow
                        copy_row(upstream, to, grad, base, ow)

    return _compiled(filled)


def written_rows(char: str) -> Callable[..., None]:
    """A compiled function that writes ``have`` rows of planes, from ``row`` on, to the output.

    They are of ``many`` channels of a group, from ``channel`` on, which lie ``pitch`` apart.
    """
    copy_row = copied(_machine.lanes(char))

    def written(out, result, pitch, source, target, group, channel, many, first, row, have):
        groups, channels = target[1], target[3]
        od, oh, ow = target[7], target[8], target[9]
        dd, dh, dw = target[10], target[11], target[12]
        td, th, tw = target[13], target[14], target[15]
        rd, rh, rw = target[16], target[17], target[18]
        pd, ph, pw = source[4], source[5], source[6]
        for r in range(have):
            y, z = (row + r) % ph, (row + r) // ph
            i, z = first + z // pd, z % pd
            if y >= oh or z >= od:
                continue
            base = ((i * groups + group) * channels + channel) * dd + z * td + rd
            base = (base * dh + y * th + rh) * dw + rw
            for m in range(many):
                place, begin = m * pitch + r * pw, base + m * dd * dh * dw
                if tw == 1:
                    copy_row(out, begin, result, place, ow)
                else:
                    for w in range(ow):
                        out[begin + w * tw] = result[place + w]

    return _compiled(written)


def _pack(char: str) -> Callable[..., None]:
    """Weights in the order the tiles read them; counts groups."""

    def loop(weight, taps, channels, group, step, packed, lo, hi):
        count = taps.size
        for g in range(lo, hi):
            base, o = g * channels * count, 0
            while o < channels:
                rows = block(channels - o)
                first = g * group + o * step
                if rows == MOST:
                    for k in range(count):
                        place, to = first + item(taps, k), base + k * MOST
                        for m in range(MOST):
                            put(packed, to + m, item(weight, place + m * step))
                else:
                    for k in range(count):
                        for m in range(rows):
                            packed[base + k * rows + m] = weight[first + m * step + taps[k]]
                base += rows * count
                o += rows

    return loop


def _blocks(char: str) -> Callable[..., None]:
    """A compiled function: sums of blocks of ``MOST`` channels, for some rows of positions.

    All of the channels are multiplied with a tile's positions before the next tile: what the taps
    read of the planes comes from the second cache once. *apart*: each vector lies in one row, of
    ``width`` elements.
    """
    lanes = _machine.lanes(char)
    several = 3 if MOST == 8 else 2
    whole, single = product_tile(MOST, several, lanes), product_tile(MOST, 1, lanes)

    @_compiled
    def blocks(scratch, taps, at, pw, width, have, apart, packed, bias, c, many, result, pitch):
        full_vectors()
        count = taps.size
        if apart:
            for left in range(0, width, lanes):
                r = 0
                while r < have:
                    p, one = r * pw + left, r + several > have
                    for o in range(0, many, MOST):
                        w, to = (c + o) * count, o * pitch + p
                        if one:
                            single(
                                scratch, taps, at + p, pw, packed, w, bias, c + o, result, to, pitch
                            )
                        else:
                            whole(
                                scratch, taps, at + p, pw, packed, w, bias, c + o, result, to, pitch
                            )
                    r += 1 if one else several
        else:
            for p in range(0, have * pw, several * lanes):
                for o in range(0, many, MOST):
                    w, to = (c + o) * count, o * pitch + p
                    whole(scratch, taps, at + p, lanes, packed, w, bias, c + o, result, to, pitch)

    return blocks


def _correlate(char: str) -> Callable[..., None]:
    """Counts blocks of images, times groups, times parts of the output channels."""
    lanes = _machine.lanes(char)
    if MOST == 8:
        four, two, one = (product_tile(r, v, lanes) for r, v in ((4, 6), (2, 6), (1, 8)))
        of_four, middle, narrow = 6 * lanes, 6 * lanes, 8 * lanes
    else:
        four, two, one = (product_tile(r, v, lanes) for r, v in ((4, 2), (2, 4), (1, 8)))
        of_four, middle, narrow = 2 * lanes, 4 * lanes, 8 * lanes
    filled, written, blocks = filled_planes(char), written_rows(char), _blocks(char)

    def loop(x, packed, bias, out, source, phases, taps, target, lo, hi):
        full_vectors()
        images, groups, given, channels = target[0], target[1], target[2], target[3]
        room, parts, height = target[4], target[5], target[6]
        od, oh, ow = target[7], target[8], target[9]
        pd, ph, pw = source[4], source[5], source[6]
        count = taps.size
        # Few taps leave more to write: of fewer channels at a time, it stays near.
        band = (4 if count >= _LONG else 2) * MOST
        pitch = height * pw + narrow  # tiles may go on beyond the last position
        flat = ((min(room, images) - 1) * pd + od - 1) * ph + oh  # rows of a block
        kept = min(room, images) * od * oh * ((ow + lanes - 1) // lanes * lanes)
        # A vector that goes on beyond its row is put right by that of the next row only.
        apart = (ow % lanes == 0 or ow < lanes) and kept <= flat * pw
        scratch = np.zeros(given * (phases.size // 3) * source[13] + target[19], x.dtype)
        share = (channels + parts - 1) // parts
        share = (share + 7) // 8 * 8 if parts > 1 else share
        result = np.empty(min(band, max(share, MOST)) * pitch, x.dtype)
        for unit in range(lo, hi):
            piece, rest = unit % parts, unit // parts
            g, first = rest % groups, rest // groups * room
            filled(scratch, x, source, phases, first, images, room, g * given, given)
            stop = min(channels, piece * share + share)
            here = min(room, images - first)
            rows = oh if apart else ((here - 1) * pd + od - 1) * ph + oh
            for slice_ in range(here * od if apart else 1):
                top = (slice_ // od * pd + slice_ % od) * ph
                for row in range(top, top + rows, height):
                    have = min(height, top + rows - row)
                    at, width = row * pw, have * pw
                    o = piece * share
                    while o < stop:
                        many = block(stop - o)
                        c = g * channels + o
                        start = c * count
                        if many == MOST:
                            many = min(band, (stop - o) // MOST * MOST)
                            blocks(
                                scratch, taps, at, pw, ow, have, apart, packed, bias, c, many,
                                result, pitch,
                            )  # fmt: skip
                        elif many == 4:
                            for p in range(0, width, of_four):
                                four(
                                    scratch, taps, at + p, lanes, packed, start, bias, c, result, p,
                                    pitch,
                                )  # fmt: skip
                        elif many == 2:
                            for p in range(0, width, middle):
                                two(
                                    scratch, taps, at + p, lanes, packed, start, bias, c, result, p,
                                    pitch,
                                )  # fmt: skip
                        else:
                            for p in range(0, width, narrow):
                                one(
                                    scratch, taps, at + p, lanes, packed, start, bias, c, result, p,
                                    pitch,
                                )  # fmt: skip
                        written(out, result, pitch, source, target, g, o, many, first, row, have)
                        o += many

    return loop


def _weight_grad(char: str) -> Callable[..., None]:
    """Counts blocks of images, times groups, times parts of the output channels.

    Each block adds to sums of its own, for a chunk of the input channels at a time. Unless it is
    *exact*, vectors run across the ends of rows, where the output's gradient is 0. The product with
    an infinity there would be NaN: the caller then asks for the exact sums.
    """
    zero, lanes = elementary[char].T(0.0), _machine.lanes(char)
    many, taps_many, taps_one = (4, 6, 12) if MOST == 8 else (2, 4, 12)
    several, single = dot_tile(many, taps_many, lanes), dot_tile(1, taps_one, lanes)
    filled, filled_grad, dot = filled_planes(char), filled_upstream(char), dot_of(char)

    def loop(grad, x, out, source, phases, taps, target, lo, hi):
        full_vectors()
        images, groups, given, channels = target[0], target[1], target[2], target[3]
        room, exact, count = target[4], target[5], target[6]
        chunk, parts = target[20], target[21]
        od, oh, ow = target[7], target[8], target[9]
        pd, ph, pw = source[4], source[5], source[6]
        plane, kernel, wide = pd * ph * pw, count // given, taps.size
        size = (room * plane + lanes - 1) // lanes * lanes
        share = (channels + parts - 1) // parts
        share = (share + many - 1) // many * many
        scratch = np.zeros(chunk * (phases.size // 3) * source[13] + target[19], x.dtype)
        upstream = np.empty(share * size + lanes, x.dtype)
        # The rows of the upstream gradient begin with lines of the cache; moved planes cannot.
        start = -address_of(upstream) % (lanes * upstream.itemsize) // upstream.itemsize
        total = np.empty((share + many) * wide, x.dtype)
        fill(upstream, zero)
        for unit in range(lo, hi):
            piece, block = unit % parts, unit // parts
            g, first = block % groups, block // groups * room
            low = piece * share
            some = min(channels, low + share) - low
            rows = part(upstream, start, upstream.size)
            filled_grad(rows, size, grad, source, target, g, first, low, low + some)
            fill(total, zero)
            for begin in range(0, given, chunk):
                have = min(chunk, given - begin)
                filled(scratch, x, source, phases, first, images, room, g * given + begin, have)
                skip, found = begin * kernel, have * kernel
                if exact:
                    for c in range(some):
                        for k in range(found):
                            to = c * wide + skip + k
                            for r in range(min(room, images - first) * pd * ph):
                                at = r * pw
                                line = part(rows, c * size + at, c * size + at + ow)
                                moved = part(scratch, taps[k] + at, taps[k] + at + ow)
                                if r % ph < oh and r // ph % pd < od:
                                    total[to] += dot(line, moved)
                    continue
                o = 0
                while o < some:
                    at, to = start + o * size, o * wide + skip
                    if some - o >= many:
                        for k in range(0, found, taps_many):
                            several(upstream, at, size, scratch, taps, k, size, total, to + k, wide)
                        o += many
                    else:
                        for k in range(0, found, taps_one):
                            single(upstream, at, size, scratch, taps, k, size, total, to + k, wide)
                        o += 1
            base = (block * channels + low) * count
            for c in range(some):
                for k in range(count):
                    out[base + c * count + k] = total[c * wide + k]

    return loop


LOOPS: dict[str, Loop] = {
    "pack": Loop("ainnna", _pack),
    "correlate": Loop("aaaaiiii", _correlate),
    "weight_grad": Loop("aaaiiii", _weight_grad),
}
