"""Ways from a strided tensor to a quantized one with fixed parameters: the layout's forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import ShapeError, Tensor, from_raw, to_raw
from coredispatch_quant.array import QuantizedArray, limits
from coredispatch_quant.grids import PER_TENSOR, channel_scales
from coredispatch_quant.ops import quantize_per_channel, quantize_per_tensor

__all__ = [
    "channels_last",
    "qint8_per_channel",
    "qint8_per_last_channel",
    "qint8_per_tensor",
    "quint8_per_tensor",
    "range_of",
    "step",
]


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


def qint8_per_last_channel(tensor: Tensor) -> Tensor:
    """The same along the last dimension, as in images whose channels come last."""
    axis = max(tensor.ndim - 1, 0)
    channels = tensor.shape[axis] if tensor.ndim else 0
    scales = from_raw(channel_scales(channels), backend="cpu")
    zeros = from_raw(np.zeros(channels, np.int64), backend="cpu")
    return quantize_per_channel(tensor, scales, zeros, axis, "qint8")


def channels_last(tensor: Tensor) -> Tensor:
    """Unsigned integers with one scale, in memory with dimension 1 last.

    Raises ShapeError for fewer than three dimensions, where no other order is left.
    """
    if tensor.ndim < 3:
        raise ShapeError(f"a tensor of shape {tuple(tensor.shape)} has no channels to come last")
    raw: Any = to_raw(quantize_per_tensor(tensor, *PER_TENSOR["channels_last"]))
    data = np.moveaxis(np.ascontiguousarray(np.moveaxis(raw.data, 1, -1)), -1, 1)
    return from_raw(raw.like(data), keys_like=tensor, layout="quantized")


def step(tensor: Tensor) -> Any:
    """The scale of a quantized tensor, for each channel where it has several; 0 for strided."""
    raw: Any = to_raw(tensor)
    return raw.along_axis(raw.scale) if isinstance(raw, QuantizedArray) else 0.0


def range_of(tensor: Tensor) -> tuple[Any, Any]:
    """The least and the largest value that a quantized tensor can hold, for each channel."""
    raw: Any = to_raw(tensor)
    scale, zero = (np.asarray(raw.along_axis(p), np.float64) for p in (raw.scale, raw.zero_point))
    low, high = limits(raw.dtype)
    return (low - zero) * scale, (high - zero) * scale
