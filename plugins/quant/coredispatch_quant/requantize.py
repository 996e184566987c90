"""From int32 accumulators back to 8 bits, in integers only.

The definition is QNNPACK's (its ``q31`` scheme, which is gemmlowp's): the real factor
``input_scale * weight_scale / output_scale``, rounded to float32, is split into a multiplier of
31 bits and a right shift, ``factor = multiplier * 2**-31 * 2**-shift`` with
``2**30 <= multiplier < 2**31``. Then, with ``>>`` the arithmetic shift,

1. ``q31 = (accumulator * multiplier + 2**30) >> 31`` in 64 bits: midpoints go up;
2. divide by ``2**shift``, to nearest, midpoints away from zero;
3. clamp to the output range (with its zero point subtracted), add the zero point.

QNNPACK requires ``2**-32 <= factor < 1``. Two extensions keep every factor legal: below
``2**-32`` no int32 reaches one half, so the result is the zero point; from 1 upwards step 1
shifts by less than 31 (a left shift before the multiplication, as TensorFlow Lite does, without
its intermediate overflow).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError

__all__ = ["multiplier_and_shift", "requantize", "rescale"]


def multiplier_and_shift(factor: Any) -> tuple[np.ndarray, np.ndarray]:
    """Split positive real factors into (multiplier, shift), int64 arrays of the same shape.

    ``shift`` is negative for factors of 1 and above; both are 0 for factors below 2**-32.
    Raises ArgumentError for factors of 2**31 and above, which no int32 survives.
    """
    single = np.asarray(factor, dtype=np.float64).astype(np.float32)
    fraction, exponent = np.frexp(single.astype(np.float64))
    if exponent.size and exponent.max() > 31:
        raise ArgumentError(
            f"requantization factor {single.max()} is 2**31 or more",
            fix="choose a larger output scale",
        )
    multiplier = np.ldexp(fraction, 31).astype(np.int64)
    shift = -exponent.astype(np.int64)
    # Smallest legal shift count of step 2; smaller factors round every int32 to zero.
    vanishes = shift > 31
    return np.where(vanishes, 0, multiplier), np.where(vanishes, 0, shift)


def requantize(
    accumulator: np.ndarray,
    factor: Any,
    zero_point: int,
    low: int,
    high: int,
    dtype: np.dtype,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """Scale ``accumulator + bias`` by ``factor`` and saturate to ``dtype``.

    Args:
        accumulator: ``(m, n)`` integer values, of integer or floating dtype; the sum with
            ``bias`` fits int32.
        factor: one number, ``(m, 1)`` or ``(1, n)``.
        low, high: bounds of the stored result (a fused ReLU has ``low = zero_point``).
        bias: int64, one number, ``(m, 1)`` or ``(1, n)``.
    """
    split = multiplier_and_shift(factor)
    return rescale(accumulator, *split, zero_point, low, high, dtype, bias)


def rescale(
    accumulator: np.ndarray,
    multiplier: np.ndarray,
    shift: np.ndarray,
    zero_point: int,
    low: int,
    high: int,
    dtype: np.dtype,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """:func:`requantize` with the factor split already."""
    first = 31 - np.maximum(-shift, 0)
    second = np.maximum(shift, 0)
    # Half of each divisor. Adding it rounds midpoints up; the second division sends those of
    # negative numbers down by adding one less, except where it divides by one.
    half_first, half_second = (np.int64(1) << first) >> 1, (np.int64(1) << second) >> 1
    one_less = np.where(second > 0, -1, 0)
    parameters = [multiplier, half_first, first, half_second, one_less, second]
    out = np.empty(accumulator.shape, dtype)
    for rows, columns in blocks(accumulator.shape):
        value = accumulator[rows, columns].astype(np.int64)
        if bias is not None:
            value += part(bias, rows, columns)
        m, half1, shift1, half2, less, shift2 = (part(p, rows, columns) for p in parameters)
        value *= m
        value += half1
        value >>= shift1
        negative = value >> 63
        negative &= less
        value += half2
        value += negative
        value >>= shift2
        np.maximum(value, low - zero_point, out=value)
        np.minimum(value, high - zero_point, out=value)
        value += zero_point
        out[rows, columns] = value
    return out


# Elements worked on at a time: the passes over a block then stay in the first caches. Measured
# 4 times faster than whole arrays; flat between 2**14 and 2**16.
_BLOCK = 1 << 15


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Slices that cover a matrix with blocks of at most ``_BLOCK`` elements."""
    m, n = shape
    width = min(max(n, 1), _BLOCK)
    height = max(1, _BLOCK // width)
    for row in range(0, m, height):
        for column in range(0, n, width):
            yield slice(row, row + height), slice(column, column + width)


def part(parameter: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """The part of a number, row or column of parameters that belongs to a block."""
    if parameter.ndim == 0:
        return parameter
    every = slice(None)
    return parameter[
        rows if parameter.shape[0] > 1 else every, columns if parameter.shape[1] > 1 else every
    ]
