"""Numbers as integers of 8 bits, and back: what quantized tensors store.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (2018), equation 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import any_true
from coredispatch.ops.support.rules import exact, same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, float64, int8, uint8
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["bytes_to_numbers", "numbers_to_bytes"]

_METADATA: dict[str, Any] = {
    "out": same_shape,
    "tolerance": exact,
    "differentiable": False,
    "method": False,
    "namespace": (),
}


def _limits(signed: bool) -> tuple[int, int]:
    return (-128, 127) if signed else (0, 255)


def _stored(self: Any, scale: float, zero_point: int, signed: bool) -> Any:
    steps = np.rint(np.asarray(self, np.float64) / scale) + zero_point
    return np.clip(steps, *_limits(signed)).astype(np.int8 if signed else np.uint8)


def _samples(make: Any) -> Iterator[Sample]:
    """Some saturate, some lie halfway between two integers."""
    for shape in ((), (0,), (5,), (3, 4), (700,)):
        yield Sample(make(shape, low=-3.0, high=3.0), 0.02, 120, False)
        whole = np.asarray(np.rint(make(shape, low=-9.0, high=9.0)), make.dtype)
        yield Sample(whole, 2.0, -4, True)


@composite(
    dtype=lambda self, scale, zero_point, signed: int8 if signed else uint8,
    reference=_stored,
    samples=_samples,
    dtypes=(float32,),
    takes="float",
    **_METADATA,
)
def numbers_to_bytes(self: Tensor, scale: float, zero_point: int, signed: bool) -> Tensor:
    """``clamp(round(self / scale) + zero_point)``, int8 where ``signed``, else uint8.

    It is computed in float64, and midpoints go to the even integer. ``scale`` is positive and
    finite, ``zero_point`` one of the integers. Infinities saturate; raises ArgumentError for NaN.
    """
    steps = lazy.to_dtype(self, float64) / scale
    if any_true(steps.isnan()):
        raise ArgumentError(
            "the input holds NaN, which no integer stands for", fix="use x.nan_to_num() before"
        )
    steps = (steps.round() + zero_point).clamp(*_limits(signed))
    return lazy.to_dtype(steps, int8 if signed else uint8)


def _byte_samples(make: Any) -> Iterator[Sample]:
    for shape in ((), (0,), (5,), (3, 4), (700,)):
        drawn = make.index(shape, 256).astype(np.uint8)
        signed = make.dtype == np.int8
        drawn = drawn.view(np.int8) if signed else drawn.astype(make.dtype)
        yield Sample(drawn, 0.3, -5 if signed else 100)


@composite(
    dtype=lambda self, scale, zero_point: float32,
    reference=lambda self, scale, zero_point: (
        (self.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)
    ),
    samples=_byte_samples,
    dtypes=(uint8, int8),
    takes=(uint8, int8),
    **_METADATA,
)
def bytes_to_numbers(self: Tensor, scale: float, zero_point: int) -> Tensor:
    """``(self - zero_point) * scale`` of 8-bit integers, in float32; the difference is exact."""
    return (lazy.to_dtype(self, float32) - zero_point) * scale
