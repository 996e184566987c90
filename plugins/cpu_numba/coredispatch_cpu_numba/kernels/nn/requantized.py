"""Products of 8-bit integers, requantized: what the quantized layers of a network are.

Signed activations are taken as unsigned ones plus 128, and unsigned weights as signed ones minus
128, so that one kind of product does. With the zero points so shifted, over ``K`` products

    sum (x - zx)(w - zw) = sum x w - zw sum x - zx sum w + K zx zw

of which all but the first two sums are known when the weight is packed. What a call of some sizes
needs to know is worked out once: between large products, every line of Python comes from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.nn.requantized_weights import (
    NARROW,
    Channels,
    Packed,
    Parameters,
    alone,
    layout,
    prepared,
)

__all__ = ["KERNELS"]

_BYTES = np.dtype(np.uint8), np.dtype(np.int8)
_LEAST = 1 << 14  # multiplications
_SPLIT = 1 << 18
_linear, _convolution, _windows, _depthwise, _depthwise_quads = (
    Loop("nn.requantized", name, _SPLIT)
    for name in ("linear", "convolution", "windows", "depthwise", "depthwise_quads")
)
_PLACES = 512  # of a unit of windows
_SEEN = 1 << 15  # bytes of the rows that channels alone are taken from: in the first cache
_FEWEST_COLUMNS = 8  # of a group, which a panel is filled up from
_CALLS = 64  # kept for a weight


class _Call(NamedTuple):
    """A loop, its plan, and how much work there is."""

    loop: Loop
    plan: np.ndarray
    work: int
    units: int
    grain: int


def _call(loop: Loop, plan: list[int], work: int, units: int) -> _Call:
    grain = -(-units // (4 * thread_count.wanted))
    return _Call(loop, np.array(plan, INT64), work, units, grain)


def _run(
    call: _Call, x: np.ndarray, weights: np.ndarray, parameters: np.ndarray, out: np.ndarray
) -> None:
    loop, plan, work, units, grain = call
    loop(_BYTES[0], work, units, x, weights, parameters, out, plan, grain=grain)


def _known(
    calls: dict[Any, _Call], key: tuple[Any, ...], make: Callable[..., _Call], *given: Any
) -> _Call:
    """``make(*given)``, or what it gave for this key and number of threads before."""
    key = *key, thread_count.wanted
    found = calls.get(key)
    if found is None:
        if len(calls) >= _CALLS:
            calls.clear()
        found = calls[key] = make(*given)
    return found


class _Ending(NamedTuple):
    """The zero point of the result, its limits, and what is added to make it unsigned."""

    zero: int
    low: int
    high: int
    change: int

    def of(self, mode: int) -> list[int]:
        """What plans say of how sums are brought back."""
        zero, low, high, change = self
        limits = low + change | high + change << 8 | change << 16
        return [limits if mode == NARROW else zero, low, high, mode]


def _is_bytes(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in _BYTES and bool(x.flags.c_contiguous)


def _shared(blocks: int, columns: int) -> int:
    """Into how many portions the columns are cut, so that all threads have something to do."""
    slab, threads = layout()[1], thread_count.wanted
    if threads == 1 or blocks >= 4 * threads:
        return 1
    return min(-(-columns // slab), -(-4 * threads // blocks))


def _room(words: int) -> int:
    """Words between gathered rows. For tiles an odd number of lines of the first cache."""
    return words + (16 if layout()[4] > 1 and words // 16 % 2 == 0 else 0)


def _of_rows(rows: int, packed: Packed, parameters: Parameters, ending: _Ending) -> _Call:
    """Rows of bytes times a weight of one group."""
    block, _, _, per_word, step, _ = layout()
    _, columns, depth = packed.shape
    flip, words, blocks = ending.change, packed.words, -(-rows // block)
    direct = per_word == 4 and not flip and depth == 4 * words and not parameters.shifted
    if step > 1:
        # Tiles are read whole, and rows that lie a multiple of 2048 bytes apart would share few
        # lines of the first cache.
        direct = direct and rows % 16 == 0 and depth % 2048 != 0
    portions = _shared(blocks, columns)
    plan = [
        rows, depth, words, columns, *ending.of(parameters.mode), parameters.shifted, flip, direct,
        portions, _room(words),
    ]  # fmt: skip
    return _call(_linear, plan, rows * columns * depth, blocks * portions)


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
    ending = _Ending(zero, low, high, flip)
    packed, found = prepared(weight, channels, x_zero + flip, zero + flip, kept, 1)
    call = _known(found.calls, (rows, ending), _of_rows, rows, packed, found, ending)
    out = np.empty((*x.shape[:-1], columns), x.dtype)
    _run(call, x, packed.panels, found.rows, out)
    return out


@dataclass(frozen=True, eq=False)
class _Geometry:
    """The sizes and options of a convolution, as plans have them from place 13 on.

    Args:
        out: images, height and width of the result, its channels
        depth: products of a sum
        rows: sums of a channel
        columns: channels of a group of the result
        window: height, width and channels of the input, height and width of the result and of the
            kernel, strides, padding, dilation, groups, room for the zero point, channels of a group
        alone: each channel is a group
        pointwise: the kernel is one position, and all positions are taken
        lines: windows of one group whose rows lie together
    """

    out: tuple[int, int, int, int]
    depth: int
    rows: int
    columns: int
    window: tuple[int, ...]
    alone: bool
    pointwise: bool
    lines: bool

    def around(self, zero: int) -> list[int]:
        """``window`` with the zero point of the input in it."""
        return [*self.window[:14], zero, self.window[15]]


@lru_cache(maxsize=256)
def _geometry(
    shape: tuple[int, ...], weight_shape: tuple[int, ...], stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], groups: int,
) -> _Geometry | None:  # fmt: skip
    """None where there is no result, or no loop for it."""
    (images, given, height, width), (n, own, kh, kw) = shape, weight_shape
    (sh, sw), (ph, pw), (dh, dw) = (v * (3 - len(v)) for v in (stride, padding, dilation))
    oh = (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    ow = (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    if min(oh, ow, images) < 1 or own * groups != given or n % groups:
        return None
    columns = n // groups
    single = own == columns == 1
    if groups > 1 and columns < _FEWEST_COLUMNS and not single:
        return None
    pointwise = groups == kh == kw == sh == sw == 1 and ph == pw == 0
    lines = not pointwise and dw == groups == 1 and min(ph, pw) >= 0 and layout()[3:5] == (4, 1)
    window = height, width, given, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, groups, 0, own
    rows, depth = images * oh * ow, own * kh * kw
    return _Geometry(
        (images, oh, ow, n), depth, rows, columns, window, single, pointwise and not single, lines
    )


def _of_channels(g: _Geometry, each: Channels, zero: int, ending: _Ending) -> _Call:
    """Each channel alone."""
    images, oh, ow, n = g.out
    _, _, _, _, _, _, kw, sh, sw, _, _, _, dw, *_ = g.window
    line = ((ow - 1) * sw + (kw - 1) * dw + 1) * n
    tall = max(1, min(oh, _SEEN // (line * sh))) if each.quads else 1
    plan = [
        g.rows, g.depth, 0, n, *ending.of(each.mode), 0, ending.change, 0, 1, 0, *g.around(zero),
        tall, each.upright,
    ]  # fmt: skip
    loop = _depthwise_quads if each.quads else _depthwise
    return _call(loop, plan, g.rows * n * g.depth, images * -(-oh // tall))


def _of_windows(
    g: _Geometry, packed: Packed, found: Parameters, lines: bool, zero: int, ending: _Ending
) -> _Call:
    """Windows of bytes that are unsigned already."""
    images, oh, ow, n = g.out
    tall = max(1, min(oh, _PLACES // ow))
    if lines:
        loop, room, blocks = _windows, 0, images * -(-oh // tall)
    else:
        loop, room = _convolution, _room(packed.words)
        blocks = -(-g.rows // layout()[0]) * n // g.columns
    portions = _shared(blocks, g.columns)
    plan = [
        g.rows, g.depth, packed.words, g.columns, *ending.of(found.mode), found.shifted, 0, 0,
        portions, room, *g.around(zero), tall,
    ]  # fmt: skip
    return _call(loop, plan, g.rows * n * g.depth, blocks * portions)


def _tuple(value: Any) -> tuple[int, ...]:
    return value if type(value) is tuple else (value,) if type(value) is int else tuple(value)


def requantized_conv2d(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero: int, low: int, high: int,
    stride: Any, padding: Any, dilation: Any, groups: int, kept: Any = None,
) -> Any:  # fmt: skip
    """The bytes of a cross-correlation; the result has its channels last in memory."""
    if not all(type(a) is np.ndarray and a.dtype in _BYTES and a.ndim == 4 for a in (x, weight)):
        return NotImplemented
    options = _tuple(stride), _tuple(padding), _tuple(dilation)
    g = _geometry(x.shape, weight.shape, *options, groups)
    if g is None or g.rows * g.out[3] * g.depth < _LEAST:
        return NotImplemented
    channels, count = (zeros, bias, multiplier, shift), g.out[3:]
    if any(v.shape != count or v.dtype != INT64 for v in channels):
        return NotImplemented
    flip = 0 if x.dtype == np.uint8 else 128
    ending, inner = _Ending(zero, low, high, flip), x_zero + flip
    pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    kept = {} if kept is None else kept
    out = np.empty(g.out, x.dtype)
    if g.alone:
        each = alone(weight, channels, inner, zero + flip, kept)
        call = _known(each.calls, (g, ending), _of_channels, g, each, inner, ending)
        _run(call, pixels, each.taps, each.rows, out)
        return out.transpose(0, 3, 1, 2)
    packed, found = prepared(weight, channels, inner, zero + flip, kept, groups, g.lines)
    lines = g.lines and found.mode == NARROW
    if g.lines and not lines:
        packed, found = prepared(weight, channels, inner, zero + flip, kept, groups)
    if g.pointwise:
        call = _known(found.calls, (g, ending), _of_rows, g.rows, packed, found, ending)
    else:
        if flip:  # once here, not for each window
            pixels = pixels.view(np.uint8) ^ np.uint8(flip)
        call = _known(
            found.calls, (g, ending), _of_windows, g, packed, found, lines, inner, ending
        )  # fmt: skip
    _run(call, pixels, packed.panels, found.rows, out)
    return out.transpose(0, 3, 1, 2)


KERNELS: dict[str, Callable[..., Any]] = {
    "requantized_conv2d": requantized_conv2d,
    "requantized_linear": requantized_linear,
}
