"""Products of 8-bit integers, requantized to 8 bits while they are in the first cache.

A unit of work is a block of rows of the result and some of its *slabs*, a few panels of columns
each. Rows of the first factor are gathered as unsigned bytes (signed ones plus 128), a
convolution's windows of pixels among them; the other factor is packed as signed bytes, by
``kernels/nn/requantized.py``. The sums of raw integers wrap around, and so do the parts that zero
points add: what is left in the end, and fits 32 bits, is exact. Sums that are known to be small
leave the registers as bytes (``byte_tiles.py``); ``_finish`` does what is not so simple.

Where the processor has AMX, tiles of 16 rows and 16 columns are multiplied at once, four together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba import amx
from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.byte_tiles import (
    column_tile,
    depthwise_tile,
    row_multiplier,
    window_multiplier,
)
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.dots import has_quads, vector_bytes
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.requantization import (
    COLUMN_VECTORS,
    requantize_columns,
    requantized,
    requantized_wide,
)
from coredispatch_cpu_numba.spans import copy_apart, item, part, put
from coredispatch_cpu_numba.tiles import multiplier, panel_width
from coredispatch_cpu_numba.vectors import byte_tile, machine

__all__ = [
    "LANES",
    "LINE",
    "LOOPS",
    "NARROW",
    "PANEL",
    "PER_WORD",
    "ROWS",
    "SLAB",
    "STEP",
    "TILES",
    "WIDE",
]

#: rows of a block, panels of a slab, columns of a panel
ROWS, SLAB = 64, 4
PANEL = panel_width("B")
#: how many numbers 32 bits of a row and of a panel hold, as bytes or 16 bits each
PER_WORD = 4 if has_quads() else 2
#: whether tiles compute; panels are then two tiles wide
TILES = has_quads() and PANEL == 2 * amx.COLUMNS and amx.has_int8()
#: depths are padded to so many words
STEP = 16 if TILES else 1
#: columns that are brought to bytes at once
LANES = machine().lanes("f")
#: how plans want sums brought back: in registers, in 64 bits; 0: in 32 bits
NARROW, WIDE = 2, 1
#: bytes of a line of the cache: vectors that lie across two of them take twice as long
LINE = 64
_PLACES = 4  # of a depthwise convolution that are summed side by side
_requantize = requantize_columns(LANES)
_STORED: Any = np.uint8 if has_quads() else np.int16


@inlined
def _taken(target, source, flip):
    """Bytes as the rows have them; ``flip`` makes unsigned ones of signed ones."""
    if PER_WORD == 4 and flip == 0:
        copy_apart(target, source)
    else:
        for k in range(source.size):
            target[k] = _STORED(source[k] ^ flip)


@inlined
def fill_bytes(target, value):
    """``target[:] = value``."""
    for k in range(target.size):
        target[k] = np.uint8(value)


@inlined
def _finish(total, row, count, used, sums, at, parameters, padded, target, target_at, width, plan):
    """Bytes from the sums of a slab; ``at`` is its first column."""
    zero, low, high, wide, shifted = plan[4], plan[5], plan[6], plan[7] == WIDE, plan[8]
    zeros = part(parameters, at, at + used)
    start = part(parameters, padded + at, padded + at + used)
    factor = part(parameters, 2 * padded + at, 2 * padded + at + used)
    shift = part(parameters, 3 * padded + at, 3 * padded + at + used)
    whole = 0 if wide else used // LANES * LANES
    if shifted:
        for i in range(count):
            line = part(total, i * row, i * row + used)
            for j in range(used):
                line[j] = np.int32(line[j] - zeros[j] * sums[i])
    for j in range(0, whole, LANES):
        _requantize(
            total, j, row, count, start, factor, shift, j, target, target_at + j, width, zero, low,
            high,
        )  # fmt: skip
    if whole == used:
        return
    for i in range(count):
        line = part(total, i * row, i * row + used)
        out = part(target, target_at + i * width, target_at + i * width + used)
        if wide:
            for j in range(used):
                value = np.int64(np.int32(line[j] + start[j]))
                found = requantized_wide(value, factor[j], shift[j], zero, low, high)
                out[j] = np.uint8(found)
        else:
            for j in range(whole, used):
                value = np.int32(item(line, j) + item(start, j))
                put(out, j, requantized(value, item(factor, j), item(shift, j), zero, low, high))


@compiled()
def _tiled(rows, rows_at, row_words, count, words, packed, packed_at, columns, total):
    """``total = rows @ packed`` by tiles: the last of them reads, and writes, all its rows."""
    full_vectors()
    row, width = 4 * row_words, 4 * columns
    panel_row = 4 * PANEL
    start = address_of(rows) + 4 * rows_at
    for at in range(0, columns, PANEL):
        panel = address_of(packed) + 4 * (packed_at + at * words)
        for i in range(0, count, 2 * amx.ROWS):
            a, out = start + i * row, address_of(total) + i * width + 4 * at
            amx.zero(0)
            amx.zero(1)
            if count - i > amx.ROWS:
                amx.zero(2)
                amx.zero(3)
                for k in range(0, words, 16):
                    amx.load(4, a + 4 * k, row)
                    amx.load(6, panel + k * panel_row, panel_row)
                    amx.load(7, panel + k * panel_row + 64, panel_row)
                    amx.add_uint8_int8(0, 4, 6)
                    amx.load(5, a + 4 * k + amx.ROWS * row, row)
                    amx.add_uint8_int8(1, 4, 7)
                    amx.add_uint8_int8(2, 5, 6)
                    amx.add_uint8_int8(3, 5, 7)
                amx.store(2, out + amx.ROWS * width, width)
                amx.store(3, out + amx.ROWS * width + 64, width)
            else:
                for k in range(0, words, 16):
                    amx.load(4, a + 4 * k, row)
                    amx.load(6, panel + k * panel_row, panel_row)
                    amx.load(7, panel + k * panel_row + 64, panel_row)
                    amx.add_uint8_int8(0, 4, 6)
                    amx.add_uint8_int8(1, 4, 7)
            amx.store(0, out, width)
            amx.store(1, out + 64, width)


def _multiplier() -> Any:
    """``multiply(rows, rows_at, row_words, count, words, packed, packed_at, columns, total)``."""
    if TILES:
        return _tiled
    general = multiplier("B", False)

    @compiled()
    def multiply(rows, rows_at, row_words, count, words, packed, packed_at, columns, total):
        general(
            rows, rows_at, row_words, 1, count, words, packed, packed_at, columns, total, 0, 0,
            total, 0, total, 0,
        )  # fmt: skip

    return multiply


@inlined
def _begin():
    """What a loop calls before its first product."""
    if TILES:
        amx.configure()


@inlined
def _end():
    if TILES:
        amx.release()


def _columns() -> Any:
    """The sums of a block for some slabs of columns, brought to bytes."""
    multiply, narrow = _multiplier(), row_multiplier()
    panel, wide = PANEL, PANEL * SLAB
    finish = _finish

    @compiled()
    def columns_of(
        rows, rows_at, row_words, count, sums, packed, parameters, plan, first, stop, total, edge,
        target, target_at, width,
    ):  # fmt: skip
        full_vectors()
        words, columns = plan[2], plan[3]
        padded = (columns + panel - 1) // panel * panel
        if plan[7] == NARROW:
            at, end = first * wide, min(stop * wide, padded)
            own = part(parameters, at * COLUMN_VECTORS, parameters.size)
            narrow(
                rows, 4 * rows_at, 4 * row_words, count, words, 1, 0, packed, at * words, end - at,
                columns - at, own, plan[4], target, target_at + at, width, edge,
            )  # fmt: skip
            return
        for slab in range(first, stop):
            at = slab * wide
            filled = min(wide, padded - at)
            multiply(rows, rows_at, row_words, count, words, packed, at * words, filled, total)
            used = min(wide, columns - at)
            finish(
                total, filled, count, used, sums, at, parameters, padded, target, target_at + at,
                width, plan,
            )  # fmt: skip

    return columns_of


def _linear(char: str) -> Callable[..., None]:
    columns_of = _columns()
    per_word, stored, wide = PER_WORD, _STORED, PANEL * SLAB

    def loop(x, packed, parameters, out, plan, lo, hi):
        full_vectors()
        rows, depth, words, columns = plan[0], plan[1], plan[2], plan[3]
        shifted, flip, direct, portions = plan[8], plan[9], plan[10], plan[11]
        slabs = (columns + wide - 1) // wide
        share = (slabs + portions - 1) // portions
        room = plan[12]  # words between gathered rows
        total, edge = np.empty(ROWS * wide, np.int32), np.empty(ROWS * PANEL, np.uint8)
        sums = np.zeros(ROWS, np.int32)
        block = np.zeros(1 if direct else ROWS * room * per_word, stored)
        gathered = -1
        _begin()
        for unit in range(lo, hi):
            b, portion = unit // portions, unit % portions
            begin = b * ROWS
            count = min(ROWS, rows - begin)
            first = portion * share
            stop = min(slabs, first + share)
            target_at = begin * columns
            if direct:
                columns_of(
                    x, begin * words, words, count, sums, packed, parameters, plan, first, stop,
                    total, edge, out, target_at, columns,
                )  # fmt: skip
                continue
            if gathered != b:
                gathered = b
                for i in range(count):
                    source = part(x, (begin + i) * depth, (begin + i + 1) * depth)
                    line = part(block, i * room * per_word, i * room * per_word + depth)
                    _taken(line, source, flip)
                    if shifted:
                        found = np.int32(0)
                        for k in range(depth):
                            found += np.int32(line[k])
                        sums[i] = found
            columns_of(
                block, 0, room, count, sums, packed, parameters, plan, first, stop, total, edge,
                out, target_at, columns,
            )  # fmt: skip
        _end()

    return loop


@inlined
def _window(x, plan, image, oy, ox, group, line, at, stored):
    """A window of pixels, whose channels lie together, into ``line`` from ``at`` on."""
    flip, height, width, channels, kernel, across = (
        plan[9], plan[13], plan[14], plan[15], plan[18], plan[19],
    )  # fmt: skip
    given, fill = plan[28], plan[27]
    x0 = ox * plan[21] - plan[23]
    together = given == channels and plan[25] == 1 and x0 >= 0 and x0 + across <= width
    for ky in range(kernel):
        y = oy * plan[20] - plan[22] + ky * plan[24]
        for kx in range(1 if together else across):
            z = x0 + kx * plan[25]
            count = given * across if together else given
            target = part(line, at, at + count)
            if 0 <= y < height and 0 <= z < width:
                place = ((image * height + y) * width + z) * channels + group * given
                source = part(x, place, place + count)
                _taken(target, source, flip)
            else:
                for k in range(count):
                    target[k] = stored(fill)
            at += count


def _convolution(char: str) -> Callable[..., None]:
    """As ``_linear``, a row for each place of each image, and the channels of a group apart."""
    columns_of = _columns()
    per_word, stored, panel, wide = PER_WORD, _STORED, PANEL, PANEL * SLAB
    window = _window

    def loop(x, packed, parameters, out, plan, lo, hi):
        full_vectors()
        rows, depth, words, columns = plan[0], plan[1], plan[2], plan[3]
        shifted, portions, room = plan[8], plan[11], plan[12]
        high, across, groups = plan[16], plan[17], plan[26]
        slabs = (columns + wide - 1) // wide
        share = (slabs + portions - 1) // portions
        padded = (columns + panel - 1) // panel * panel
        blocks = (rows + ROWS - 1) // ROWS
        total, edge = np.empty(ROWS * wide, np.int32), np.empty(ROWS * PANEL, np.uint8)
        sums = np.zeros(ROWS, np.int32)
        block = np.zeros(ROWS * room * per_word, stored)
        gathered = -1
        _begin()
        for unit in range(lo, hi):
            b, portion = unit // portions, unit % portions
            group, begin = b // blocks, b % blocks * ROWS
            count = min(ROWS, rows - begin)
            first = portion * share
            stop = min(slabs, first + share)
            if gathered != b:
                gathered = b
                for i in range(count):
                    line = begin + i
                    ox, oy, image = line % across, line // across % high, line // across // high
                    at = i * room * per_word
                    window(x, plan, image, oy, ox, group, block, at, stored)
                    if shifted:
                        found = np.int32(0)
                        for k in range(at, at + depth):
                            found += np.int32(block[k])
                        sums[i] = found
            weights = part(packed, 4 * group * padded * words, 4 * (group + 1) * padded * words)
            each = parameters.size // groups
            own = part(parameters, group * each, group * each + each)
            columns_of(
                block, 0, room, count, sums, weights, own, plan, first, stop, total, edge, out,
                begin * columns * groups + group * columns, columns * groups,
            )  # fmt: skip
        _end()

    return loop


@compiled()
def _seen(seen, x, plan, image, top, count, line, pixel):
    """Rows of an image from ``top`` on, with the border, which ``seen`` has from the beginning.

    A row has ``line`` bytes there, a pixel ``pixel`` ones.
    """
    full_vectors()
    flip, height, width, fill = plan[9], plan[13], plan[14], plan[27]
    left = min(line, max(0, plan[23] * pixel))
    inside = min(line - left, width * pixel)
    for r in range(count):
        y = top + r
        target = part(seen, r * line + left, r * line + left + inside)
        if 0 <= y < height:
            place = (image * height + y) * width * pixel
            source = part(x, place, place + inside)
            if flip == 0:
                copy_apart(target, source)
            else:
                for k in range(inside):
                    target[k] = np.uint8(source[k] ^ flip)
        else:
            fill_bytes(target, fill)


def _windows(char: str) -> Callable[..., None]:
    """As ``_convolution`` of one group, with windows that are read where they lie.

    A unit is some rows of places of an image. What they see of the input is copied, with the border
    as the zero point; then a window is a segment of bytes in each row under the kernel, and the
    next window begins a few pixels further.
    """
    multiply, panel, wide, take = window_multiplier(), PANEL, PANEL * SLAB, _seen

    def loop(x, packed, parameters, out, plan, lo, hi):
        full_vectors()
        words, columns, limits, portions = plan[2], plan[3], plan[4], plan[11]
        given, high, across = plan[15], plan[16], plan[17]
        kernel, fill, tall = plan[18], plan[27], plan[29]
        down, aside, before, apart = plan[20], plan[21] * given, plan[22], plan[24]
        line = (across - 1) * aside + plan[19] * given
        segment = words // kernel
        slabs = (columns + wide - 1) // wide
        share = (slabs + portions - 1) // portions
        padded = (columns + panel - 1) // panel * panel
        pieces = (high + tall - 1) // tall
        # A segment goes on to whole words, whose weights are 0.
        seen = np.empty(((tall - 1) * down + (kernel - 1) * apart + 1) * line + 64, np.uint8)
        fill_bytes(seen, fill)
        edge = np.empty(ROWS * panel, np.uint8)
        gathered = -1
        for unit in range(lo, hi):
            b, portion = unit // portions, unit % portions
            image, top = b // pieces, b % pieces * tall
            some = min(tall, high - top)
            if gathered != b:
                gathered = b
                count = (some - 1) * down + (kernel - 1) * apart + 1
                take(seen, x, plan, image, top * down - before, count, line, given)
            begin = portion * share * wide
            # A panel stays in the first cache while all places are multiplied with it.
            for at in range(begin, min(padded, begin + share * wide), panel):
                own = part(parameters, at * COLUMN_VECTORS, parameters.size)
                for r in range(some):
                    for ox in range(0, across, ROWS):
                        to = ((image * high + top + r) * across + ox) * columns + at
                        multiply(
                            seen, r * down * line + ox * aside, aside, min(ROWS, across - ox),
                            segment, kernel, apart * line, packed, at * words, panel, columns - at,
                            own, limits, out, to, columns, edge,
                        )  # fmt: skip

    return loop


def _depthwise(char: str) -> Callable[..., None]:
    """Each channel alone; a unit is a row of places of an image, all their channels at once.

    The rows under the kernel are copied first, the border as the zero point: what that adds is
    known beforehand, as for any other pixel. Products have 32 bits.
    """
    finish, take, lanes = _finish, _seen, LANES
    several, one = byte_tile(LANES, _PLACES), byte_tile(LANES, 1)

    def loop(x, weights, parameters, out, plan, lo, hi):
        full_vectors()
        channels, high, across, kernel, wide = plan[15], plan[16], plan[17], plan[18], plan[19]
        step, down, aside, fill = plan[21] * channels, plan[24], plan[25], plan[27]
        padded = (channels + lanes - 1) // lanes * lanes
        line = ((across - 1) * plan[21] + (wide - 1) * aside + 1) * channels
        rows = np.empty(kernel * line + padded, np.uint8)
        fill_bytes(rows, fill)
        offsets = np.zeros(kernel * wide, np.int64)
        for ky in range(kernel):
            for kx in range(wide):
                offsets[ky * wide + kx] = ky * line + kx * aside * channels
        total, sums = np.empty(across * padded, np.int32), np.zeros(1, np.int32)
        for unit in range(lo, hi):
            image, oy = unit // high, unit % high
            for ky in range(kernel):
                row = part(rows, ky * line, rows.size)
                take(row, x, plan, image, oy * plan[20] - plan[22] + ky * down, 1, line, channels)
            for c in range(0, padded, lanes):
                ox = 0
                while ox + _PLACES <= across:
                    several(
                        rows, ox * step + c, step, offsets, weights, c, padded, total,
                        ox * padded + c, padded,
                    )  # fmt: skip
                    ox += _PLACES
                while ox < across:
                    one(
                        rows, ox * step + c, step, offsets, weights, c, padded, total,
                        ox * padded + c, padded,
                    )  # fmt: skip
                    ox += 1
            finish(
                total, padded, across, channels, sums, 0, parameters, padded, out,
                unit * across * channels, channels, plan,
            )  # fmt: skip

    return loop


def _depthwise_quads(char: str) -> Callable[..., None]:
    """As ``_depthwise``, with four products at a time, of bytes; a unit is some rows of places.

    ``plan[30]``: a quad of taps is a column of the kernel, so that neighbours share them.
    """
    several, one, take, lanes = depthwise_tile(_PLACES), depthwise_tile(1), _seen, vector_bytes()
    by_one, by_two = column_tile(_PLACES, 3, 1), column_tile(_PLACES, 3, 2)

    def loop(x, weights, parameters, out, plan, lo, hi):
        full_vectors()
        channels, high, across, kernel, wide = plan[15], plan[16], plan[17], plan[18], plan[19]
        limits, fill, tall, upright = plan[4], plan[27], plan[29], plan[30]
        step, down, apart, aside = plan[21] * channels, plan[20], plan[24], plan[25] * channels
        shared = plan[21] // plan[25] if upright and plan[21] % plan[25] == 0 else 0
        padded = (channels + lanes - 1) // lanes * lanes
        pieces = (high + tall - 1) // tall
        line = (across - 1) * step + (wide - 1) * aside + channels
        count = (tall - 1) * down + (kernel - 1) * apart + 1
        rows = np.empty(count * line + padded + LINE, np.uint8)
        fill_bytes(rows, fill)
        begin, drop = -address_of(rows) % LINE, apart * line
        quads = wide if upright else (kernel * wide + 3) // 4
        offsets = np.zeros(4 * quads, np.int64)
        for ky in range(kernel):
            for kx in range(wide):
                offsets[4 * kx + ky if upright else ky * wide + kx] = ky * drop + kx * aside
        edge = np.empty(across * lanes, np.uint8)
        for unit in range(lo, hi):
            image, top = unit // pieces, unit % pieces * tall
            some = min(tall, high - top)
            count = (some - 1) * down + (kernel - 1) * apart + 1
            seen = part(rows, begin, rows.size)
            take(seen, x, plan, image, top * down - plan[22], count, line, channels)
            for c in range(0, padded, lanes):
                factors = address_of(weights) + c * 4 * quads
                own, rest = address_of(parameters) + 4 * c * COLUMN_VECTORS, channels - c
                for r in range(some):
                    source, taps = (
                        address_of(rows) + begin + r * down * line + c,
                        address_of(offsets),
                    )
                    to = (image * high + top + r) * across * channels + c
                    target, pitch = address_of(out) + to, channels
                    if rest < lanes:
                        target, pitch = address_of(edge), lanes
                    ox = 0
                    while ox + _PLACES <= across:
                        at, place = source + ox * step, target + ox * pitch
                        if shared == 1:
                            by_one(at, aside, drop, kernel, factors, own, limits, place, pitch)
                        elif shared == 2:
                            by_two(at, aside, drop, kernel, factors, own, limits, place, pitch)
                        else:
                            several(quads, at, step, taps, factors, own, limits, place, pitch)
                        ox += _PLACES
                    while ox < across:
                        at, place = source + ox * step, target + ox * pitch
                        one(quads, at, step, taps, factors, own, limits, place, pitch)
                        ox += 1
                    if rest < lanes:
                        for i in range(across):
                            place = to + i * channels
                            given = part(edge, i * lanes, i * lanes + rest)
                            copy_apart(part(out, place, place + rest), given)

    return loop


LOOPS: dict[str, Loop] = {
    "linear": Loop("aawai", _linear, dtypes="B"),
    "convolution": Loop("aawai", _convolution, dtypes="B"),
    "windows": Loop("aawai", _windows, dtypes="B"),
    "depthwise": Loop("awwai", _depthwise, dtypes="B"),
    "depthwise_quads": Loop("aawai", _depthwise_quads, dtypes="B"),
}
