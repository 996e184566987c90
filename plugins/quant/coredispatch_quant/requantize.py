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

from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError

__all__ = ["multiplier_and_shift", "requantize", "round_shift"]


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


def round_shift(values: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``values / 2**shift`` to nearest, midpoints away from zero; int64, ``shift >= 0``.

    Adding half and shifting rounds midpoints up; one less for negative values sends theirs
    down. Without a shift there is nothing to round.
    """
    half = (np.int64(1) << shift) >> 1
    away = (values < 0) & (shift > 0)
    return (values + half - away) >> shift


def requantize(
    accumulator: np.ndarray,
    factor: Any,
    zero_point: int,
    low: int,
    high: int,
    dtype: np.dtype,
) -> np.ndarray:
    """Scale int32-ranged ``accumulator`` by ``factor`` (broadcast) and saturate to ``dtype``.

    ``low`` and ``high`` bound the stored result (a fused ReLU has ``low = zero_point``).
    """
    multiplier, shift = multiplier_and_shift(factor)
    left = np.maximum(-shift, 0)
    position = 31 - left
    product = accumulator.astype(np.int64)
    product *= multiplier
    product += (np.int64(1) << position) >> 1
    product >>= position
    scaled = round_shift(product, np.maximum(shift, 0))
    np.clip(scaled, low - zero_point, high - zero_point, out=scaled)
    scaled += zero_point
    return scaled.astype(dtype)
