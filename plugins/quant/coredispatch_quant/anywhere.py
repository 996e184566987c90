"""The rows that serve quantized tensors on every backend that has none of its own.

They are made of core operators over the integers, so that they run wherever the tensor was moved
to. Arithmetic in integers is left to backends with kernels for it: it is refused elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.plugin import DTypeError, MissingKernel, from_raw, operator, to_raw
from coredispatch_quant.array import QuantizedArray
from coredispatch_quant.ops import channel_parameter
from coredispatch_quant.quantizing import beside

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

__all__ = ["ANYWHERE"]


def quantized(tensor: Tensor) -> QuantizedArray:
    """The data of a quantized tensor."""
    raw = to_raw(tensor)
    if not isinstance(raw, QuantizedArray):
        raise DTypeError(f"the input is not quantized, but {tensor.dtype}")
    return raw


def integers(tensor: Tensor) -> Tensor:
    """The stored integers, as a strided tensor that shares them."""
    return from_raw(quantized(tensor).data, keys_like=tensor)


def like(tensor: Tensor, data: Tensor) -> Tensor:
    """Other integers with the parameters of ``tensor``."""
    raw = quantized(tensor).like(to_raw(data))
    return from_raw(raw, keys_like=tensor, layout="quantized")


def dequantize(self: Tensor) -> Tensor:
    """``(integer - zero_point) * scale`` in float32; the difference is exact."""
    q = quantized(self)
    zero, scale = (beside(self, q.along_axis(p)) for p in (q.zero_point, q.scale))
    return (integers(self).float() - zero) * scale


def channel(name: str, dtype: Any) -> Callable[[Tensor], Tensor]:
    """The scales or zero points of a tensor quantized per channel, on its device."""
    return lambda self: beside(self, channel_parameter(quantized(self), name), dtype)


def pooled(name: str) -> Callable[..., Tensor]:
    """An average of the exact numbers, rounded to the scale of the input, as in PyTorch."""

    def pool(self: Tensor, *options: Any) -> Tensor:
        q = quantized(self)
        if q.per_channel:
            raise MissingKernel(
                f"no quantized kernel for {name} of a tensor that is quantized per channel",
                fix="quantize activations per tensor, or dequantize first",
            )
        out = operator(name)(dequantize(self), *options)
        return operator("quantize_per_tensor")(out, q.scale, q.zero_point, q.dtype)

    return pool


#: rows of quantized on any backend
ANYWHERE: dict[str, Callable[..., Any]] = {
    "detach": lambda self: like(self, integers(self)),
    "clone": lambda self, *_: like(self, integers(self).clone()),
    "adaptive_avg_pool": pooled("adaptive_avg_pool"),
    "avg_pool": pooled("avg_pool"),
    "dequantize": dequantize,
    "int_repr": lambda self: integers(self).clone(),
    "q_per_channel_scales": channel("scale", np.float64),
    "q_per_channel_zero_points": channel("zero_point", np.int64),
}
