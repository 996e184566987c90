"""Convolutions of bfloat16 on panels, as sums of shifted planes: ``loops/conv/general.py``.

Two taps are one row of pairs, 32 positions of the plane at a time: the planes of any two taps are
woven together, so that 16 rows make two tiles, which all output channels multiply. The gradient of
the weight multiplies rows of taps with the output's gradient, which is transposed once.

Sums are float32. Zeros stand for taps and channels that are missing of a tile.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.dots import has_pairs
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.conv.general import filled_planes, filled_upstream, written_rows
from coredispatch_cpu_numba.tile_panels import (
    DEEP,
    LINES,
    TILE,
    begin,
    copy_line,
    end,
    one_by_two,
    packer,
    round_line,
    turn,
    two_by_one,
    two_by_two,
    weave,
)

__all__ = ["LOOPS"]

_STEPS = 16  # tiles of a panel of taps, two of which stay in the first cache


def _pack(char: str) -> Callable[..., None]:
    """Weights as panels of output channels; counts groups. ``packed`` is zero before."""
    pack = packer(False, False)

    def loop(weight, taps, dense, channels, group, step, packed, lo, hi):
        full_vectors()
        count = taps.size
        steps, panels = (count + DEEP - 1) // DEEP, (channels + LINES - 1) // LINES
        for g in range(lo, hi):
            for p in range(panels):
                base = (g * panels + p) * steps * TILE
                first, used = p * LINES, min(LINES, channels - p * LINES)
                if dense:
                    source = address_of(weight) + 2 * (g * group + first * step)
                    pack(source, 2 * step, used, count, address_of(packed) + base)
                    continue
                for k in range(count):
                    to = base // 2 + (k // DEEP) * (LINES * DEEP) + k % DEEP
                    at = g * group + first * step + taps[k]
                    for m in range(used):
                        packed[to + m * DEEP] = weight[at + m * step]

    return loop


def _correlate(char: str) -> Callable[..., None]:
    """Counts blocks of images, times groups."""
    filled, written = filled_planes("E"), written_rows("E")

    def loop(x, packed, bias, out, source, phases, taps, target, lo, hi):
        full_vectors()
        images, groups, given, channels = target[0], target[1], target[2], target[3]
        room, height = target[4], target[6]
        od, oh = target[7], target[8]
        pd, ph, pw = source[4], source[5], source[6]
        count = taps.size
        steps, panels = (count + DEEP - 1) // DEEP, (channels + LINES - 1) // LINES
        length = steps * TILE
        pitch = (height * pw + 31) // 32 * 32
        scratch = np.zeros(given * (phases.size // 3) * source[13] + target[19], np.uint16)
        woven = np.zeros(length + 32, np.uint16)  # two panels, then nothing
        sums = np.empty(2 * LINES * 2 * LINES, np.float32)
        result = np.empty(panels * LINES * pitch, np.uint16)
        for unit in range(lo, hi):
            g, first = unit % groups, unit // groups * room
            filled(scratch, x, source, phases, first, images, room, g * given, given)
            planes, pairs = address_of(scratch), address_of(woven)
            weights = address_of(packed) + g * panels * length
            to, lines = address_of(sums), address_of(result)
            rows = ((min(room, images - first) - 1) * pd + od - 1) * ph + oh
            for row in range(0, rows, height):
                have = min(height, rows - row)
                at, width = row * pw, have * pw
                begin()
                for p in range(0, width, 32):
                    moved = planes + 2 * (at + p)
                    for j in range(count // 2):
                        one, two = moved + 2 * taps[2 * j], moved + 2 * taps[2 * j + 1]
                        place = pairs + 64 * j
                        weave(one, two, place, place + length)
                    if count % 2:
                        place = pairs + 64 * (count // 2)
                        one, two = moved + 2 * taps[count - 1], pairs + 2 * length
                        weave(one, two, place, place + length)
                    for o in range(0, panels, 2):
                        left, many = weights + o * length, min(2 * LINES, channels - o * LINES)
                        if o + 1 < panels:
                            two_by_two(left, length, pairs, length, steps, to, 128, False)
                        else:
                            one_by_two(left, length, pairs, length, steps, to, 128, False)
                        for m in range(many):
                            c = o * LINES + m
                            line, place = to + 128 * m, lines + 2 * (c * pitch + p)
                            round_line(line, line + 64, bias[g * channels + c], place)
                end()
                written(out, result, pitch, source, target, g, 0, channels, first, row, have)

    return loop


def _weight_grad(char: str) -> Callable[..., None]:
    """Counts blocks of images times groups; each block has sums of its own.

    Rows go on across the end of a line, where the output's gradient is 0. The product with an
    infinity there is NaN: the caller must look for it.
    """
    filled, filled_grad = filled_planes("E"), filled_upstream("E")

    def loop(grad, x, out, source, phases, taps, target, lo, hi):
        full_vectors()
        images, groups, given, channels = target[0], target[1], target[2], target[3]
        room, count = target[4], target[6]
        pd, ph, pw = source[4], source[5], source[6]
        size = (room * pd * ph * pw + DEEP - 1) // DEEP * DEEP
        steps, panels = size // DEEP, (channels + LINES - 1) // LINES
        wide = (count + 2 * LINES - 1) // (2 * LINES) * (2 * LINES)
        across = (panels + 1) // 2 * (2 * LINES)
        scratch = np.zeros(given * (phases.size // 3) * source[13] + target[19], np.uint16)
        upstream = np.zeros(panels * LINES * size, np.uint16)
        turned = np.empty(panels * LINES * size, np.uint16)
        lines = np.empty(2 * _STEPS * TILE // 2, np.uint16)
        total = np.empty(wide * across, np.float32)
        for unit in range(lo, hi):
            g, first = unit % groups, unit // groups * room
            filled(scratch, x, source, phases, first, images, room, g * given, given)
            filled_grad(upstream, size, grad, source, target, g, first, 0, channels)
            planes, right = address_of(scratch), address_of(turned)
            left, sums, rows = address_of(lines), address_of(total), address_of(upstream)
            for p in range(panels):
                for s in range(steps):
                    at = rows + 2 * (p * LINES * size + s * DEEP)
                    turn(at, 2 * size, right + (p * steps + s) * TILE)
            begin()
            for k in range(0, count, 2 * LINES):
                for s in range(0, steps, _STEPS):
                    some = min(_STEPS, steps - s)
                    length = some * TILE
                    for t in range(2 * LINES):
                        tap = taps[min(k + t, count - 1)]
                        source_line = planes + 2 * (tap + s * DEEP)
                        place = left + t // LINES * length + t % LINES * 64
                        for i in range(some):
                            copy_line(source_line + 64 * i, place + i * TILE)
                    for p in range(0, panels, 2):
                        to = sums + 4 * (k * across + p * LINES)
                        at = right + (p * steps + s) * TILE
                        if p + 1 < panels:
                            two_by_two(left, length, at, steps * TILE, some, to, 4 * across, s > 0)
                        else:
                            two_by_one(left, length, at, steps * TILE, some, to, 4 * across, s > 0)
            end()
            base = unit * channels * count
            for c in range(channels):
                for k in range(count):
                    out[base + c * count + k] = total[k * across + c]

    return loop


LOOPS: dict[str, Loop] = (
    {
        "pack": Loop("ainnnna", _pack, dtypes="E"),
        "correlate": Loop("aawaiiii", _correlate, dtypes="E"),
        "weight_grad": Loop("aawiiii", _weight_grad, dtypes="E"),
    }
    if has_pairs()
    else {}
)
