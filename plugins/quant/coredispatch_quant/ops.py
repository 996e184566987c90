"""The operators of the quantized layout, one block each. None of them has a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coredispatch.plugin import (
    ArgumentError,
    DType,
    ShapeError,
    composite,
    primitive,
    rules,
    to_raw,
    tolerance,
)
from coredispatch_quant import definitions
from coredispatch_quant.array import (
    QuantizedArray,
    qint8,
    quantized_dtype,
    quint8,
    storage_dtype,
)
from coredispatch_quant.quantizing import quantized_by_operators
from coredispatch_quant.windows import output_size, pair

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

IntList: TypeAlias = int | Sequence[int]

__all__ = [
    "OPERATORS",
    "conv2d_shape",
    "dequantize",
    "int_repr",
    "linear_shape",
    "q_per_channel_axis",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_scale",
    "q_zero_point",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantized_conv2d",
    "quantized_linear",
]


#: what quantized tensors are made of, in samples
FLOAT32 = (DType.of("float32"),)

# ---- shape and dtype rules --------------------------------------------------------------------


def _last(*args: Any) -> DType:
    return quantized_dtype(args[-1])


def _storage(self: Any) -> DType:
    return DType.of(storage_dtype(quantized_dtype(self.dtype)))


def linear_shape(self: Any, weight: Any, bias: Any, *_: Any) -> tuple[int, ...]:
    if len(weight.shape) != 2 or len(self.shape) < 1 or self.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"input {tuple(self.shape)} and weight {tuple(weight.shape)}",
            fix="the input is (..., in_features), the weight (out_features, in_features)",
        )
    return (*self.shape[:-1], weight.shape[0])


def conv2d_shape(
    self: Any, weight: Any, bias: Any, scale: Any, zero_point: Any, stride: Any, padding: Any,
    dilation: Any, groups: int, relu: bool,
) -> tuple[int, ...]:  # fmt: skip
    if len(self.shape) != 4 or len(weight.shape) != 4:
        raise ShapeError(
            f"input {tuple(self.shape)} and weight {tuple(weight.shape)} are not both 4-d",
            fix="the input is (batch, channels, height, width); unsqueeze a single image",
        )
    channels, n = self.shape[1], weight.shape[0]
    if groups < 1 or channels != weight.shape[1] * groups or n % groups:
        raise ShapeError(
            f"{channels} input and {n} output channels in {groups} group(s) of weight "
            f"{tuple(weight.shape)}",
            fix="the weight is (out_channels, in_channels / groups, height, width)",
        )
    size = output_size(
        tuple(self.shape[2:]), tuple(weight.shape[2:]), pair(stride), pair(padding), pair(dilation)
    )
    return (self.shape[0], n, *size)


def _channels(self: Any) -> tuple[int, ...]:
    return (channel_parameter(to_raw(self), "scale").size,)


def channel_parameter(q: QuantizedArray, name: str) -> np.ndarray:
    """``scale`` or ``zero_point`` of an array quantized per channel; ArgumentError otherwise."""
    if not q.per_channel:
        raise ArgumentError(
            "this tensor is quantized per tensor", fix="use q_scale() and q_zero_point()"
        )
    return getattr(q, name)


# ---- conversions ------------------------------------------------------------------------------


@composite(
    out=rules.same_shape,
    dtype=_last,
    differentiable=False,
    dtypes="float",
    samples=definitions.per_tensor,
    reference=definitions.quantized_per_tensor,
    tolerance=tolerance.ulp(2),
)
def quantize_per_tensor(
    self: Tensor, scale: float, zero_point: int, dtype: object = quint8
) -> Tensor:
    """``clamp(round(self / scale) + zero_point)`` as 8-bit integers with one scale.

    ``self`` is floating point; midpoints go to the even integer; ``dtype`` is ``quint8``
    (0..255) or ``qint8`` (-128..127). Infinities saturate. Raises ArgumentError for NaN, for a
    scale that is not positive and for a zero point out of range. What it is made of serves devices;
    one that is asynchronous says where it next waits that there was NaN.
    """
    return quantized_by_operators(self, scale, zero_point, None, dtype)


@composite(
    out=rules.same_shape,
    dtype=_last,
    differentiable=False,
    dtypes="float",
    samples=definitions.per_channel,
    reference=definitions.quantized_per_channel,
    tolerance=tolerance.ulp(2),
)
def quantize_per_channel(
    self: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: object = qint8
) -> Tensor:
    """As :func:`quantize_per_tensor` with a scale and zero point for each slice along ``axis``.

    ``scales`` is floating point and ``zero_points`` integer, both ``(self.shape[axis],)``. They are
    kept on the host.
    """
    return quantized_by_operators(self, scales, zero_points, axis, dtype)


@primitive(
    out=rules.same_shape,
    dtype=lambda self: DType.of("float32"),
    differentiable=False,
    dtypes=FLOAT32,
    samples=definitions.either,
    reference=definitions.dequantized,
    tolerance=tolerance.exact,
)
def dequantize(self: Tensor) -> Tensor:
    """The float32 values ``(integer - zero_point) * scale`` of a quantized tensor."""


# ---- parts ------------------------------------------------------------------------------------


@primitive(
    out=rules.same_shape,
    dtype=_storage,
    differentiable=False,
    dtypes=FLOAT32,
    samples=definitions.either,
    reference=definitions.integers,
    tolerance=tolerance.exact,
)
def int_repr(self: Tensor) -> Tensor:
    """A copy of the stored integers, uint8 or int8."""


@primitive(
    out=_channels,
    dtype=lambda self: DType.of("float64"),
    differentiable=False,
    namespace=(),
    dtypes=FLOAT32,
    samples=definitions.channels,
    reference=definitions.channel_scales_of,
    tolerance=tolerance.exact,
)
def q_per_channel_scales(self: Tensor) -> Tensor:
    """The scales of a tensor quantized per channel, ``(channels,)`` float64."""


@primitive(
    out=_channels,
    dtype=lambda self: DType.of("int64"),
    differentiable=False,
    namespace=(),
    dtypes=FLOAT32,
    samples=definitions.channels,
    reference=definitions.channel_zero_points_of,
    tolerance=tolerance.exact,
)
def q_per_channel_zero_points(self: Tensor) -> Tensor:
    """The zero points of a tensor quantized per channel, ``(channels,)`` int64."""


# ---- arithmetic -------------------------------------------------------------------------------


@primitive(
    out=linear_shape,
    dtype=rules.same,
    differentiable=False,
    method=False,
    dtypes=FLOAT32,
    samples=definitions.products,
    reference=definitions.linear,
    tolerance=tolerance.steps(0.9),
)
def quantized_linear(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
    relu: bool = False,
) -> Tensor:
    """``self @ weight.T + bias`` in integers, requantized to ``scale`` and ``zero_point``.

    ``self`` is ``(..., in_features)``, quantized per tensor; ``weight`` is
    ``(out_features, in_features)``, quantized per tensor or along dimension 0; ``bias`` is
    ``(out_features,)``, floating point (rounded half to even to steps of the input scale times
    the weight scale) or int32 (such steps). Products are summed exactly; the sum is scaled as
    :mod:`coredispatch_quant.requantize` defines and saturates. ``relu`` clamps at real zero.

    Raises OpError when the sum does not fit int32, ArgumentError when a bias does not.
    """


@primitive(
    out=conv2d_shape,
    dtype=rules.same,
    differentiable=False,
    method=False,
    dtypes=FLOAT32,
    samples=definitions.convolutions,
    reference=definitions.conv2d,
    tolerance=tolerance.steps(0.9),
)
def quantized_conv2d(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
    stride: IntList = (1,),
    padding: IntList = (0,),
    dilation: IntList = (1,),
    groups: int = 1,
    relu: bool = False,
) -> Tensor:
    """2-d cross-correlation in integers; everything else as in :func:`quantized_linear`.

    ``self`` is ``(batch, channels, height, width)``, padded with its zero point; ``weight`` is
    ``(out_channels, channels / groups, kernel_height, kernel_width)``.
    """


# ---- properties ----------------------------------------------------------------------------------


@composite(
    namespace=(),
    samples=definitions.whole,
    reference=definitions.scale_of,
    tolerance=tolerance.exact,
)
def q_scale(self: Tensor) -> float:
    """The scale of a tensor quantized per tensor. Raises ArgumentError for any other."""
    raise _not_quantized()


@composite(
    namespace=(),
    samples=definitions.whole,
    reference=definitions.zero_point_of,
    tolerance=tolerance.exact,
)
def q_zero_point(self: Tensor) -> int:
    """The zero point of a tensor quantized per tensor. Raises ArgumentError for any other."""
    raise _not_quantized()


@composite(
    namespace=(),
    samples=definitions.channels,
    reference=definitions.axis_of,
    tolerance=tolerance.exact,
)
def q_per_channel_axis(self: Tensor) -> int:
    """The dimension along which scales vary. Raises ArgumentError unless there is one."""
    raise _not_quantized()


def _not_quantized() -> ArgumentError:
    return ArgumentError("this tensor is not quantized", fix="use quantize_per_tensor(...)")


def tensor_parameter(q: QuantizedArray, name: str) -> Any:
    """``scale`` or ``zero_point`` of an array quantized per tensor; ArgumentError otherwise."""
    if q.per_channel:
        raise ArgumentError(
            "this tensor is quantized per channel",
            fix="use q_per_channel_scales() and q_per_channel_zero_points()",
        )
    return getattr(q, name)


def channel_axis(q: QuantizedArray) -> int:
    """The axis of an array quantized per channel; ArgumentError otherwise."""
    if q.axis is None:
        raise ArgumentError("this tensor is not quantized per channel", fix="use q_scale()")
    return q.axis


OPERATORS = (
    quantize_per_tensor,
    quantize_per_channel,
    dequantize,
    int_repr,
    q_per_channel_scales,
    q_per_channel_zero_points,
    q_scale,
    q_zero_point,
    q_per_channel_axis,
    quantized_linear,
    quantized_conv2d,
)
