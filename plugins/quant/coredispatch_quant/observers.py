"""Observers: from the values seen during calibration to scale and zero point.

The formulas are those of Jacob et al. (2018), section 3: the observed range is widened to
contain zero, so that zero (padding, ReLU) is represented exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DType, OpError
from coredispatch_quant.array import limits, quantized_dtype

__all__ = ["MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver"]

#: A scale is never smaller (PyTorch's choice): constant zero data would otherwise give scale 0.
SMALLEST_SCALE = float(np.finfo(np.float32).eps)


class MinMaxObserver:
    """Remembers the smallest and the largest value it was shown.

    Args:
        dtype: ``quint8`` or ``qint8``.
        symmetric: put real zero on the middle integer (zero point 0 for ``qint8``, 128 for
            ``quint8``), which makes the zero-point correction of weights vanish.
    """

    def __init__(self, dtype: Any = "quint8", *, symmetric: bool = False) -> None:
        self.dtype: DType = quantized_dtype(dtype)
        self.symmetric = symmetric
        self.low: np.ndarray | None = None
        self.high: np.ndarray | None = None

    def observe(self, values: Any) -> None:
        """Take the values of an array into account. Raises ArgumentError for NaN or infinity."""
        values = np.asarray(values)
        if values.size == 0:
            return
        low, high = self.extremes(values)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ArgumentError("a calibration batch holds NaN or infinity")
        if self.low is None or self.high is None:
            self.low, self.high = low, high
        else:
            self.low, self.high = self.combine(self.low, low, high)

    def extremes(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest of one array, in float64; what has no dimensions is a scalar."""
        low: Any = np.float64(values.min())
        high: Any = np.float64(values.max())
        return low, high

    def combine(
        self, before: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The range after seeing another array with the range ``low``, ``high``."""
        assert self.high is not None
        return np.minimum(before, low), np.maximum(self.high, high)

    def parameters(self) -> tuple[Any, Any]:
        """``(scale, zero_point)``: numbers, or arrays of one per channel.

        Raises OpError when nothing was observed.
        """
        if self.low is None or self.high is None:
            raise OpError(
                "this observer has seen no values", fix="run calibration data through the model"
            )
        bottom, top = limits(self.dtype)
        low, high = np.minimum(self.low, 0.0), np.maximum(self.high, 0.0)
        if self.symmetric:
            # One integer fewer below than above keeps -127..127: the negation of a stored
            # weight is then a stored weight.
            middle = (bottom + top + 1) // 2
            scale = np.maximum(-low, high) / (top - middle)
            scale = np.maximum(scale, SMALLEST_SCALE)
            zero = np.full_like(scale, middle)
        else:
            scale = np.maximum((high - low) / (top - bottom), SMALLEST_SCALE)
            zero = np.clip(bottom - np.rint(low / scale), bottom, top)
        if scale.ndim == 0:
            return float(scale), int(zero)
        return scale, zero.astype(np.int64)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Exponential moving average of each array's extremes: one outlier batch weighs little.

    ``low += rate * (low_now - low)``, likewise ``high`` (PyTorch's averaging_constant).
    """

    def __init__(
        self, dtype: Any = "quint8", *, symmetric: bool = False, rate: float = 0.01
    ) -> None:
        super().__init__(dtype, symmetric=symmetric)
        if not 0 < rate <= 1:
            raise ArgumentError(f"rate is {rate}, expected a number in (0, 1]")
        self.rate = rate

    def combine(
        self, before: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The averaged range after seeing another array."""
        assert self.high is not None
        return before + self.rate * (low - before), self.high + self.rate * (high - self.high)


class PerChannelMinMaxObserver(MinMaxObserver):
    """Extremes of each slice along ``axis``."""

    def __init__(self, dtype: Any = "qint8", *, symmetric: bool = True, axis: int = 0) -> None:
        super().__init__(dtype, symmetric=symmetric)
        self.axis = axis

    def extremes(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest of each slice, ``(channels,)`` in float64."""
        others = tuple(d for d in range(values.ndim) if d != self.axis % values.ndim)
        return (
            values.min(axis=others).astype(np.float64),
            values.max(axis=others).astype(np.float64),
        )
