"""The rows that the layout ``quantized`` puts into the table.

What has no integer kernel here raises :class:`MissingKernel`: nothing is ever dequantized to
serve a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DType, DTypeError, Layout, MissingKernel, ShapeError
from coredispatch_quant import kernels, ways
from coredispatch_quant.array import QuantizedArray, qint8, quantized_dtype, quint8
from coredispatch_quant.ops import (
    channel_axis,
    channel_parameter,
    conv2d_shape,
    dequantize,
    linear_shape,
    tensor_parameter,
)
from coredispatch_quant.printing import describe
from coredispatch_quant.windows import pair

__all__ = ["CPU_KERNELS", "FROM_STRIDED", "LAYOUT"]


def quantized(q: Any, role: str) -> QuantizedArray:
    """``q`` if it is quantized; DTypeError naming its role otherwise."""
    if not isinstance(q, QuantizedArray):
        raise DTypeError(
            f"the {role} is not quantized, but {DType.of(q.dtype).name}",
            fix="quantize it with quantize_per_tensor or quantize_per_channel",
        )
    return q


def strided(x: Any, role: str) -> np.ndarray:
    """``x`` if it is a plain array; DTypeError naming its role otherwise."""
    if isinstance(x, QuantizedArray):
        raise DTypeError(f"the {role} is quantized already")
    return x


# ---- operators of this plugin -----------------------------------------------------------------


def quantize_per_tensor(self: Any, scale: float, zero_point: int, dtype: Any) -> QuantizedArray:
    """Raw kernel of the operator of that name."""
    return kernels.quantize(strided(self, "input"), scale, zero_point, None, quantized_dtype(dtype))


def quantize_per_channel(
    self: Any, scales: Any, zero_points: Any, axis: int, dtype: Any
) -> QuantizedArray:
    """Raw kernel of the operator of that name."""
    return kernels.quantize(
        strided(self, "input"), scales, zero_points, axis, quantized_dtype(dtype)
    )


def quantized_linear(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int, relu: bool
) -> QuantizedArray:
    """Raw kernel of the operator of that name."""
    x, w = quantized(self, "input"), quantized(weight, "weight")
    linear_shape(x, w, bias)  # raises where they do not fit
    return kernels.linear(x, w, bias, scale, zero_point, relu)


def quantized_conv2d(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int, stride: Any, padding: Any,
    dilation: Any, groups: int, relu: bool,
) -> QuantizedArray:  # fmt: skip
    """Raw kernel of the operator of that name."""
    x, w = quantized(self, "input"), quantized(weight, "weight")
    window = pair(stride), pair(padding), pair(dilation)
    conv2d_shape(x, w, bias, scale, zero_point, *window, groups, relu)
    return kernels.conv2d(x, w, bias, scale, zero_point, *window, groups, relu)


def channel(name: str) -> Callable[[QuantizedArray], np.ndarray]:
    """Kernel that copies ``scale`` or ``zero_point`` of an array quantized per channel."""
    return lambda self: channel_parameter(self, name).copy()


# ---- core operators ---------------------------------------------------------------------------


def per_tensor(q: QuantizedArray, what: str) -> QuantizedArray:
    """``q`` if one scale serves all of it; MissingKernel otherwise."""
    if q.per_channel:
        raise MissingKernel(
            f"there is no kernel that can {what} a tensor quantized per channel",
            fix="quantize it per tensor, or call .dequantize()",
        )
    return q


def view(self: QuantizedArray, shape: tuple[int, ...]) -> QuantizedArray:
    """The integers in another shape. They are never written to, so a copy does for a view."""
    return self.like(per_tensor(self, "reshape").data.reshape(shape))


def permute(self: QuantizedArray, dims: tuple[int, ...]) -> QuantizedArray:
    """The integers with their dimensions in another order; the axis goes along."""
    out = self.like(np.transpose(self.data, dims))
    if self.axis is not None:
        out.axis = [d % self.ndim for d in dims].index(self.axis)
    return out


def getitem(self: QuantizedArray, index: Any) -> QuantizedArray:
    """The integers of a part."""
    return self.like(np.asarray(per_tensor(self, "index").data[index]))


def copy(self: Any, src: Any, *_: Any) -> QuantizedArray:
    """``src`` with its own parameters, in place of ``self``: both quantized, of one type."""
    if not isinstance(self, QuantizedArray) or not isinstance(src, QuantizedArray):
        raise MissingKernel(
            "there is no kernel that copies between quantized and strided tensors",
            fix="quantize or dequantize the source",
        )
    if self.shape != src.shape:
        raise ShapeError(f"a tensor of shape {src.shape} copied into one of {self.shape}")
    if self.dtype is not src.dtype:
        raise DTypeError(f"a {src.dtype.name} tensor copied into one of {self.dtype.name}")
    return clone(src)


def clone(self: QuantizedArray, *_: Any) -> QuantizedArray:
    """The same integers in memory of their own."""
    return self.like(self.data.copy())


#: rows of (quantized, cpu)
CPU_KERNELS: dict[str, Callable[..., Any]] = {
    "dequantize": lambda self: kernels.dequantize(quantized(self, "input")),
    "int_repr": lambda self: quantized(self, "input").data.copy(),
    "q_per_channel_scales": channel("scale"),
    "q_per_channel_zero_points": channel("zero_point"),
    "quantize_per_tensor": quantize_per_tensor,
    "quantize_per_channel": quantize_per_channel,
    "quantized_linear": quantized_linear,
    "quantized_conv2d": quantized_conv2d,
    "relu": kernels.relu,
    "max_pool": kernels.max_pool,
    "view": view,
    "permute": permute,
    "getitem": getitem,
    "clone": clone,
    "copy": copy,
    "detach": lambda self: self,
}

#: rows of quantized, on any backend
PROPERTIES: dict[str, Callable[..., Any]] = {
    "is_quantized": lambda self: True,
    "q_scale": lambda self: tensor_parameter(self, "scale"),
    "q_zero_point": lambda self: tensor_parameter(self, "zero_point"),
    "q_per_channel_axis": channel_axis,
}

#: rows of cpu: from strided tensors to quantized ones, and products of their integers
FROM_STRIDED: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor": quantize_per_tensor,
    "quantize_per_channel": quantize_per_channel,
    **kernels.INTEGER_KERNELS,
}


def pack(raw: QuantizedArray) -> dict[str, Any]:
    """The integers and their parameters. Only the integers are an array that moves to a device."""
    return {
        "data": raw.data,
        "scale": raw.scale.tolist() if raw.per_channel else raw.scale,
        "zero_point": raw.zero_point.tolist() if raw.per_channel else raw.zero_point,
        "axis": raw.axis,
    }


def unpack(parts: dict[str, Any]) -> QuantizedArray:
    """What :func:`pack` took apart, checked."""
    return QuantizedArray(parts["data"], parts["scale"], parts["zero_point"], parts["axis"])


LAYOUT = Layout(
    "quantized",
    data_type=QuantizedArray,
    kernels=PROPERTIES,
    kernels_for={"cpu": CPU_KERNELS},
    describe=describe,
    pack=pack,
    unpack=unpack,
    dtypes=(qint8, quint8),
    to_dense=dequantize,
    from_dense=ways.quint8_per_tensor,
    forms={
        "qint8": ways.qint8_per_tensor,
        "channels": ways.qint8_per_channel,
        "last_axis": ways.qint8_per_last_channel,
        "channels_last": ways.channels_last,
    },
    dtypes_checked=("float32",),
    step=ways.step,
    limits=ways.range_of,
)
