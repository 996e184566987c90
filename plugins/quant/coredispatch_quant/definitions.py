"""What the quantized operators are tried with, and what they mean, on NumPy's dense arrays.

An array that stands for a quantized tensor is marked with :func:`coredispatch.plugin.laid_out`;
its form says with which parameters it is stored, one of the layout's ways in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.plugin import Sample, laid_out
from coredispatch_quant.grids import LIMITS, PER_CHANNEL, PER_TENSOR, along, channel_scales, grid

__all__ = [
    "axis_of",
    "channel_scales_of",
    "channel_zero_points_of",
    "channels",
    "conv2d",
    "convolutions",
    "dequantized",
    "either",
    "integers",
    "linear",
    "per_channel",
    "per_tensor",
    "products",
    "quantized_per_channel",
    "quantized_per_tensor",
    "scale_of",
    "whole",
    "zero_point_of",
]

LAYOUT = "quantized"
SHAPES = ((), (1,), (5,), (17,), (4, 4), (3, 5), (2, 3, 5), (0, 3))


def stored(make: Any, shape: tuple[int, ...], form: str = "", reach: float = 2.0) -> Any:
    """Values of the layout's grid that stand for a quantized tensor."""
    return laid_out(grid(make(shape, low=-reach, high=reach), form), LAYOUT, form)


# ---- samples ----------------------------------------------------------------------------------


def per_tensor(make: Any) -> Iterator[Sample]:
    """``quantize_per_tensor(self, scale, zero_point, dtype)``; some of the values saturate."""
    for shape in SHAPES:
        yield Sample(make(shape, low=-3.0, high=3.0), 0.05, 120, "quint8")
        yield Sample(make(shape, low=-3.0, high=3.0), 0.02, -4, "qint8")
    yield Sample(make((3, 5), low=-3.0, high=3.0), 0.5, 7)


def per_channel(make: Any) -> Iterator[Sample]:
    """``quantize_per_channel(self, scales, zero_points, axis, dtype)``."""
    for shape, axis in (((4, 3), 0), ((4, 3), -1), ((2, 3, 5), 1), ((0, 3), 1)):
        count = shape[axis]
        zeros = np.arange(count, dtype=np.int64) - 1
        for dtype in ("qint8", "quint8"):
            offset = 100 if dtype == "quint8" else 0
            values = make(shape, low=-2.0, high=2.0)
            yield Sample(values, channel_scales(count), zeros + offset, axis, dtype)


def whole(make: Any) -> Iterator[Sample]:
    """``op(quantized per tensor)``, in both types."""
    for shape in SHAPES:
        yield Sample(stored(make, shape))
        yield Sample(stored(make, shape, "qint8"))
        if len(shape) > 2:
            yield Sample(stored(make, shape, "channels_last"))


def either(make: Any) -> Iterator[Sample]:
    """``op(quantized)``, per tensor in both types and per channel."""
    yield from whole(make)
    yield from channels(make)


def channels(make: Any) -> Iterator[Sample]:
    """``op(quantized per channel)``."""
    for shape in ((1,), (5,), (4, 4), (3, 5), (7, 3, 5)):
        yield Sample(stored(make, shape, "channels"))
        if len(shape) > 1:
            yield Sample(stored(make, shape, "last_axis"))


def products(make: Any) -> Iterator[Sample]:
    """``quantized_linear(self, weight, bias, scale, zero_point, relu)``."""
    for shape, n, form in (((5, 7), 6, "qint8"), ((3,), 4, "channels"), ((2, 3, 9), 5, "channels")):
        weight = stored(make, (n, shape[-1]), form, 1.0)
        yield Sample(stored(make, shape), weight, None, 0.08, 130)
        bias = np.asarray(make((n,), low=-1.0, high=1.0), np.float32)
        yield Sample(stored(make, shape, "qint8"), weight, bias, 0.09, -5, True)
    yield Sample(stored(make, (0, 4)), stored(make, (3, 4), "qint8"), None, 0.1, 128)


def convolutions(make: Any) -> Iterator[Sample]:
    """``quantized_conv2d`` with strides, padding, dilation and groups."""
    for form, options in (
        ("qint8", ((1,), (0,), (1,), 1)),
        ("channels", ((2, 1), (1, 2), (1,), 1)),
        ("channels", ((1,), (1,), (2, 1), 1)),
        ("qint8", ((2,), (1,), (1,), 2)),
    ):
        weight = stored(make, (4, 4 // options[-1], 3, 2), form, 1.0)
        bias = np.asarray(make((4,), low=-1.0, high=1.0), np.float32)
        yield Sample(stored(make, (2, 4, 7, 6)), weight, bias, 0.1, 120, *options)
        yield Sample(stored(make, (1, 4, 6, 7), "qint8"), weight, None, 0.1, 3, *options, True)


# ---- definitions ------------------------------------------------------------------------------


def rounded(values: Any, scale: Any, zero_point: Any, dtype: str) -> Any:
    """The values that 8-bit integers with these parameters stand for; midpoints to even."""
    low, high = LIMITS[str(getattr(dtype, "name", dtype))]
    steps = np.rint(np.asarray(values, np.float64) / scale) + zero_point
    return laid_out((np.clip(steps, low, high) - zero_point) * scale, LAYOUT)


def quantized_per_tensor(self: Any, scale: float, zero_point: int, dtype: Any = "quint8") -> Any:
    """``clamp(round(self / scale) + zero_point)``, and what that stands for."""
    return rounded(self, scale, zero_point, dtype)


def quantized_per_channel(
    self: Any, scales: Any, zero_points: Any, axis: int, dtype: Any = "qint8"
) -> Any:
    """The same with parameters of its own for each slice along ``axis``."""
    along = [1] * self.ndim
    along[axis] = -1
    scale = np.asarray(scales, np.float64).reshape(along)
    return rounded(self, scale, np.asarray(zero_points).reshape(along), dtype)


def dequantized(self: Any) -> Any:
    """The values, strided, in float32."""
    return np.asarray(self, np.float32)


def integers(self: Any) -> Any:
    """The stored integers of values on the grid of their form."""
    values = np.asarray(self, np.float64)
    if self.form in PER_CHANNEL:
        return np.rint(values / along(self, self.form)).astype(np.int8)
    scale, zero, dtype = PER_TENSOR[self.form]
    return (np.rint(values / scale) + zero).astype(np.uint8 if dtype == "quint8" else np.int8)


def scale_of(self: Any) -> float:
    """The scale of a form with one."""
    return float(PER_TENSOR[self.form][0])


def zero_point_of(self: Any) -> int:
    """The zero point of a form with one."""
    return int(PER_TENSOR[self.form][1])


def axis_of(self: Any) -> int:
    """The dimension along which the scales of a form vary, counted from the first."""
    return int(PER_CHANNEL[self.form] % self.ndim)


def channel_scales_of(self: Any) -> Any:
    """The scales of a form with several."""
    return channel_scales(self.shape[PER_CHANNEL[self.form]])


def channel_zero_points_of(self: Any) -> Any:
    """The zero points of a form with several: all 0."""
    return np.zeros(self.shape[PER_CHANNEL[self.form]], np.int64)


def saturated(exact: Any, form: str, scale: float, zero_point: int, relu: bool) -> Any:
    """A product clipped to what the result's type can hold; its rounding is the tolerance."""
    low, high = LIMITS[PER_TENSOR[form][2]]
    found = np.clip(exact, (low - zero_point) * scale, (high - zero_point) * scale)
    return laid_out(np.maximum(found, 0) if relu else found, LAYOUT)


def linear(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int, relu: bool = False
) -> Any:
    """``self @ weight.T + bias``, exact but for saturation."""
    exact = np.asarray(self) @ np.asarray(weight).T + (0 if bias is None else bias)
    return saturated(exact, self.form, scale, zero_point, relu)


def conv2d(
    self: Any, weight: Any, bias: Any, scale: float, zero_point: int,
    stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,), groups: int = 1,
    relu: bool = False,
) -> Any:  # fmt: skip
    """The sum over the window, place by place, exact but for saturation."""
    x, w = np.asarray(self), np.asarray(weight)
    (sh, sw), (ph, pw), (dh, dw) = (
        tuple(n) * 2 if len(n) == 1 else tuple(n) for n in (stride, padding, dilation)
    )
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    n, per_group, kh, kw = w.shape
    height = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    width = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = np.zeros((x.shape[0], n, height, width))
    for channel in range(n):
        first = channel // (n // groups) * per_group
        for i, j in np.ndindex(height, width):
            window = x[
                :,
                first : first + per_group,
                i * sh : i * sh + dh * (kh - 1) + 1 : dh,
                j * sw : j * sw + dw * (kw - 1) + 1 : dw,
            ]
            out[:, channel, i, j] = (window * w[channel]).sum((1, 2, 3))
    if bias is not None:
        out += np.asarray(bias).reshape(-1, 1, 1)
    return saturated(out, self.form, scale, zero_point, relu)
