"""Rows of (quantized, cuda): integers on the device, by the kernels of that backend.

Tensors are quantized by core operators. Scales and zero points stay on the host; what a layer
needs of them on the device is kept with its weight. Sums that might leave int32 are refused by
their length: to look at them as the CPU does would wait for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DTypeError, OpError, ShapeError, call_raw
from coredispatch_quant.array import QuantizedArray, limits, storage_dtype
from coredispatch_quant.kernels import check_operands, magnitude, per_window
from coredispatch_quant.layout import per_tensor, quantized
from coredispatch_quant.ops import conv2d_shape, linear_shape
from coredispatch_quant.requantize import multiplier_and_shift
from coredispatch_quant.windows import pair

__all__ = ["CUDA"]

_INT32 = np.iinfo(np.int32)


# ---- products ---------------------------------------------------------------------------------


def _parameters(x: QuantizedArray, weight: QuantizedArray, scale: float, zero_point: int) -> Any:
    """What becomes of sums: an empty result, and zero points, multipliers and shifts of channels.

    The last are arrays of the device; those of the last call are kept with the weight, for the
    stream that they were made on.
    """
    device = int(weight.data.device.id)
    stream = import_module("cupy").cuda.get_current_stream()
    asked = (device, stream.ptr, x.dtype, x.axis, x.scale, x.zero_point, scale, zero_point)
    known = weight.cache.get("cuda parameters")
    if x.axis is None and known is not None and known[0] == asked:
        return known[1]
    check_operands(x, weight)
    blank = QuantizedArray(np.empty(0, storage_dtype(x.dtype)), scale, zero_point)
    split = multiplier_and_shift(x.scale * np.asarray(weight.scale) / blank.scale)
    n = weight.shape[0]
    upload = import_module("cupy").asarray
    numbers = (weight.zero_point, *split)
    arrays = [upload(np.array(np.broadcast_to(v, (n,)), np.int64)) for v in numbers]
    step = upload(np.array(np.broadcast_to(x.scale * np.asarray(weight.scale), (n,)), np.float64))
    made = blank, arrays, step
    if not stream.is_capturing():  # else a replay writes them, into memory of the graph
        weight.cache["cuda parameters"] = asked, made
    return made


def _bias(bias: Any, step: Any, weight: QuantizedArray) -> Any:
    """The bias in steps of the sums, int64; looked at once, as that waits for the device."""
    cupy, n = import_module("cupy"), weight.shape[0]
    if bias is None:
        return cupy.zeros(n, np.int64)
    if bias.shape != (n,):
        raise ShapeError(f"bias has the shape {bias.shape}, expected ({n},)")
    if bias.dtype == np.int32:
        return bias.astype(np.int64)
    if bias.dtype.kind in "iubc":
        raise DTypeError(f"a bias is floating point or int32, got {bias.dtype}")
    steps = cupy.rint(bias.astype(np.float64) / step)
    if weight.cache.get("cuda bias") is not bias:
        if not bool(cupy.all(cupy.abs(steps) <= _INT32.max)):
            raise ArgumentError(
                "a bias is too many steps of the accumulator, which do not fit int32",
                fix="use a larger weight scale for this output channel",
            )
        weight.cache["cuda bias"] = bias
    return steps.astype(np.int64)


def _computed(
    name: str, x: QuantizedArray, weight: QuantizedArray, bias: Any, scale: float,
    zero_point: int, relu: bool, *options: Any,
) -> QuantizedArray:  # fmt: skip
    terms = math.prod(weight.shape[1:])
    blank, (zeros, multiplier, shift), step = _parameters(x, weight, scale, zero_point)
    if magnitude(x) * magnitude(weight) * terms > _INT32.max:
        raise OpError(
            f"sums of {terms} products may leave int32",
            fix="split the reduction, or dequantize() first",
        )
    low, high = limits(x.dtype)
    steps = _bias(bias, step, weight)
    kept = weight.cache.setdefault("cuda weight", {})
    arguments = (
        x.data, weight.data, zeros, steps, multiplier, shift, x.zero_point, blank.zero_point,
        blank.zero_point if relu else low, high, *options, kept,
    )  # fmt: skip
    return blank.like(call_raw(name, "cuda", *arguments))


def quantized_linear(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int, relu: bool
) -> QuantizedArray:
    """Raw kernel of the operator of that name."""
    x, w = quantized(self, "input"), quantized(weight, "weight")
    linear_shape(x, w, bias)  # raises where they do not fit
    return _computed("requantized_linear", x, w, bias, scale, zero_point, relu)


def quantized_conv2d(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int, stride: Any, padding: Any,
    dilation: Any, groups: int, relu: bool,
) -> QuantizedArray:  # fmt: skip
    """Raw kernel of the operator of that name."""
    x, w = quantized(self, "input"), quantized(weight, "weight")
    window = pair(stride), pair(padding), pair(dilation)
    conv2d_shape(x, w, bias, scale, zero_point, *window, groups, relu)
    options = (*window, groups)
    return _computed("requantized_conv2d", x, w, bias, scale, zero_point, relu, *options)


# ---- the rest ---------------------------------------------------------------------------------


def max_pool(q: QuantizedArray, kernel_size: Any, *options: Any) -> QuantizedArray:
    """Maximum over windows of the integers, which float32 holds exactly."""
    per_window(q, len(kernel_size))
    found = call_raw("max_pool", "cuda", q.data.astype(np.float32), kernel_size, *options)
    return q.like(found.astype(q.data.dtype))


def relu(q: QuantizedArray) -> QuantizedArray:
    """``max(data, zero_point)``: scale and zero point stay."""
    cupy = import_module("cupy")
    zero = cupy.asarray(np.asarray(q.along_axis(q.zero_point)).astype(q.data.dtype))
    return q.like(cupy.maximum(q.data, zero))


def view(self: QuantizedArray, shape: tuple[int, ...]) -> QuantizedArray:
    """The integers in another shape. They are never written to, so a copy does for a view."""
    return self.like(per_tensor(self, "reshape").data.reshape(shape))


def permute(self: QuantizedArray, dims: tuple[int, ...]) -> QuantizedArray:
    """The integers with their dimensions in another order; the axis goes along."""
    out = self.like(self.data.transpose(dims))
    if self.axis is not None:
        out.axis = [d % self.ndim for d in dims].index(self.axis)
    return out


def getitem(self: QuantizedArray, index: Any) -> QuantizedArray:
    """The integers of a part."""
    return self.like(per_tensor(self, "index").data[index])


#: rows of (quantized, cuda)
CUDA: dict[str, Callable[..., Any]] = {
    "quantized_linear": quantized_linear,
    "quantized_conv2d": quantized_conv2d,
    "max_pool": max_pool,
    "relu": relu,
    "view": view,
    "permute": permute,
    "getitem": getitem,
}
