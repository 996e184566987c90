"""Winograd's convolution of 3 x 3 weights: 36 products of matrices for tiles of 4 x 4 results.

See ``winograd_tiles.py`` for the transforms, and ``kernels/conv/winograd.py`` for the tables.
Images and weights are laid out by the loops of ``dense.py``. The inputs of some hundred tiles are
transformed at a time, and then a panel of output channels goes all the way: a slice of its weights
is transformed, multiplied 36 times, and what the slices give is added up and transformed back. The
36 matrices of all weights are nowhere: those of 512 channels took twice as long to write to memory
as their products with 32 tiles take.

A tile is four numbers of a table: where in an image that is laid out its patch begins, the position
of its first result, and how many rows and columns of results it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.gathered_tiles import gathered_products, turn_apart
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import copy, fill, part
from coredispatch_cpu_numba.tiles import heights, panel_width, turner, vector_bytes
from coredispatch_cpu_numba.winograd_tiles import POINTS, filters, outputs, patches

__all__ = ["CHANNELS", "DEPTH", "LOOPS", "ODD"]

CHANNELS = 32  # of the results, that one thread makes at a time: whole panels
DEPTH = 64  # channels of a slice: products that are added up before their sums are
TAPS = 9
ODD = 80  # elements between matrices, which do not fall on few places of the cache
_SIZE = 4
_LANES = vector_bytes() // _SIZE


def _multiplied() -> Any:
    """A panel of columns of a product: tables of places as in ``gathered_tiles``."""
    tallest, *shorter = heights()
    h2, h3, h4 = (*shorter, 1)[:3]
    first_tile, second, third, fourth = (gathered_products("f", h) for h in (tallest, h2, h3, h4))

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

    return column


def _read() -> Any:
    """Inputs of tiles, transformed."""
    patch, lanes = patches(), _LANES

    @inlined
    def read(laid, tiles, room, line, groups, g, channels, first, count, begin, end, a, step):
        """Channels from ``begin`` to ``end`` of ``count`` tiles become rows from ``a`` on."""
        each = tiles.size // 4
        image, t = first // each, first % each
        for r in range(count):
            source = address_of(laid) + ((image * groups + g) * room + tiles[4 * t]) * _SIZE
            for c in range(begin, end, lanes):
                patch(
                    source + c * _SIZE, line * _SIZE, channels * _SIZE,
                    a + (r * DEPTH + c - begin) * _SIZE, step * _SIZE,
                )  # fmt: skip
            t += 1
            if t == each:
                image, t = image + 1, 0

    return read


def _written() -> Any:
    """Results of tiles, transformed."""
    output, lanes, width = outputs(), _LANES, panel_width("f")

    @inlined
    def write(
        sums, step, tiles, level, check, out, across, spatial, groups, g, made, first, count,
        begin, end,
    ):  # fmt: skip
        """Channels from ``begin`` to ``end`` of ``count`` tiles; ``check``: see ``outputs``."""
        each = tiles.size // 4
        for c in range(begin, end, lanes):
            image, t = first // each, first % each
            for r in range(count):
                target = ((image * groups + g) * made + c) * spatial + tiles[4 * t + 1]
                output(
                    address_of(sums) + (r * width + c - begin) * _SIZE, step * _SIZE,
                    address_of(level) + (c - begin) * _SIZE, address_of(out) + target * _SIZE,
                    spatial * _SIZE, across * _SIZE, min(lanes, made - c), tiles[4 * t + 2],
                    tiles[4 * t + 3], address_of(check),
                )  # fmt: skip
                t += 1
                if t == each:
                    image, t = image + 1, 0

    return write


def _gathered() -> Any:
    """Squares of weights, transposed."""
    turn, (_, lanes) = turn_apart("f"), turner("f")

    @inlined
    def gather(weight, at, apart, rows, columns, places, taps, to):
        """``columns`` of ``rows`` lines, at most as many as a vector has elements.

        Lines are ``apart``. A column is written to its place beyond the element ``to``.
        """
        for j in range(0, columns, lanes):
            start = j if columns < lanes else min(j, columns - lanes)
            # A square ends within the weight: its last columns may be others' elements.
            if rows == lanes and at + (lanes - 1) * apart + start + lanes <= weight.size:
                turn(
                    address_of(weight) + (at + start) * _SIZE, apart * _SIZE,
                    address_of(taps) + to * _SIZE, address_of(places) + 8 * start,
                    min(columns, lanes),
                )  # fmt: skip
            else:
                for column in range(start, min(start + lanes, columns)):
                    for r in range(rows):
                        taps[to + places[column] // _SIZE + r] = weight[at + r * apart + column]

    return gather


def _inputs(char: str) -> Callable[..., None]:
    """Inputs of ``count`` tiles from ``first`` on, transformed.

    Counts blocks of them, times slices of channels and groups.
    """
    read = _read()

    def loop(laid, tiles, room, line, channels, groups, first, count, block, inputs, lo, hi):
        full_vectors()
        slices, step = (channels + DEPTH - 1) // DEPTH, count * DEPTH + ODD
        blocks = (count + block - 1) // block
        for unit in range(lo, hi):
            piece, start = unit // blocks, unit % blocks * block
            begin = piece % slices * DEPTH
            read(
                laid, tiles, room, line, groups, piece // slices, channels, first + start,
                min(block, count - start), begin, min(channels, begin + DEPTH),
                address_of(inputs) + (piece * POINTS * step + start * DEPTH) * _SIZE, step,
            )  # fmt: skip

    return loop


def _columns(char: str) -> Callable[..., None]:
    """Results of ``count`` tiles from ``first`` on.

    Counts blocks of them, times blocks of output channels and groups; each has one of ``checks``.
    Weights are the panels of ``dense``, or those of the operator (``mode`` is 1, or for the
    gradient of the input 2), whose panels are then made here, a slice at a time.
    """
    width, lanes, zero = panel_width(char), _LANES, np.float32(0)
    column, write, transform, gather = _multiplied(), _written(), filters(), _gathered()

    def loop(
        inputs, tiles, channels, weight, mode, bias, out, across, spatial, groups, made, first,
        count, block, checks, lo, hi,
    ):  # fmt: skip
        full_vectors()
        panels, blocks = (made + width - 1) // width, (count + block - 1) // block
        parts = (made + CHANNELS - 1) // CHANNELS
        slices, step = (channels + DEPTH - 1) // DEPTH, count * DEPTH + ODD
        step_out, matrix = block * width + ODD, DEPTH * width + ODD
        whole = channels * width * _SIZE
        sums, values = np.empty(POINTS * step_out, out.dtype), np.empty(POINTS * matrix, out.dtype)
        from_, to = np.empty(block, np.int64), np.empty(block, np.int64)
        same, level = np.zeros(block, np.int64), np.empty(width, out.dtype)
        none, check = np.zeros(width, out.dtype), np.empty(lanes, out.dtype)
        for r in range(block):
            from_[r], to[r] = r * DEPTH * _SIZE, r * width * _SIZE
        tap = DEPTH * width + ODD
        taps = np.empty(TAPS * tap if mode else 0, out.dtype)
        places = np.empty(TAPS if mode == 2 else TAPS * DEPTH, np.int64)
        for j in range(places.size):
            place = TAPS - 1 - j if mode == 2 else j % TAPS
            places[j] = (place * tap + j // TAPS * width) * _SIZE
        apart, near = (TAPS, made * TAPS) if mode == 2 else (channels * TAPS, TAPS)
        for unit in range(lo, hi):
            piece, place = unit // blocks, unit % blocks * block
            rows, g = min(block, count - place), piece // parts
            # Asked for in the loop: what it does not use by name is freed before it begins.
            a_at, out_at = address_of(from_), address_of(to)
            left = piece % parts * CHANNELS
            right = min(made, left + CHANNELS)
            fill(check, zero)
            for begin in range(left, right, width):
                end, panel = min(right, begin + width), g * panels + begin // width
                fill(level, zero)
                copy(part(level, 0, end - begin), part(bias, g * made + begin, g * made + end))
                for s in range(slices):
                    depth = min(DEPTH, channels - s * DEPTH)
                    if mode:
                        if s == 0 and end - begin < width:
                            fill(taps, zero)
                        for half in range(begin, end, lanes):
                            at = ((g * made * channels) * TAPS) + half * apart + s * DEPTH * near
                            used, left_of = min(lanes, end - half), half - begin
                            if mode == 1:
                                gather(weight, at, apart, used, depth * TAPS, places, taps, left_of)
                                continue
                            for c in range(depth):
                                to_ = left_of + c * width
                                gather(weight, at + c * near, apart, used, TAPS, places, taps, to_)
                        source, distance = address_of(taps), tap * _SIZE
                    else:
                        row = panel * TAPS * channels + s * DEPTH
                        source, distance = address_of(weight) + row * width * _SIZE, whole
                    for at in range(0, depth * width * _SIZE, lanes * _SIZE):
                        transform(source + at, distance, address_of(values) + at, matrix * _SIZE)
                    for k in range(POINTS):
                        row = ((g * slices + s) * POINTS + k) * step + place * DEPTH
                        target = address_of(sums) + k * step_out * _SIZE
                        if s == 0:
                            start, start_at = address_of(none), address_of(same)
                        else:
                            start, start_at = target, out_at
                        column(
                            rows, depth, address_of(inputs) + row * _SIZE, a_at,
                            address_of(values) + k * matrix * _SIZE, start, start_at, target,
                            out_at,
                        )  # fmt: skip
                write(
                    sums, step_out, tiles, level, check, out, across, spatial, groups, g, made,
                    first + place, rows, begin, end,
                )  # fmt: skip
            found = zero
            for i in range(lanes):
                found += check[i]
            checks[unit] = found

    return loop


LOOPS: dict[str, Loop] = {
    "inputs": Loop("ainnnnnnna", _inputs, dtypes="f"),
    "columns": Loop("ainanaannnnnnna", _columns, dtypes="f"),
}
