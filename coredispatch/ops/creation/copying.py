"""Copies, conversions, and writes into existing memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn_of_lost_imaginary
from coredispatch.ops.shape.rules import expanded
from coredispatch.ops.support.annotations import DType, Scalar, Tensor
from coredispatch.ops.support.rules import exact, same, same_shape
from coredispatch.ops.support.samples import Sample, unary
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import complex128, float32, float64
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "clone",
    "contiguous",
    "copy",
    "copy_",
    "detach",
    "fill",
    "fill_",
    "to_dtype",
    "type_as",
    "zero_",
]


@primitive(out=same_shape, dtype=same, reference=np.copy, samples=unary, tolerance=exact)
def clone(self: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy of ``self`` in memory of its own.

    ``memory_format``: None or ``preserve_format`` keeps the order of dense strides,
    ``contiguous_format`` is row-major, ``channels_last`` puts dimension 1 innermost.
    """


@clone.vjp
def _(grad):
    return grad


@composite(
    out=same_shape,
    dtype=same,
    reference=lambda self: np.array(self, order="C"),  # ascontiguousarray makes 0-d ones 1-d
    samples=lambda make: (s for s in unary(make) if s.args[0].ndim),
    tolerance=exact,
    view="maybe",
    namespace=(),
)
def contiguous(self: Tensor, *, memory_format: object = None) -> Tensor:
    """``self`` where it lies in ``memory_format`` (row-major by default) already, else a copy."""
    return clone(self, memory_format=memory_format)


@contiguous.vjp
def _(grad):
    return grad


def _target_dtype(self: Any, dtype: DType) -> DType:
    return dtype


def _converted(self: Any, dtype: Any) -> Any:
    return self.real if not DType.of(dtype).is_complex else self


def _conversions(make: Any) -> Iterator[Sample]:
    for sample in unary(make):
        yield Sample(*sample.args, sample.args[0].dtype)
    for dtype in (float64, complex128):
        yield Sample(make((3, 5)), dtype)
    x = make((3, 5))
    if x.dtype.itemsize <= 2:  # a double would lose the digits that a derivative is judged by
        yield Sample(x, float32)


@primitive(
    out=same_shape,
    dtype=_target_dtype,
    reference=_converted,
    samples=_conversions,
    tolerance=exact,
    namespace=(),
)
def to_dtype(self: Tensor, dtype: DType) -> Tensor:
    """A copy of ``self`` converted to ``dtype``.

    Floats are rounded to nearest even, or cut off towards zero on the way to integers; complex
    numbers lose their imaginary part; nonzero is true. What an integer cannot hold is undefined,
    as in C.
    """


@to_dtype.vjp
def _(grad):
    return grad


@composite(
    reference=lambda self, other: self,
    samples=lambda make: (Sample(make((3, 5)), make((2,))), Sample(make(()), make(()))),
    tolerance=exact,
    view="maybe",
    namespace=(),
)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """``self`` in the dtype of ``other``; ``self`` itself where it has it."""
    return self if self.dtype is other.dtype else to_dtype(self, other.dtype)


@primitive(
    out=same_shape,
    dtype=same,
    reference=lambda self: self,
    samples=unary,
    tolerance=exact,
    view=True,
    differentiable=False,
)
def detach(self: Tensor) -> Tensor:
    """``self`` over the same memory, unknown to autograd."""


# ---- writes -------------------------------------------------------------------------------------


def _fits(self: Any, src: Any, *_: Any) -> tuple[int, ...]:
    if hasattr(src, "shape"):
        shape = expanded(src, tuple(self.shape))
        if shape != tuple(self.shape):
            raise ShapeError(
                f"shape {tuple(src.shape)} does not expand to {tuple(self.shape)}",
                fix="give src the shape of self, or one that expands to it",
            )
    return tuple(self.shape)


@composite(
    out=_fits,
    dtype=same,
    reference=lambda self, src: np.broadcast_to(src, self.shape),
    samples=lambda make: (
        Sample(make(()), make(())),
        Sample(make((0,)), make((1,))),
        Sample(make((3, 5)), make((3, 5))),
        Sample(make((4, 4)), make((4,))),
        Sample(make((2, 3, 5)), make((3, 1))),
    ),
    tolerance=exact,
    inplace=True,
    unbroadcast=True,
    namespace=(),
)
def copy(self: Tensor, src: Tensor | Scalar, non_blocking: bool = False) -> Tensor:
    """``src`` in the shape and dtype of ``self``; ``self.copy_(src)`` writes it there.

    ``src`` broadcasts, and may be a number; any dtype is converted. ``non_blocking`` is a hint
    that CPU backends ignore.
    """
    if not hasattr(src, "shape"):
        return self.new_full(tuple(self.shape), src)
    if src.dtype.is_complex and self.dtype.kind not in "cb":
        warn_of_lost_imaginary()
    src = src.expand(tuple(self.shape))
    return clone(src) if src.dtype is self.dtype else to_dtype(src, self.dtype)


# What is read may lie on another device.
copy.vjp(
    self=lambda grad: grad.new_zeros(tuple(grad.shape)),
    src=lambda grad, src_device: grad if src_device is None else grad.to(src_device),
)


copy_ = copy.inplace_op


@composite(
    out=same_shape,
    dtype=same,
    reference=lambda self, value: np.full_like(self, value),
    samples=lambda make: (Sample(s.args[0], 1) for s in unary(make)),
    tolerance=exact,
    smooth=False,
    inplace=True,
    fits=("value",),
)
def fill(self: Tensor, value: Tensor | Scalar) -> Tensor:
    """``value`` (a number or a 0-dim tensor) in the shape and dtype of ``self``."""
    if not hasattr(value, "shape"):
        return self.new_full(tuple(self.shape), value)
    if value.ndim:
        raise ShapeError(
            f"fill takes a number or a 0-dim tensor, got shape {tuple(value.shape)}",
            fix="use copy_ for a tensor with dimensions",
        )
    return copy(self, value)


fill.vjp(
    self=lambda grad: grad.new_zeros(tuple(grad.shape)),
    value=lambda grad: grad.sum(),
)


fill_ = fill.inplace_op


@composite(
    mutates=("self",),
    reference=np.zeros_like,
    samples=unary,
    tolerance=exact,
    namespace=(),
)
def zero_(self: Tensor) -> Tensor:
    """Set every element of ``self`` to 0, in place."""
    return fill_(self, 0)
