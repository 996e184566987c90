"""Quantizing by core operators: on every backend that has no kernel for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.plugin import DType, DTypeError, from_raw, operator, to_raw
from coredispatch_quant.array import QuantizedArray, limits, quantized_dtype, storage_dtype

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

__all__ = ["beside", "quantized_by_operators"]


def beside(tensor: Tensor, parameter: Any, dtype: Any = np.float32) -> Tensor:
    """A parameter on the device of ``tensor``."""
    return from_raw(np.array(parameter, dtype), backend="cpu").to(tensor.device)


def quantized_by_operators(
    self: Tensor, scale: Any, zero_point: Any, axis: int | None, dtype: Any
) -> Tensor:
    """``clamp(round(self / scale) + zero_point)`` where ``self`` is, in float64 as on the CPU.

    ``scale`` and ``zero_point`` are numbers, or tensors of one for each slice along ``axis``, which
    are read: they stay on the host. Raises ArgumentError for NaN, on a device that is asynchronous
    where the program next waits for it.
    """
    if not self.dtype.is_floating_point:
        raise DTypeError(f"only floating point is quantized, got {self.dtype.name}")
    kind = quantized_dtype(dtype)
    if axis is not None:
        scale, zero_point = (to_raw(parameter.cpu()) for parameter in (scale, zero_point))
    # The parameters are checked; the shape takes no memory.
    shape = np.broadcast_to(np.zeros((), storage_dtype(kind)), tuple(self.shape))
    blank = QuantizedArray(shape, scale, zero_point, axis)
    divisor: Any = blank.along_axis(blank.scale)
    shift: Any = blank.along_axis(blank.zero_point)
    if axis is not None:
        divisor, shift = (beside(self, parameter, np.float64) for parameter in (divisor, shift))
    low, high = limits(kind)
    steps = self.double() / divisor
    steps = operator("checked")(steps, steps.isnan().long(), 0, 0, "nan")
    stored = (steps.round() + shift).clamp(low, high).to(DType.of(blank.data.dtype))
    return from_raw(blank.like(to_raw(stored)), keys_like=self, layout="quantized")
