"""Weights of 8-bit products as the loops read them, and what becomes of their sums.

All of it is kept with the weight, and made anew where the parameters of channels are others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from math import prod
from operator import is_
from typing import Any

import numpy as np

__all__ = ["NARROW", "Channels", "Packed", "Parameters", "alone", "layout", "prepared"]

#: how sums are brought back, as plans have it: in registers, in 64 bits; 0: in 32 bits
NARROW, WIDE = 2, 1


@memoized
def layout() -> tuple[int, int, int, int, int, int]:
    """Rows of a block, columns of a slab and of a panel, numbers of a word, words of a step.

    The last is how many columns are brought to bytes at once. Tiles have steps of more than one
    word.
    """
    from coredispatch_cpu_numba.loops.nn import requantized as loops

    return (
        loops.ROWS,
        loops.SLAB * loops.PANEL,
        loops.PANEL,
        loops.PER_WORD,
        loops.STEP,
        loops.LANES,
    )


def _aligned(values: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins with a line of the cache: vectors do not lie across two."""
    room = np.empty(values.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    found = room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


class Packed:
    """A weight in panels, and what its zero points come to.

    ``shape`` is ``(groups, columns, depth)``. The channels of a place in a window lie together.
    *lines*: each row of a window is filled up to whole words.
    """

    def __init__(self, weight: np.ndarray, groups: int, lines: bool = False) -> None:
        _, _, panel, per_word, step, _ = layout()
        if weight.ndim == 4:
            weight = weight.transpose(0, 2, 3, 1)
        columns, depth = len(weight) // groups, prod(weight.shape[1:])
        self.lines, self.shape = lines, (groups, columns, depth)
        rows = weight.shape[1] if lines else 1
        weight = weight.reshape(groups, columns, rows, depth // rows)
        self.words = rows * (-(-depth // rows // (per_word * step)) * step)
        panels = -(-columns // panel)
        signed = weight if weight.dtype == np.int8 else (weight ^ np.uint8(128)).view(np.int8)
        shape = (groups, panels * panel, rows, self.words // rows * per_word)
        padded = np.zeros(shape, np.int8 if per_word == 4 else np.int16)
        padded[:, :columns, :, : depth // rows] = signed
        cut = padded.reshape(groups * panels, panel, self.words, per_word).transpose(0, 2, 1, 3)
        self.panels = _aligned(cut)
        self.sums = signed.sum((2, 3), dtype=np.int64).reshape(-1)
        self.above = np.maximum(signed, 0).sum((2, 3), dtype=np.int64).reshape(-1)
        self.offset = 0 if weight.dtype == np.int8 else 128


def _in_registers(
    start: np.ndarray, below: np.ndarray, above: np.ndarray, multiplier: np.ndarray,
    shift: np.ndarray, zero: int,
) -> np.ndarray | None:  # fmt: skip
    """What ``requantization.Columns`` has, ``(columns // lanes, 6, lanes)`` in int32.

    ``below`` and ``above`` are the sums of the negative and of the positive weights. None where
    something might need more than 32 bits.
    """
    lanes = layout()[5]
    if (shift < 0).any():
        return None
    step = (shift > 0).astype(np.int64)
    added = (zero << shift) + (step << shift >> 1) - step
    largest = np.maximum(np.abs(start + 255 * below), np.abs(start + 255 * above))
    if (largest + np.abs(added) >= 1 << 31).any():
        return None
    level = (added - multiplier).reshape(-1, lanes)
    rows = np.empty((len(level), 6, lanes), np.int64)
    rows[:, 2:4] = 1 << 31
    rows[:, 2, 1::2], rows[:, 3, 1::2] = level[:, ::2], level[:, 1::2]
    others = (0, start + (1 << 31)), (1, 2 * multiplier), (4, step), (5, shift)
    for row, values in others:
        rows[:, row] = values.reshape(-1, lanes)
    return _aligned(rows.astype(np.int32))  # which wraps around, as the sums do


class Parameters:
    """What becomes of the sums of one product, column by column.

    ``zero`` is the inputs' zero point, ``level`` the results', both of unsigned bytes. ``mode`` is
    how sums are brought back, as plans have it; ``calls`` are kept by who makes them.
    """

    def __init__(
        self, weight: Packed, channels: tuple[np.ndarray, ...], zero: int, level: int
    ) -> None:
        _, _, panel, _, step, _ = layout()
        groups, columns, depth = weight.shape
        zeros, bias, multiplier, shift = channels
        zeros = zeros - weight.offset
        start = bias - zero * weight.sums + depth * zero * zeros
        self.shifted = bool(zeros.any())
        self.calls: dict[Any, Any] = {}
        padded = -(-columns // panel) * panel

        def filled(values: np.ndarray) -> np.ndarray:
            room = np.zeros((groups, padded), np.int64)
            room[:, :columns] = values.reshape(groups, columns)
            return room.reshape(-1)

        if step == 1 and not self.shifted:
            above = weight.above
            given = start, weight.sums - above, above, multiplier, shift
            rows = _in_registers(*map(filled, given), level)
            if rows is not None:
                self.rows, self.mode = rows, NARROW
                return
        self.rows = np.empty((groups, 4, padded), np.int32)
        # A conversion of numbers that do not fit wraps around, as the sums do.
        for row, values in enumerate((zeros, start, multiplier, shift)):
            self.rows[:, row] = filled(values).astype(np.int32).reshape(groups, padded)
        self.mode = WIDE if (shift < 0).any() else 0


class Channels:
    """Weight and parameters of a convolution whose channels are each alone.

    Four taps at a time where the processor multiplies bytes so, the weight less its zero points
    are bytes, and sums are small: in each 16 channels, those of four words follow each other as two
    merges of the taps' vectors leave them. *upright*: four taps are a column of the kernel.
    """

    def __init__(
        self, weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int, level: int
    ) -> None:
        zeros, bias, multiplier, shift = channels
        _, _, _, per_word, _, lanes = layout()
        n, _, high, across = weight.shape
        depth = high * across
        steps = weight.reshape(n, depth).T - zeros
        start = bias - zero * steps.sum(0)
        self.quads = self.upright = False
        self.calls: dict[Any, Any] = {}
        if per_word == 4 and n > 2 * lanes and steps.min() >= -128 and steps.max() <= 127:
            self.upright = high in (3, 4) and across == 3
            width = 4 * lanes
            padded = -(-n // width) * width

            def merged(values: np.ndarray) -> np.ndarray:
                room = np.zeros(padded, np.int64)
                room[:n] = values
                return room.reshape(-1, width // 16, 4, 4).transpose(0, 2, 1, 3).reshape(-1)

            below, above = np.minimum(steps, 0).sum(0), np.maximum(steps, 0).sum(0)
            given = start, below, above, multiplier, shift
            rows = _in_registers(*map(merged, given), level)
            if rows is not None:
                taps = np.zeros((-(-depth // 4) * 4, padded), np.int8)
                if self.upright:
                    columns = steps.reshape(high, across, n).transpose(1, 0, 2)
                    taps.reshape(across, 4, padded)[:, :high, :n] = columns
                else:
                    taps[:depth, :n] = steps
                cut = taps.reshape(-1, 4, padded // width, width // 16, 4, 4)
                self.taps = _aligned(cut.transpose(2, 0, 4, 3, 5, 1))
                self.rows, self.mode, self.quads = rows, NARROW, True
                return
        padded = -(-n // lanes) * lanes
        self.taps = np.zeros((depth, padded), np.int32)
        self.taps[:, :n] = steps
        self.rows = np.zeros((4, padded), np.int32)
        for row, values in enumerate((start, multiplier, shift), 1):
            self.rows[row, :n] = values.astype(np.int32)
        self.mode = WIDE if (shift < 0).any() else 0


def _kept(
    kept: Any, name: str, sources: tuple[Any, ...], numbers: Any, make: Callable[[], Any]
) -> Any:
    """What ``make`` gives, from ``kept`` where that of these sources and numbers is there."""
    known = kept.get(name)
    if known is None or known[1] != numbers or not all(map(is_, known[0], sources)):
        known = kept[name] = sources, numbers, make()
    return known[2]


def alone(
    weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int, level: int, kept: Any
) -> Channels:
    """Weight and parameters, from ``kept`` where those of this call are there."""
    kept, sources = {} if kept is None else kept, (weight, *channels)
    found: Channels = _kept(
        kept, "cpu_numba.channels", sources, (zero, level),
        lambda: Channels(weight, channels, zero, level),
    )  # fmt: skip
    return found


def prepared(
    weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int, level: int, kept: Any,
    groups: int, lines: bool = False,
) -> tuple[Packed, Parameters]:  # fmt: skip
    """The packed weight and the parameters, from ``kept`` where those of this call are there."""
    kept, suffix = {} if kept is None else kept, ".lines" if lines else ""
    packed: Packed = _kept(
        kept, f"cpu_numba.packed{suffix}", (), groups, lambda: Packed(weight, groups, lines)
    )
    parameters: Parameters = _kept(
        kept, f"cpu_numba.parameters{suffix}", (packed, *channels), (zero, level),
        lambda: Parameters(packed, channels, zero, level),
    )  # fmt: skip
    return packed, parameters
