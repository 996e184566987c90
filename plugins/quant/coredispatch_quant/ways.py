"""Ways from a strided tensor to a quantized one with fixed parameters: the layout's forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import Tensor, from_raw, to_raw
from coredispatch_quant.array import QuantizedArray, limits
from coredispatch_quant.grids import PER_TENSOR, channel_scales
from coredispatch_quant.ops import quantize_per_channel, quantize_per_tensor

__all__ = ["qint8_per_channel", "qint8_per_tensor", "quint8_per_tensor", "range_of", "step"]


def quint8_per_tensor(tensor: Tensor) -> Tensor:
    """Unsigned integers with one scale: -4.4 to 5.8 in steps of 0.04."""
    return quantize_per_tensor(tensor, *PER_TENSOR[""])


def qint8_per_tensor(tensor: Tensor) -> Tensor:
    """Signed integers with one scale: -4.64 to 5.56 in steps of 0.04."""
    return quantize_per_tensor(tensor, *PER_TENSOR["qint8"])


def qint8_per_channel(tensor: Tensor) -> Tensor:
    """Signed integers around zero, with a scale of its own for each slice along dimension 0."""
    channels = tensor.shape[0] if tensor.ndim else 0
    scales = from_raw(channel_scales(channels), backend="cpu")
    zeros = from_raw(np.zeros(channels, np.int64), backend="cpu")
    return quantize_per_channel(tensor, scales, zeros, 0, "qint8")


def step(tensor: Tensor) -> float:
    """The scale of a quantized tensor, the largest of them where it has several; 0 for strided."""
    raw: Any = to_raw(tensor)
    return float(np.max(raw.scale, initial=0.0)) if isinstance(raw, QuantizedArray) else 0.0


def range_of(tensor: Tensor) -> tuple[Any, Any]:
    """The least and the largest value that a quantized tensor can hold, for each channel."""
    raw: Any = to_raw(tensor)
    scale, zero = (np.asarray(raw.along_axis(p), np.float64) for p in (raw.scale, raw.zero_point))
    low, high = limits(raw.dtype)
    return (low - zero) * scale, (high - zero) * scale
