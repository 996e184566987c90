"""Products of 8-bit integers, requantized: what the quantized layers of a network are.

Signed activations are taken as unsigned ones plus 128, and unsigned weights as signed ones minus
128, so that one kind of product does. With the zero points so shifted, over ``K`` products

    sum (x - zx)(w - zw) = sum x w - zw sum x - zx sum w + K zx zw

of which all but the first two sums are known when the weight is packed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from math import prod
from operator import is_
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_BYTES = np.dtype(np.uint8), np.dtype(np.int8)
_LEAST = 1 << 14  # multiplications
_SPLIT = 1 << 18
_linear, _convolution, _windows, _depthwise, _depthwise_quads = (
    Loop("nn.requantized", name, _SPLIT)
    for name in ("linear", "convolution", "windows", "depthwise", "depthwise_quads")
)
_PLACES = 512  # of a unit of windows
_FEWEST_COLUMNS = 8  # of a group, which a panel is filled up from


@memoized
def _layout() -> tuple[int, int, int, int, int, int]:
    """Rows of a block, columns of a slab and of a panel, numbers of a word, words of a step.

    The last is how many columns are brought to bytes at once.
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


class _Packed:
    """A weight in panels, and what its zero points come to.

    ``shape`` is ``(groups, columns, depth)``. The channels of a place in a window lie together.
    *lines*: each row of a window is filled up to whole words.
    """

    def __init__(self, weight: np.ndarray, groups: int, lines: bool = False) -> None:
        _, _, panel, per_word, step, _ = _layout()
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
        self.panels = np.ascontiguousarray(cut)
        self.sums = signed.sum((2, 3), dtype=np.int64).reshape(-1)
        self.offset = 0 if weight.dtype == np.int8 else 128


class _Parameters:
    """What becomes of the sums of one product, column by column."""

    def __init__(self, weight: _Packed, channels: tuple[np.ndarray, ...], zero: int) -> None:
        panel = _layout()[2]
        groups, columns, depth = weight.shape
        zeros, bias, multiplier, shift = channels
        zeros = zeros - weight.offset
        start = bias - zero * weight.sums + depth * zero * zeros
        self.rows = np.zeros((groups, 4, -(-columns // panel) * panel), np.int32)
        # A conversion of numbers that do not fit wraps around, as the sums do.
        for row, values in enumerate((zeros, start, multiplier, shift)):
            self.rows[:, row, :columns] = values.astype(np.int32).reshape(groups, columns)
        self.wide = bool((shift < 0).any())
        self.shifted = bool(zeros.any())


class _Channels:
    """Weight and parameters of a convolution whose channels are each alone.

    Four taps at a time where the processor multiplies bytes so and the weight less its zero points
    are bytes: in each 16 channels, those of four words follow each other as two merges of the
    taps' vectors leave them.
    """

    def __init__(self, weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int) -> None:
        zeros, bias, multiplier, shift = channels
        _, _, _, per_word, _, lanes = _layout()
        n, depth = len(weight), prod(weight.shape[1:])
        steps = weight.reshape(n, depth).T - zeros
        fits = per_word == 4 and steps.min() >= -128 and steps.max() <= 127
        self.quads = bool(fits and n > 2 * lanes)
        width = 4 * lanes if self.quads else lanes
        padded = -(-n // width) * width
        if self.quads:
            taps = np.zeros((-(-depth // 4) * 4, padded), np.int8)
            taps[:depth, :n] = steps
            cut = taps.reshape(-1, 4, padded // width, width // 16, 4, 4)
            self.taps = np.ascontiguousarray(cut.transpose(2, 0, 4, 3, 5, 1))
        else:
            self.taps = np.zeros((depth, padded), np.int32)
            self.taps[:, :n] = steps
        self.rows = np.zeros((4, padded), np.int32)
        for row, values in enumerate((bias - zero * steps.sum(0), multiplier, shift), 1):
            self.rows[row, :n] = values.astype(np.int32)
        self.wide = bool((shift < 0).any())


def _alone(weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int, kept: Any) -> _Channels:
    """The same, from ``kept`` where that of this call is there."""
    kept, sources = {} if kept is None else kept, (weight, *channels)
    known = kept.get("cpu_numba.channels")
    if known is None or known[1] != zero or not all(map(is_, known[0], sources)):
        made = _Channels(weight, channels, zero)
        known = kept["cpu_numba.channels"] = sources, zero, made
    found: _Channels = known[2]
    return found


def _prepared(
    weight: np.ndarray,
    channels: tuple[np.ndarray, ...],
    zero: int,
    kept: Any,
    groups: int,
    lines: bool = False,
) -> tuple[_Packed, _Parameters]:
    """The packed weight and the parameters, from ``kept`` where those of this call are there."""
    kept = {} if kept is None else kept
    packed = kept.get("cpu_numba.packed")
    if packed is None or packed.shape[0] != groups or packed.lines != lines:
        packed = kept["cpu_numba.packed"] = _Packed(weight, groups, lines)
    sources = (packed, *channels)
    known = kept.get("cpu_numba.parameters")
    if known is None or known[1] != zero or not all(map(is_, known[0], sources)):
        parameters = _Parameters(packed, channels, zero)
        known = kept["cpu_numba.parameters"] = sources, zero, parameters
    return packed, known[2]


def _is_bytes(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in _BYTES and bool(x.flags.c_contiguous)


def _shared(blocks: int, columns: int) -> int:
    """Into how many portions the columns are cut, so that all threads have something to do."""
    slab, threads = _layout()[1], thread_count.wanted
    if threads == 1 or blocks >= 4 * threads:
        return 1
    return min(-(-columns // slab), -(-4 * threads // blocks))


def _room(words: int) -> int:
    """Words between gathered rows. For tiles an odd number of lines of the first cache."""
    return words + (16 if _layout()[4] > 1 and words // 16 % 2 == 0 else 0)


def _run(
    loop: Loop, x: np.ndarray, weights: np.ndarray, parameters: np.ndarray, out: np.ndarray,
    plan: list[int], work: int, units: int,
) -> None:  # fmt: skip
    grain = -(-units // (4 * thread_count.wanted))
    loop(_BYTES[0], work, units, x, weights, parameters, out, np.array(plan, INT64), grain=grain)


def _multiplied(
    x: np.ndarray, out: np.ndarray, rows: int, packed: _Packed, parameters: _Parameters,
    zero: int, low: int, high: int,
) -> None:  # fmt: skip
    """Rows of bytes times a weight of one group."""
    block, _, _, per_word, step, _ = _layout()
    _, columns, depth = packed.shape
    flip, words, blocks = 0 if x.dtype == np.uint8 else 128, packed.words, -(-rows // block)
    direct = per_word == 4 and not flip and depth == 4 * words and not parameters.shifted
    if step > 1:
        # Tiles are read whole, and rows that lie a multiple of 2048 bytes apart would share few
        # lines of the first cache.
        direct = direct and rows % 16 == 0 and depth % 2048 != 0
    portions = _shared(blocks, columns)
    plan = [
        rows, depth, words, columns, zero, low, high, parameters.wide, parameters.shifted, flip,
        direct, portions, _room(words),
    ]  # fmt: skip
    work, units = rows * columns * depth, blocks * portions
    _run(_linear, x, packed.panels, parameters.rows, out, plan, work, units)


def requantized_linear(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero: int, low: int, high: int,
    kept: Any = None,
) -> Any:  # fmt: skip
    """The bytes of ``x @ weight.T``, each column brought back to 8 bits by its parameters."""
    if not (_is_bytes(x) and _is_bytes(weight) and x.ndim and weight.ndim == 2):
        return NotImplemented
    (columns, depth), rows = weight.shape, prod(x.shape[:-1])
    if x.shape[-1] != depth or rows * columns * depth < _LEAST:
        return NotImplemented
    channels = zeros, bias, multiplier, shift
    if any(v.shape != (columns,) or v.dtype != INT64 for v in channels):
        return NotImplemented
    flip = 0 if x.dtype == np.uint8 else 128
    packed, parameters = _prepared(weight, channels, x_zero + flip, kept, 1)
    out = np.empty((*x.shape[:-1], columns), x.dtype)
    _multiplied(x, out, rows, packed, parameters, zero, low, high)
    return out


def requantized_conv2d(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero: int, low: int, high: int,
    stride: Any, padding: Any, dilation: Any, groups: int, kept: Any = None,
) -> Any:  # fmt: skip
    """The bytes of a cross-correlation; the result has its channels last in memory."""
    if not all(type(a) is np.ndarray and a.dtype in _BYTES and a.ndim == 4 for a in (x, weight)):
        return NotImplemented
    (images, given, height, width), (n, own, kh, kw) = x.shape, weight.shape
    options = [
        (v, v) if type(v) is int else tuple(v) * (3 - len(v)) for v in (stride, padding, dilation)
    ]
    (sh, sw), (ph, pw), (dh, dw) = options
    channels = zeros, bias, multiplier, shift
    if any(v.shape != (n,) or v.dtype != INT64 for v in channels):
        return NotImplemented
    oh = (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    ow = (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    rows, depth = images * oh * ow, own * kh * kw
    if min(oh, ow) < 1 or own * groups != given or n % groups or rows * n * depth < _LEAST:
        return NotImplemented
    columns, flip = n // groups, 0 if x.dtype == np.uint8 else 128
    alone = own == columns == 1
    if groups > 1 and columns < _FEWEST_COLUMNS and not alone:
        return NotImplemented
    pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    out = np.empty((images, oh, ow, n), x.dtype)
    work = rows * n * depth
    window = [
        height, width, given, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, groups, x_zero + flip, own,
    ]  # fmt: skip
    if alone:
        own_channels = _alone(weight, channels, x_zero + flip, kept)
        plan = [rows, depth, 0, n, zero, low, high, own_channels.wide, 0, flip, 0, 1, 0, *window]
        loop, taps = _depthwise_quads if own_channels.quads else _depthwise, own_channels.taps
        _run(loop, pixels, taps, own_channels.rows, out, plan, work, images * oh)
        return out.transpose(0, 3, 1, 2)
    pointwise = groups == kh == kw == sh == sw == 1 and ph == pw == 0
    lines = (
        not pointwise
        and dw == groups == 1
        and min(ph, pw) >= 0
        and _layout()[3:5] == (4, 1)
        and bool((zeros == (0 if weight.dtype == np.int8 else 128)).all())
    )
    packed, found = _prepared(weight, channels, x_zero + flip, kept, groups, lines)
    if pointwise:
        _multiplied(pixels, out, rows, packed, found, zero, low, high)
        return out.transpose(0, 3, 1, 2)
    if flip:  # once here, not for each window
        pixels, flip = pixels.view(np.uint8) ^ np.uint8(flip), 0
    if lines:
        tall = max(1, min(oh, _PLACES // ow))
        blocks = images * -(-oh // tall)
        portions = _shared(blocks, columns)
        plan = [
            rows, depth, packed.words, columns, zero, low, high, found.wide, 0, 0, 0, portions, 0,
            *window, tall,
        ]  # fmt: skip
        units = blocks * portions
        _run(_windows, pixels, packed.panels, found.rows, out, plan, work, units)
        return out.transpose(0, 3, 1, 2)
    blocks = -(-rows // _layout()[0]) * groups
    portions = _shared(blocks, columns)
    plan = [
        rows, depth, packed.words, columns, zero, low, high, found.wide, found.shifted, flip, 0,
        portions, _room(packed.words), *window,
    ]  # fmt: skip
    _run(_convolution, pixels, packed.panels, found.rows, out, plan, work, blocks * portions)
    return out.transpose(0, 3, 1, 2)


KERNELS: dict[str, Callable[..., Any]] = {
    "requantized_conv2d": requantized_conv2d,
    "requantized_linear": requantized_linear,
}
