"""Rounding to what a quantized tensor could hold, with a gradient: quantization-aware training.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (2018). The gradient passes straight through the rounding, and not where it saturates
(Bengio et al., 2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import any_true
from coredispatch.ops.support.rules import conditioned, same, same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, float64
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = [
    "fake_quantize_backward",
    "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine",
]


def _check(zero_point: Any, quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise ArgumentError(
            f"quant_min={quant_min} is above quant_max={quant_max}", fix="give the smaller first"
        )
    outside = (zero_point < quant_min) | (zero_point > quant_max)
    if outside is True or outside is not False and _known(outside) and any_true(outside):
        raise ArgumentError(
            f"a zero_point lies outside of quant_min={quant_min} to quant_max={quant_max}",
            fix="0 has to be one of the steps: move the zero point, or the range",
        )


def _known(x: Any) -> bool:
    return x.device.type != "meta"


def _reference(self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    steps = np.rint(self / np.float64(scale) + zero_point)
    return (np.clip(steps, quant_min, quant_max) - zero_point) * np.float64(scale)


def _samples(make: Any) -> Iterator[Sample]:
    """Steps that are powers of two, so that all dtypes round alike; saturated and not."""
    for shape in ((), (5,), (3, 4), (0,), (2, 3, 2)):
        yield Sample(make(shape), 0.25, 3, 0, 15)
        yield Sample(make(shape), 0.5, 0, -2, 1)


_METADATA: dict[str, Any] = {
    "out": same_shape,
    "dtype": same,
    "takes": "float",
    "dtypes": (float32, float64),
    "tolerance": conditioned,
    "smooth": False,
    "method": False,
    "gradcheck": lambda self, *rest: self * 1,  # a staircase: its slope is not its derivative
}


def _steps(x: Any, scale: Any, zero_point: Any) -> Any:
    return (x / scale + zero_point).round()


@composite(reference=_reference, samples=_samples, **_METADATA)
def fake_quantize_per_tensor_affine(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Tensor:
    """``(clamp(round(self / scale + zero_point), quant_min, quant_max) - zero_point) * scale``.

    The gradient is that of the identity where nothing was clamped, and 0 elsewhere.
    """
    _check(zero_point, quant_min, quant_max)
    steps = _steps(self, scale, zero_point).clamp(quant_min, quant_max)
    return (steps - zero_point) * scale


@fake_quantize_per_tensor_affine.vjp
def _(grad, self, scale, zero_point, quant_min, quant_max):
    return fake_quantize_backward(grad, self, scale, zero_point, quant_min, quant_max)


def _backward_samples(make: Any) -> Iterator[Sample]:
    for shape in ((), (5,), (3, 4), (0,)):
        yield Sample(make(shape), make(shape), 0.25, 3, 0, 15)
        yield Sample(make(shape), make(shape), 0.5, 0, -2, 1)


def _backward_reference(
    grad: Any, self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Any:
    steps = np.rint(self / np.float64(scale) + zero_point)
    return np.where((steps < quant_min) | (steps > quant_max), 0, grad)


@composite(
    reference=_backward_reference,
    samples=_backward_samples,
    namespace=(),
    **{**_METADATA, "gradcheck": lambda grad, *rest: grad * 1},
)
def fake_quantize_backward(
    grad: Tensor, self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Tensor:
    """``grad`` where ``self`` was not clamped, else 0: of :func:`fake_quantize_per_tensor_affine`.

    ``grad`` has the shape and dtype of ``self``.
    """
    steps = _steps(self.detach(), scale, zero_point)
    return grad.masked_fill((steps < quant_min) | (steps > quant_max), 0)


def _spread(parameter: Tensor, like: Tensor, axis: int) -> Tensor:
    if not 0 <= axis < like.ndim or tuple(parameter.shape) != (like.shape[axis],):
        raise ShapeError(
            f"parameters of shape {tuple(parameter.shape)} for dimension {axis} of "
            f"{tuple(like.shape)}",
            fix="give one scale and one zero point per slice along axis, counted from 0",
        )
    shape = [1] * like.ndim
    shape[axis] = -1
    return parameter.detach().to(like.dtype).reshape(shape)


def _channel_reference(
    self: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Any:
    shape = [1] * self.ndim
    shape[axis] = -1
    scale, zero_point = (np.reshape(p, shape) for p in (scale, zero_point))
    return _reference(self, scale, zero_point, quant_min, quant_max)


def _channel_samples(make: Any) -> Iterator[Sample]:
    """A scale for each slice along the first and the last dimension; all slices alike."""
    for shape, axis in (((3, 4), 0), ((3, 4), 1), ((2, 3, 2), 2)):
        n = shape[axis]
        yield Sample(make(shape), np.full(n, 0.25), np.full(n, 3), axis, 0, 15)


@composite(
    reference=_channel_reference,
    samples=_channel_samples,
    **{**_METADATA, "gradcheck": lambda self, scale, *rest: self * 1, "unbroadcast": False},
)
def fake_quantize_per_channel_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """As :func:`fake_quantize_per_tensor_affine`, a scale and zero point per slice along ``axis``.

    ``scale`` and ``zero_point`` are ``(self.shape[axis],)`` and get no gradient.
    """
    if zero_point.dtype.is_floating_point:  # a learned one may leave the range
        _check(quant_min, quant_min, quant_max)
    else:
        _check(zero_point.detach(), quant_min, quant_max)
    step, zero = _spread(scale, self, axis), _spread(zero_point, self, axis)
    return (_steps(self, step, zero).clamp(quant_min, quant_max) - zero) * step


def _channel_grad(
    grad: Any, self: Any, scale: Any, zero_point: Any, axis: Any, quant_min: Any, quant_max: Any
) -> Any:
    steps = _steps(self, _spread(scale, self, axis), _spread(zero_point, self, axis))
    return grad.masked_fill((steps < quant_min) | (steps > quant_max), 0)


fake_quantize_per_channel_affine.vjp(self=_channel_grad)
