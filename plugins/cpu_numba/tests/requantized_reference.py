"""Products of bytes brought back to bytes, in NumPy's 64-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["channels_of", "conv2d", "drawn", "linear", "rescaled"]

Array = np.ndarray[Any, Any]


def drawn(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Bytes over the whole range, half of them extremes."""
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    extremes = rng.choice(np.array([limits.min, limits.max], dtype), shape)
    return np.where(rng.random(shape) < 0.5, x, extremes)


def channels_of(
    rng: np.random.Generator, weight: Array, zero: Any, size: float, wide: bool = False
) -> tuple[Array, ...]:
    """Parameters that bring sums of about ``size`` back, with weights around ``zero``."""
    count = len(weight)
    shift = np.full(count, round(np.log2(max(size, 1) / 128))) + rng.integers(-1, 2, count)
    shift = rng.integers(-4, 1, count) if wide else np.clip(shift, 0, 31)
    multiplier = rng.integers(1 << 30, 1 << 31, count)
    multiplier[rng.random(count) < 0.1] = 0  # factors too small to matter
    bias = rng.integers(-(10**6), 10**6, count)
    found = (np.broadcast_to(zero, count), bias, multiplier, shift)
    return tuple(np.array(v, np.int64) for v in found)


def rescaled(
    sums: Array, bias: Array, multiplier: Array, shift: Array, zero: int, low: int, high: int,
    dtype: Any,
) -> Array:  # fmt: skip
    """Sums ``(..., output channels)`` of int64, by the operator's definition."""
    total = sums + bias
    assert (np.abs(total) < 2**31).all()
    first, second = 31 + np.minimum(shift, 0), np.maximum(shift, 0)
    value = (total * multiplier + ((1 << first) >> 1)) >> first
    size = (np.abs(value) + ((1 << second) >> 1)) >> second
    return np.clip(np.where(value < 0, -size, size) + zero, low, high).astype(dtype)


def linear(
    x: Array, weight: Array, zeros: Array, bias: Array, multiplier: Array, shift: Array,
    x_zero: int, zero: int, low: int, high: int,
) -> Array:  # fmt: skip
    """The operator ``requantized_linear``."""
    sums = (x.astype(np.int64) - x_zero) @ (weight.astype(np.int64) - zeros[:, None]).T
    return rescaled(sums, bias, multiplier, shift, zero, low, high, x.dtype)


def conv2d(
    x: Array, weight: Array, zeros: Array, bias: Array, multiplier: Array, shift: Array,
    x_zero: int, zero: int, low: int, high: int, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Array:  # fmt: skip
    """The operator ``requantized_conv2d``, place by place."""
    (sh, sw), (ph, pw), (dh, dw) = stride, padding, dilation
    steps = np.pad(x.astype(np.int64) - x_zero, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    w = weight.astype(np.int64) - zeros[:, None, None, None]
    n, own, kh, kw = w.shape
    oh = (steps.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (steps.shape[3] - dw * (kw - 1) - 1) // sw + 1
    sums = np.zeros((len(x), oh, ow, n), np.int64)
    for o in range(n):
        first = o // (n // groups) * own
        for c, i, j in np.ndindex(own, kh, kw):
            rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
            columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
            sums[..., o] += steps[:, first + c, rows, columns] * w[o, c, i, j]
    found = rescaled(sums, bias, multiplier, shift, zero, low, high, x.dtype)
    return np.moveaxis(found, -1, 1)
