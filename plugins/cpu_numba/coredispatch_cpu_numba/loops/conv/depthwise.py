"""Convolutions of channels that are each alone, or in groups of very few.

A plane, or a strip of a large one, is copied with zeros around it, and windows slide down the copy:
see ``sliding.py``. With steps of two columns, the copy is cut into the even and the odd columns.
Where several rows of the result fit into one vector, they are computed as one: as in
``loops/conv/general.py``, what lies between them is not stored.

Vectors lie in one row else, and the last of a row ends with it, as the last tile ends with the
last row: what two of them have is computed twice, and is equal.

The gradient of the input is the same sum over the planes of the output's gradient, once for each
phase of the input: the rows and columns that are the same number of steps from a window's first.
The gradient of the weight is scalar products over the same windows. ``kernels/conv/depthwise.py``
makes the plans, and says what is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.sliding import (
    interleaved,
    padded,
    separated,
    sliding_dots,
    sliding_sums,
    stored,
    total_of,
)
from coredispatch_cpu_numba.spans import fill, item, part
from coredispatch_cpu_numba.vectors import machine

__all__ = ["LOOPS"]

_machine = machine()
_LINE = 64  # bytes of a line of the cache
_SLACK = 256  # elements that are read beyond the last ones
#: bytes of planes that are copied before the first is read: what has just been written in pieces is
#: not ready to be read as others
_BATCH = 16384
_SUMS = 16384  # bytes of sums of gradients of weights that are kept side by side
_FLUSH = 512  # vectors that are added up before their sums are


@inlined
def _together(lanes, width, pitch, ratio):
    """Rows of the result that lie in one vector."""
    return (lanes - width) // pitch + 1 if width < lanes and ratio == 1 else 1


@inlined
def following(at, inside, together, pitch, own):
    """Where the next row is, and which one of those in its vector."""
    if inside + 1 < together:
        return at + pitch, inside + 1
    return at + own - inside * pitch, 0


@inlined
def aligned(array, before):
    """Where to begin so that a line of the cache begins ``before`` elements later."""
    place = address_of(array) + before * array.itemsize
    return -place % _LINE // array.itemsize


def _strip_of(char: str) -> Callable[..., None]:
    """A compiled function that lays out the rows that some rows of the result, from ``y`` on, need.

    Rows of zeros are written only where there are strips: else they are 0 from the beginning.
    """
    zero, lanes = elementary[char].T(0.0), _machine.lanes(char)
    few = lanes // 2
    pad, pad_few, separate = padded(lanes), padded(few), separated(lanes)

    @inlined
    def strip(
        scratch, at, x, first, planes, high, wide, across, pitch, size, length, cut, left, begin,
        rows, strips,
    ):  # fmt: skip
        # Rows of the copy that are rows of the plane; begin is the first one's number there.
        low, stop = max(0, -begin), min(rows, high - begin)
        if strips:
            for i in range(planes):
                for r in range(rows):
                    if r < low or r >= stop:
                        for k in range(cut):
                            place = at + i * size + k * length + r * pitch
                            fill(part(scratch, place, place + pitch), zero)
        place, source, step = at + low * pitch, first + (begin + low) * wide, high * wide
        if cut == 2:
            one = place + left % 2 * length + left // 2
            two = place + (1 - left % 2) * length + (left + 1) // 2
            for i in range(planes):
                separate(
                    scratch, one + i * size, two + i * size, pitch, x, source + i * step, wide,
                    stop - low, across,
                )  # fmt: skip
            return
        place += left
        if across <= few:
            for i in range(planes):
                pad_few(
                    scratch, place + i * size, pitch, x, source + i * step, wide, stop - low, across
                )
        else:
            for i in range(planes):
                pad(
                    scratch, place + i * size, pitch, x, source + i * step, wide, stop - low, across
                )

    return strip


@memoized
def _column_of(char: str, height: int) -> Callable[..., None]:
    """A compiled function: some vectors, one below the other, of windows of so many rows."""
    lanes = _machine.lanes(char)
    seven, four, one = (sliding_sums(height, 1, n, lanes) for n in (7, 4, 1))
    seven_apart, four_apart = (sliding_sums(height, 2, n, lanes) for n in (7, 4))
    # Seven sums of so many products each would wait for one another.
    twice = height == 7 and _machine.registers >= 32
    fourteen = sliding_sums(height, 1, 14, lanes) if twice else seven

    @inlined
    def column(
        x, at, row, ratio, many, columns, first, count, w, start, step, level, out, to, pitch
    ):  # fmt: skip
        done = 0
        while done < many:
            left = many - done
            if twice and left >= 14 and ratio == 1:
                here, there = at + done * row, to + done * pitch
                fourteen(
                    x, here, row, columns, first, count, w, start, step, level, out, there, pitch
                )  # fmt: skip
                done += 14
            elif left >= 7 or (left > 4 and many >= 7):
                done = min(done, many - 7)
                here, there = at + done * ratio * row, to + done * pitch
                if ratio == 1:
                    seven(
                        x, here, row, columns, first, count, w, start, step, level, out, there,
                        pitch,
                    )  # fmt: skip
                else:
                    seven_apart(
                        x, here, row, columns, first, count, w, start, step, level, out, there,
                        pitch,
                    )  # fmt: skip
                done += 7
            elif left >= 4 or (left > 1 and many >= 4):
                done = min(done, many - 4)
                here, there = at + done * ratio * row, to + done * pitch
                if ratio == 1:
                    four(
                        x, here, row, columns, first, count, w, start, step, level, out, there,
                        pitch,
                    )  # fmt: skip
                else:
                    four_apart(
                        x, here, row, columns, first, count, w, start, step, level, out, there,
                        pitch,
                    )  # fmt: skip
                done += 4
            else:
                here, there = at + done * ratio * row, to + done * pitch
                one(
                    x, here, row, columns, first, count, w, start, step, level, out, there, pitch
                )  # fmt: skip
                done += 1

    return column


def _correlate(char: str) -> Callable[..., None]:
    """Counts groups of images."""
    lanes = _machine.lanes(char)
    few = lanes // 2
    strip, interleave = _strip_of(char), interleaved(lanes)
    store, store_few = stored(lanes), stored(few)
    of_1, of_2, of_3, of_5, of_7 = (_column_of(char, n) for n in (1, 2, 3, 5, 7))

    @inlined
    def result(
        x, at, row, ratio, many, width, columns, height, first, count, w, start, step, level, out,
        to, pitch,
    ):  # fmt: skip
        """The vectors of some rows."""
        left = 0
        while left < width:
            if left + lanes > width >= lanes:
                left = width - lanes
            here, there = at + left, to + left
            if height == 3:
                of_3(
                    x, here, row, ratio, many, columns, first, count, w, start, step, level, out,
                    there, pitch,
                )  # fmt: skip
            elif height == 5:
                of_5(
                    x, here, row, ratio, many, columns, first, count, w, start, step, level, out,
                    there, pitch,
                )  # fmt: skip
            elif height == 7:
                of_7(
                    x, here, row, ratio, many, columns, first, count, w, start, step, level, out,
                    there, pitch,
                )  # fmt: skip
            elif height == 2:
                of_2(
                    x, here, row, ratio, many, columns, first, count, w, start, step, level, out,
                    there, pitch,
                )  # fmt: skip
            else:
                of_1(
                    x, here, row * ratio, 1, many, columns, first, count, w, start, step, level,
                    out, there, pitch,
                )  # fmt: skip
            left += lanes

    def loop(x, w, bias, out, plan, phases, columns, lo, hi):
        full_vectors()
        groups, given, channels, above, beside, across = (
            plan[0], plan[1], plan[2], plan[3], plan[4], plan[5],
        )  # fmt: skip
        pitch, length, cut, top, before = plan[6], plan[7], plan[8], plan[9], plan[10]
        high, wide, down, aside, height = plan[11], plan[12], plan[13], plan[14], plan[15]
        ratio, reach, apart, next_, size = plan[16], plan[17], plan[18], plan[19], plan[20]
        tall, broad = (high + down - 1) // down, (wide + aside - 1) // aside
        together = _together(lanes, broad, pitch, ratio)
        staged = aside == 2 or broad < lanes
        # From vector to vector of the stage, and from row to row: what a vector has more is put
        # right by the next one.
        own = together * pitch if together > 1 else (broad + lanes - 1) // lanes * lanes
        line = pitch if together > 1 else own
        side = (height + together) * line + lanes
        slot, room = given * size, (aside * side + lanes - 1) // lanes * lanes
        batch = max(1, min(_BATCH // (slot * x.itemsize), hi - lo)) if height >= tall else 1
        scratch = np.zeros(batch * slot + _SLACK, x.dtype)
        stage = np.empty(batch * room + _SLACK if staged else 1, x.dtype)
        start, stage_start = aligned(scratch, (before + cut - 1) // cut), aligned(stage, 0)
        for begin in range(lo, hi, batch):
            stop = min(begin + batch, hi)
            for y in range(0, tall, height):
                have = min(height, tall - y)
                strip(
                    scratch, start, x, begin * given * above * beside, (stop - begin) * given,
                    above, beside, across, pitch, size, length, cut, before, y * ratio - top,
                    (have - 1) * ratio + reach, height < tall,
                )  # fmt: skip
                for o in range(channels):
                    for p in range(0, phases.size, 10 * aside):
                        rows = min(have, item(phases, p + 1) - y)
                        if rows <= 0:
                            continue
                        many = (rows + together - 1) // together
                        first_row = (y * down + item(phases, p)) * wide
                        for half in range(aside):
                            q = p + 10 * half
                            rise, step, first, count = (
                                item(phases, q + 3), item(phases, q + 4), item(phases, q + 5),
                                item(phases, q + 6),
                            )  # fmt: skip
                            row, times, extent = pitch, ratio, item(phases, q + 9)
                            if together == 2:
                                times = 2
                            elif together > 2:
                                rise, row = 1, together * pitch
                                first, count = item(phases, q + 7), item(phases, q + 8)
                            g = begin % groups
                            for unit in range(begin, stop):
                                level, weight = item(bias, g * channels + o), g * apart + o * next_
                                g = g + 1 if g + 1 < groups else 0
                                source = start + (unit - begin) * slot
                                if staged:
                                    to = stage_start + (unit - begin) * room + half * side
                                    result(
                                        scratch, source, row, times, many, extent, columns, rise,
                                        first, count, w, weight, step, level, stage, to, own,
                                    )  # fmt: skip
                                else:
                                    to = (unit * channels + o) * high * wide + first_row
                                    result(
                                        scratch, source, row, times, many, extent, columns, rise,
                                        first, count, w, weight, step, level, out, to, down * wide,
                                    )  # fmt: skip
                        if not staged:
                            continue
                        # Where all of a vector is written, the next row puts that right.
                        written = few if wide <= few else lanes
                        whole = (high * wide - first_row - written) // wide + 1
                        whole = max(0, min(whole, rows - 1)) if down == 1 else 0
                        for unit in range(begin, stop):
                            to = (unit * channels + o) * high * wide + first_row
                            at = stage_start + (unit - begin) * room
                            if aside == 2:
                                interleave(
                                    out, to, down * wide, stage, at, at + side, line, rows, wide
                                )
                            elif wide <= few:
                                store_few(out, to, down * wide, stage, at, line, whole, rows, wide)
                            else:
                                store(out, to, down * wide, stage, at, line, whole, rows, wide)

    return loop


@memoized
def _dots_of(char: str, height: int) -> Callable[..., None]:
    """A compiled function: scalar products of some vectors, one below the other."""
    lanes = _machine.lanes(char)
    seven, four, one = (sliding_dots(height, 1, n, lanes) for n in (7, 4, 1))
    seven_apart, four_apart = (sliding_dots(height, 2, n, lanes) for n in (7, 4))

    @inlined
    def dots(x, at, row, ratio, many, columns, first, count, g, begin, pitch, sums, to, step):
        done = 0
        while done < many:
            left = many - done
            here, there = at + done * ratio * row, begin + done * pitch
            if left >= 7:
                if ratio == 1:
                    seven(x, here, row, columns, first, count, g, there, pitch, sums, to, step)
                else:
                    seven_apart(
                        x, here, row, columns, first, count, g, there, pitch, sums, to, step
                    )
                done += 7
            elif left >= 4:
                if ratio == 1:
                    four(x, here, row, columns, first, count, g, there, pitch, sums, to, step)
                else:
                    four_apart(x, here, row, columns, first, count, g, there, pitch, sums, to, step)
                done += 4
            else:
                one(x, here, row, columns, first, count, g, there, pitch, sums, to, step)
                done += 1

    return dots


def _weight_grad(char: str) -> Callable[..., None]:
    """Counts groups. A result that is not finite may be wrong: vectors run into the next row.

    What they meet there is 0, whose product with an infinity is NaN.
    """
    zero, lanes = elementary[char].T(0.0), _machine.lanes(char)
    strip, total, few = _strip_of(char), total_of(lanes), lanes // 2
    pad, pad_few = padded(lanes), padded(few)
    of_1, of_2, of_3, of_5, of_7 = (_dots_of(char, n) for n in (1, 2, 3, 5, 7))

    @inlined
    def lay(upstream, begin, size, grad, first, planes, y, have, tall, broad, together, pitch, own):
        """Rows of the gradient, from ``y`` on, of some planes."""
        for k in range(planes):
            at, plane = begin + k * size, ((first + k) * tall + y) * broad
            if together == 1:
                pad(upstream, at, own, grad, plane, broad, have, broad)
            elif together * pitch == own and pitch == few:  # rows have no gaps
                pad_few(upstream, at, pitch, grad, plane, broad, have, broad)
            else:
                inside = 0
                for r in range(have):
                    pad(upstream, at, own, grad, plane + r * broad, broad, 1, broad)
                    at, inside = following(at, inside, together, pitch, own)

    @inlined
    def products(
        x, at, row, ratio, many, columns, height, first, count, g, begin, pitch, sums, to, step
    ):
        if height == 3:
            of_3(x, at, row, ratio, many, columns, first, count, g, begin, pitch, sums, to, step)
        elif height == 5:
            of_5(x, at, row, ratio, many, columns, first, count, g, begin, pitch, sums, to, step)
        elif height == 7:
            of_7(x, at, row, ratio, many, columns, first, count, g, begin, pitch, sums, to, step)
        elif height == 2:
            of_2(x, at, row, ratio, many, columns, first, count, g, begin, pitch, sums, to, step)
        else:
            of_1(x, at, row, 1, many, columns, first, count, g, begin, pitch, sums, to, step)

    @inlined
    def flush(out, to, sums, first, count):
        for k in range(count):
            out[to + k] += total(sums, (first + k) * lanes)
        fill(part(sums, first * lanes, (first + count) * lanes), zero)

    def loop(grad, x, out, plan, phases, columns, images, lo, hi):
        full_vectors()
        groups, given, channels, above, beside, across = (
            plan[0], plan[1], plan[2], plan[3], plan[4], plan[5],
        )  # fmt: skip
        pitch, length, cut, top, before = plan[6], plan[7], plan[8], plan[9], plan[10]
        tall, broad, height, ratio, reach = plan[11], plan[12], plan[15], plan[16], plan[17]
        taps, next_, size = plan[18], plan[19], plan[20]  # taps: of all channels of a group
        together = _together(lanes, broad, pitch, ratio)
        own = (broad + lanes - 1) // lanes * lanes  # from vector to vector of the gradient
        rise, step, first, count, row, times = (
            phases[3], phases[4], phases[5], phases[6], pitch, ratio,
        )  # fmt: skip
        if together == 2:
            times = 2
        elif together > 2:
            rise, row, first, count = 1, together * pitch, phases[7], phases[8]
        if rise == 1:
            row, times = row * times, 1
        slot, other = given * size, (height + together) * own
        batch = _BATCH // ((slot + channels * other) * x.itemsize) if height >= tall else 1
        batch = max(1, min(batch, hi - lo))
        # The planes of an image lie together: sums of many of them are kept.
        block = max(batch, min(_SUMS // (taps * lanes * x.itemsize), hi - lo))
        scratch = np.zeros(batch * slot + _SLACK, x.dtype)
        upstream = np.zeros(batch * channels * other + _SLACK, x.dtype)
        start, begin = aligned(scratch, (before + cut - 1) // cut), aligned(upstream, 0)
        sums = np.empty(block * taps * lanes, x.dtype)
        fill(sums, zero)
        for low in range(lo, hi, block):
            stop, added = min(hi, low + block), 0
            fill(part(out, low * taps, stop * taps), zero)
            for image in range(images):
                for one in range(low, stop, batch):
                    last = min(stop, one + batch)
                    for y in range(0, tall, height):
                        have = min(height, tall - y)
                        many = (have + together - 1) // together
                        strip(
                            scratch, start, x, (image * groups + one) * given * above * beside,
                            (last - one) * given, above, beside, across, pitch, size, length,
                            cut, before, y * ratio - top, (have - 1) * ratio + reach,
                            height < tall,
                        )  # fmt: skip
                        first_plane = (image * groups + one) * channels
                        lay(
                            upstream, begin, other, grad, first_plane, (last - one) * channels,
                            y, have, tall, broad, together, pitch, own,
                        )  # fmt: skip
                        for k in range((last - one) * channels):
                            g = k if channels == 1 else k // channels
                            to = (one - low + g) * taps + (k - g * channels) * next_
                            for left in range(0, broad, lanes):
                                products(
                                    scratch, start + g * slot + left, row, times, many, columns,
                                    rise, first, count, upstream, begin + k * other + left, own,
                                    sums, to, step,
                                )  # fmt: skip
                        if height < tall:  # a strip is long enough
                            many_taps = (last - one) * taps
                            flush(out, one * taps, sums, (one - low) * taps, many_taps)
                added += (tall + together - 1) // together * own // lanes
                if height >= tall and (added >= _FLUSH or image + 1 == images):
                    added = 0
                    flush(out, low * taps, sums, 0, (stop - low) * taps)

    return loop


LOOPS: dict[str, Loop] = {
    "correlate": Loop("aaaaiii", _correlate),
    "weight_grad": Loop("aaaiiin", _weight_grad),
}
