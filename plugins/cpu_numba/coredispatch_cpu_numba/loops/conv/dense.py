"""Convolutions of many channels as products of matrices whose rows are positions.

Images are laid out with their channels side by side and zeros around them. What a window sees is
then a few long rows, which begin at a place that depends on the position alone: a tile of a product
takes any positions, and no columns are gathered. Weights are packed into panels, as the matrices of
``loops/linalg/products.py``. The gradient of the input is the same product over the output's
gradient; each phase of the input, that is each remainder of its positions by the stride, has some
of the taps. The gradient of the weight multiplies the output's gradient with the same rows.

``kernels/conv/dense.py`` makes the tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.gathered_tiles import gathered_dots, gathered_products, turn_apart
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy, fill, part
from coredispatch_cpu_numba.tiles import heights, panel_width, turner

__all__ = ["CHANNELS", "DEEP", "LOOPS"]

CHANNELS = 64  # that one thread lays out at a time
DEEP = 256  # positions that products of a gradient add up before their sums are


def _lay(char: str) -> Callable[..., None]:
    """Images with their channels side by side; counts blocks of channels, times images and groups.

    The first block writes the zeros, too.
    """
    turn, (_, lanes) = turn_apart(char), turner(char)
    zero, size = elementary[char].T(0.0), np.dtype(char).itemsize

    def loop(x, places, gaps, channels, room, laid, lo, hi):
        full_vectors()
        spatial, blocks = places.size, (channels + CHANNELS - 1) // CHANNELS
        for unit in range(lo, hi):
            image, begin = unit // blocks, unit % blocks * CHANNELS
            if begin == 0:
                for i in range(0, gaps.size, 2):
                    fill(part(laid, image * room + gaps[i], image * room + gaps[i + 1]), zero)
            target = address_of(laid) + image * room * size
            source = address_of(x) + image * channels * spatial * size
            end = min(channels, begin + CHANNELS)
            if spatial < lanes or channels < lanes:
                for p in range(spatial):
                    to, at = image * room + places[p] // size, image * channels * spatial + p
                    for c in range(begin, end):
                        laid[to + c] = x[at + c * spatial]
                continue
            # A few channels' positions in a row: as many streams as the processor reads ahead of.
            for c in range(begin, end, lanes):
                channel = min(c, channels - lanes)
                for p in range(0, spatial, lanes):
                    first = min(p, spatial - lanes)
                    turn(
                        source + (channel * spatial + first) * size, spatial * size,
                        target + channel * size, address_of(places) + 8 * first, lanes,
                    )  # fmt: skip

    return loop


def _pack(char: str) -> Callable[..., None]:
    """Weights as panels of output channels; counts blocks of these, times groups.

    Lines of a weight are the output channels, ``apart`` elements from each other; ``outer`` times,
    ``columns`` elements of a line become the rows ``rows_of`` of a panel, each time one further and
    ``next_`` elements later.
    """
    turn, (_, lanes), width = turn_apart(char), turner(char), panel_width(char)
    zero, size = elementary[char].T(0.0), np.dtype(char).itemsize

    def loop(weight, rows_of, channels, group, apart, outer, next_, packed, lo, hi):
        full_vectors()
        columns, line = rows_of.size, width * size
        places = np.empty(columns, np.int64)
        for j in range(columns):
            places[j] = rows_of[j] * line
        panels, blocks = (channels + width - 1) // width, (channels + CHANNELS - 1) // CHANNELS
        length = outer * columns * width
        for unit in range(lo, hi):
            g, begin = unit // blocks, unit % blocks * CHANNELS
            for first in range(begin, min(channels, begin + CHANNELS), lanes):
                half, rows = first % width, min(lanes, channels - first)
                base = (g * panels + first // width) * length
                if half == 0 and channels - first < width:
                    fill(part(packed, base, base + length), zero)
                base += half
                target = address_of(packed) + base * size
                for k in range(outer):
                    at = g * group + first * apart + k * next_
                    if apart == 1:  # lines of one element each
                        to = base + (k + rows_of[0]) * width
                        copy(part(packed, to, to + rows), part(weight, at, at + rows))
                        continue
                    for j in range(0, columns, lanes):
                        # A square ends within the weight: its last columns may be others' elements.
                        start = j if columns < lanes else min(j, columns - lanes)
                        end = at + (lanes - 1) * apart + start + lanes
                        if rows == lanes and end <= weight.size:
                            turn(
                                address_of(weight) + (at + start) * size, apart * size,
                                target + k * line, address_of(places) + 8 * start,
                                min(columns, lanes),
                            )  # fmt: skip
                        else:
                            for column in range(start, min(start + lanes, columns)):
                                to = base + (k + rows_of[column]) * width
                                for r in range(rows):
                                    packed[to + r] = weight[at + r * apart + column]

    return loop


def _product(char: str) -> Callable[..., None]:
    """Counts blocks of positions, times groups.

    A slice is where its elements begin in what a window sees, how many there are, and the row of
    the panels at which they begin.
    """
    width, size = panel_width(char), np.dtype(char).itemsize
    zero = elementary[char].T(0.0)
    tallest, *shorter = heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first_tile, second, third, fourth = (gathered_products(char, h) for h in (tallest, h2, h3, h4))

    @inlined
    def column(rows, depth, a, a_at, panel, c_in, in_at, c_out, out_at):
        left = rows
        while left >= tallest:
            first_tile(depth, a, a_at, panel, c_in, in_at, c_out, out_at)
            a_at, in_at, out_at = a_at + 8 * tallest, in_at + 8 * tallest, out_at + 8 * tallest
            left -= tallest
        if left >= h2:
            second(depth, a, a_at, panel, c_in, in_at, c_out, out_at)
            a_at, in_at, out_at = a_at + 8 * h2, in_at + 8 * h2, out_at + 8 * h2
            left -= h2
        if left >= h3:
            third(depth, a, a_at, panel, c_in, in_at, c_out, out_at)
            a_at, in_at, out_at = a_at + 8 * h3, in_at + 8 * h3, out_at + 8 * h3
            left -= h3
        if left >= h4:
            fourth(depth, a, a_at, panel, c_in, in_at, c_out, out_at)

    def loop(
        laid, reads, room, slices, packed, length, bias, out, writes, spatial, groups, channels,
        total, tall, lo, hi,
    ):  # fmt: skip
        full_vectors()
        panels, positions = (channels + width - 1) // width, reads.size
        pitch = panels * width
        from_, to = np.empty(tall, np.int64), np.empty(tall, np.int64)
        same, level = np.zeros(tall, np.int64), np.empty(pitch, bias.dtype)
        fill(level, zero)
        for unit in range(lo, hi):
            g, first = unit % groups, unit // groups * tall
            copy(part(level, 0, channels), part(bias, g * channels, (g + 1) * channels))
            count = min(tall, total - first)
            image, p = first // positions, first % positions
            for r in range(count):
                from_[r] = ((image * groups + g) * room + reads[p]) * size
                to[r] = ((image * groups + g) * spatial + writes[p]) * pitch * size
                p += 1
                if p == positions:
                    image, p = image + 1, 0
            a_at, out_at = address_of(from_), address_of(to)
            for s in range(0, slices.size, 3):
                a = address_of(laid) + slices[s] * size
                for panel in range(panels):
                    shift = panel * width * size
                    row = ((g * panels + panel) * length + slices[s + 2]) * width
                    place = address_of(packed) + row * size
                    target = address_of(out) + shift
                    if s == 0:
                        start = address_of(level) + shift
                        column(
                            count, slices[s + 1], a, a_at, place, start, address_of(same), target,
                            out_at,
                        )  # fmt: skip
                    else:
                        column(count, slices[s + 1], a, a_at, place, target, out_at, target, out_at)

    return loop


def _part_channels(char: str) -> Callable[..., None]:
    """Results with channels side by side as images; counts as ``_lay`` does."""
    turn, lanes = turner(char)
    width, size = panel_width(char), np.dtype(char).itemsize

    def loop(laid, channels, spatial, out, lo, hi):
        full_vectors()
        pitch = (channels + width - 1) // width * width
        blocks = (channels + CHANNELS - 1) // CHANNELS
        for unit in range(lo, hi):
            image, begin = unit // blocks, unit % blocks * CHANNELS
            end = min(channels, begin + CHANNELS)
            from_, to = image * spatial * pitch, image * channels * spatial
            if spatial < lanes or channels < lanes:
                for c in range(begin, end):
                    for p in range(spatial):
                        out[to + c * spatial + p] = laid[from_ + p * pitch + c]
                continue
            for c in range(begin, end, lanes):
                channel = min(c, channels - lanes)
                for p in range(0, spatial, lanes):
                    first = min(p, spatial - lanes)
                    turn(
                        address_of(laid) + (from_ + first * pitch + channel) * size, pitch * size,
                        address_of(out) + (to + channel * spatial + first) * size, spatial * size,
                    )  # fmt: skip

    return loop


def _upstream(char: str) -> Callable[..., None]:
    """The output's gradient with the positions of all images in one row; counts channels."""

    def loop(grad, images, channels, spatial, pitch, rows, lo, hi):
        full_vectors()
        for c in range(lo, hi):
            for n in range(images):
                source, target = (n * channels + c) * spatial, c * pitch + n * spatial
                copy(part(rows, target, target + spatial), part(grad, source, source + spatial))

    return loop


def _weight_grad(char: str) -> Callable[..., None]:
    """Counts blocks of output channels, times groups and chunks of positions.

    Each chunk has sums of its own, which lie tap by tap.
    """
    width, size = panel_width(char), np.dtype(char).itemsize
    zero = elementary[char].T(0.0)
    tallest, *shorter = heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first_tile, second, third, fourth = (gathered_dots(char, h) for h in (tallest, h2, h3, h4))

    @inlined
    def column(rows, depth, a, a_row, panel, places, c, c_row):
        left = rows
        while left >= tallest:
            first_tile(depth, a, a_row, panel, places, c, c_row)
            a, c, left = a + tallest * a_row, c + tallest * c_row, left - tallest
        if left >= h2:
            second(depth, a, a_row, panel, places, c, c_row)
            a, c, left = a + h2 * a_row, c + h2 * c_row, left - h2
        if left >= h3:
            third(depth, a, a_row, panel, places, c, c_row)
            a, c, left = a + h3 * a_row, c + h3 * c_row, left - h3
        if left >= h4:
            fourth(depth, a, a_row, panel, places, c, c_row)

    def loop(
        laid, reads, room, shifts, rows, pitch, sums, groups, channels, given, total, chunk, tall,
        lo, hi,
    ):  # fmt: skip
        full_vectors()
        taps, positions = shifts.size, reads.size
        across = (given + width - 1) // width * width
        blocks = (channels + tall - 1) // tall
        from_ = np.empty(DEEP, np.int64)
        for unit in range(lo, hi):
            outer, first = unit // blocks, unit % blocks * tall
            begin, g = outer // groups * chunk, outer % groups
            end, count = min(total, begin + chunk), min(tall, channels - first)
            base = (outer * channels + first) * taps * across
            fill(part(sums, base, base + count * taps * across), zero)
            image, p = begin // positions, begin % positions
            for q in range(begin, end, DEEP):
                deep = min(DEEP, end - q)
                for k in range(deep):
                    from_[k] = ((image * groups + g) * room + reads[p]) * size
                    p += 1
                    if p == positions:
                        image, p = image + 1, 0
                a = address_of(rows) + ((g * channels + first) * pitch + q) * size
                for t in range(taps):
                    for c in range(0, across, width):
                        column(
                            count, deep, a, pitch * size,
                            address_of(laid) + (shifts[t] + c) * size, address_of(from_),
                            address_of(sums) + (base + t * across + c) * size,
                            taps * across * size,
                        )  # fmt: skip

    return loop


def _fold(char: str) -> Callable[..., None]:
    """Sums of all chunks as the weight has them, taps side by side; counts output channels."""
    width, size = panel_width(char), np.dtype(char).itemsize
    turn, lanes = turner(char)

    def loop(sums, chunks, channels, given, taps, out, lo, hi):
        full_vectors()
        across = (given + width - 1) // width * width
        line = np.empty(given * taps + lanes * lanes, out.dtype)
        for o in range(lo, hi):
            from_, to = o * taps * across, o * given * taps
            own = part(sums, from_, from_ + taps * across)
            for k in range(1, chunks):
                at = from_ + k * channels * taps * across
                other = part(sums, at, at + taps * across)
                for i in range(own.size):
                    own[i] += other[i]
            if taps == 1:
                copy(part(out, to, to + given), part(sums, from_, from_ + given))
                continue
            for t in range(0, taps, lanes):
                # What a square writes beyond a channel's last tap, the next channels write again.
                tap, whole = max(0, min(t, taps - lanes)), given // lanes * lanes
                for c in range(0, whole, lanes):
                    turn(
                        address_of(sums) + (from_ + tap * across + c) * size, across * size,
                        address_of(line) + (c * taps + tap) * size, taps * size,
                    )  # fmt: skip
                for c in range(whole, given):
                    for k in range(tap, min(tap + lanes, taps)):
                        line[c * taps + k] = sums[from_ + k * across + c]
            copy(part(out, to, to + given * taps), part(line, 0, given * taps))

    return loop


LOOPS: dict[str, Loop] = {
    "lay": Loop("aiinna", _lay),
    "pack": Loop("ainnnnna", _pack),
    "product": Loop("ainianaainnnnn", _product),
    "part_channels": Loop("anna", _part_channels),
    "upstream": Loop("annnna", _upstream),
    "weight_grad": Loop("ainianannnnnn", _weight_grad),
    "fold": Loop("annnna", _fold),
}
