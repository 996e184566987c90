"""Magnitudes and signs, the larger and smaller of two values, and clamping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.rules import (
    NUMBER,
    broadcast,
    exact,
    promote,
    promote_float,
    real_like,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import Sample, pairs, tensor_pairs, unary
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.value import dtype_of


def _sign_reference(self: Any) -> Any:
    if self.dtype.kind == "c":
        return np.where(self == 0, self, self / np.abs(self))
    return self if self.dtype.kind == "b" else np.sign(self)


@primitive(
    out=same_shape,
    dtype=real_like,
    reference=np.abs,
    samples=unary,
    dtypes=NUMBER,
    tolerance=ulp(1),
    smooth=False,
    inplace=True,
    alias=("absolute",),
)
def abs(self: Tensor) -> Tensor:
    """Elementwise magnitude. Complex tensors give their component dtype. Gradient 0 at 0."""


@abs.vjp
def _(grad, self):
    return mul(grad, sgn(self))


abs.edge("0 at 0", [-2.0, 0.0, 3.0], gradient=[-1.0, 0.0, 1.0])


@composite(
    out=same_shape,
    dtype=same,
    reference=_sign_reference,
    samples=unary,
    takes="real",
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def sign(self: Tensor) -> Tensor:
    """Elementwise -1, 0 or 1; NaN stays NaN. The gradient is zero."""
    dtype = dtype_of(self)
    if dtype.kind == "b":
        return self
    above = lazy.to_dtype(comparison.gt(self, 0), dtype)
    if not dtype.is_signed:
        return above
    size = sub(above, lazy.to_dtype(comparison.lt(self, 0), dtype))
    if not dtype.is_floating_point:
        return size
    return comparison.where(comparison.isnan(self), self, size)


@sign.vjp
def _(grad):
    return lazy.zeros_like(grad)


@composite(
    out=same_shape,
    dtype=same,
    reference=_sign_reference,
    samples=unary,
    smooth=False,
    inplace=True,
)
def sgn(self: Tensor) -> Tensor:
    """:func:`sign` for real tensors; ``self / abs(self)`` (0 at 0) for complex ones."""
    if not dtype_of(self).is_complex:
        return sign(self)
    size = abs(self)
    zero = comparison.eq(size, 0)
    return comparison.where(zero, self, div(self, comparison.where(zero, 1, size)))


@composite(
    takes="real",
    out=broadcast,
    dtype=promote_float,
    reference=np.copysign,
    samples=pairs,
    dtypes="float",
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def copysign(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """The magnitude of ``self`` with the sign of ``other``, whose -0.0 is negative."""
    self, other = common(promote_float, self, other)
    size = abs(self)
    if isinstance(other, Value):
        return comparison.where(comparison.signbit(other), neg(size), size)
    return neg(size) if math.copysign(1.0, other) < 0 else size


copysign.edge("0 at 0", [0.0, 1.0], [-1.0, -2.0], gradient=([0.0, -1.0], [0.0, 0.0]))


copysign.vjp(
    self=lambda grad, out, self: mul(grad, mul(sign(self), sign(out))),
    other=lambda grad: lazy.zeros_like(grad),
)


@composite(
    takes="real",
    out=broadcast,
    dtype=promote,
    reference=np.heaviside,
    samples=tensor_pairs,
    dtypes="float",
    differentiable=False,
    tolerance=exact,
    inplace=True,
)
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """0 where ``self`` is negative, 1 where positive, ``values`` where zero; NaN stays NaN."""
    x, values = common(promote, self, values)
    step = comparison.where(comparison.eq(x, 0), values, comparison.gt(x, 0))
    return comparison.where(comparison.isnan(x), x, step)


@composite(
    out=broadcast,
    dtype=promote_float,
    reference=np.hypot,
    samples=tensor_pairs,
    takes="float",
    tolerance=ulp(3),
    inplace=True,
)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """``sqrt(self**2 + other**2)`` without overflow or underflow of the squares."""
    a, b = abs(self), abs(other)
    large, small = maximum(a, b), minimum(a, b)
    finite = comparison.logical_and(comparison.gt(large, 0), comparison.isfinite(large))
    ratio = div(small, comparison.where(finite, large, 1))
    size = mul(large, lazy.sqrt(add(mul(ratio, ratio), 1)))
    infinite = comparison.logical_or(comparison.isinf(a), comparison.isinf(b))
    plain = comparison.where(finite, size, add(a, b))
    return comparison.where(infinite, float("inf"), plain)


hypot.vjp(
    self=lambda grad, out, self: mul(grad, div(self, out)),
    other=lambda grad, out, other: mul(grad, div(other, out)),
)


_CHOICE: dict[str, Any] = {
    "out": broadcast,
    "dtype": promote,
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
}


@primitive(takes="real", reference=np.maximum, samples=pairs, **_CHOICE)
def maximum(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise larger value; NaN wins. At ties each side gets half of the gradient."""


maximum.vjp(
    self=lambda grad, self, other: _selected(grad, self, other, comparison.lt),
    other=lambda grad, self, other: _selected(grad, other, self, comparison.lt),
)

maximum.edge("halves at ties", [1.0, 2.0], [1.0, 3.0], gradient=([0.5, 0.0], [0.5, 1.0]))


@primitive(takes="real", reference=np.minimum, samples=pairs, **_CHOICE)
def minimum(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise smaller value; NaN wins. At ties each side gets half of the gradient."""


minimum.vjp(
    self=lambda grad, self, other: _selected(grad, self, other, comparison.gt),
    other=lambda grad, self, other: _selected(grad, other, self, comparison.gt),
)

minimum.edge("halves at ties", [1.0, 2.0], [1.0, 3.0], gradient=([0.5, 1.0], [0.5, 0.0]))


def _selected(grad: Any, mine: Any, theirs: Any, loses: Any) -> Any:
    shared = comparison.where(comparison.eq(mine, theirs), mul(grad, 0.5), grad)
    return comparison.where(loses(mine, theirs), 0, shared)


@composite(takes="real", reference=np.fmax, samples=tensor_pairs, **_CHOICE)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise larger value; a NaN loses against a number."""
    first = comparison.logical_or(comparison.ge(self, other), comparison.isnan(other))
    return comparison.where(first, self, other)


fmax.edge(
    "the other one where one is NaN",
    [1.0, 2.0, float("nan")],
    [1.0, 3.0, 1.0],
    gradient=([1.0, 0.0, 0.0], [0.0, 1.0, 1.0]),
)


@composite(takes="real", reference=np.fmin, samples=tensor_pairs, **_CHOICE)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise smaller value; a NaN loses against a number."""
    first = comparison.logical_or(comparison.le(self, other), comparison.isnan(other))
    return comparison.where(first, self, other)


fmin.edge(
    "the other one where one is NaN",
    [1.0, 2.0, float("nan")],
    [1.0, 3.0, 1.0],
    gradient=([1.0, 1.0, 0.0], [0.0, 0.0, 1.0]),
)


# ---- clamping ---------------------------------------------------------------------------------


def _clamp_shape(self: Any, min: Any, max: Any) -> tuple[int, ...]:
    if min is None and max is None:
        raise ArgumentError("clamp needs min or max", fix="give at least one bound")
    return broadcast(self, min, max)


def _clamp_samples(make: Any) -> Any:
    for shape in ((), (0,), (1,), (17,), (3, 5), (2, 3, 4, 5)):
        yield Sample(make(shape), 0, 1)
        yield Sample(make(shape), min=1)
        yield Sample(make(shape), max=1)
    yield Sample(make((3, 5)), make((5,)), make((3, 1)))
    yield Sample(make((3, 5)), 1, 0)  # min above max: the result is max


def _clamp_reference(self: Any, min: Any = None, max: Any = None) -> Any:
    low = self if min is None else np.maximum(self, min)
    return low if max is None else np.minimum(low, max)


@composite(
    out=_clamp_shape,
    dtype=promote,
    reference=_clamp_reference,
    samples=_clamp_samples,
    takes="real",
    tolerance=exact,
    smooth=False,
    inplace=True,
    alias=("clip",),
    fits=("min", "max"),
)
def clamp(
    self: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None
) -> Tensor:
    """Elementwise ``minimum(maximum(self, min), max)``; a bound of None does nothing.

    Bounds are numbers or tensors that broadcast; dtypes promote; NaN stays NaN. The gradient
    passes where ``min <= self <= max``. Raises ``ArgumentError`` when both bounds are None.
    """
    if min is None and max is None:
        raise ArgumentError("clamp needs min or max", fix="give at least one bound")
    low = self if min is None else maximum(self, min)
    return low if max is None else minimum(low, max)


clamp.edge("0 where the bounds cross", [0.0, 1.5, 3.0], 2.0, 1.0, gradient=[0.0, 0.0, 0.0])
clamp.edge("0 at NaN", [float("nan"), 1.0], 0.0, 2.0, gradient=[0.0, 1.0])


clamp.vjp(
    self=lambda grad, self, min, max: _clamp_grad(grad, self, min, max),
    min=lambda grad, self, min, max: _clamp_min_grad(grad, self, min, max),
    max=lambda grad, self, min, max: _clamp_max_grad(grad, self, min, max),
)

clamp.edge("1 at the bounds", [-1.0, 0.5, 1.0, 2.0], -1.0, 1.0, gradient=[1.0, 1.0, 1.0, 0.0])


def _clamp_grad(grad: Any, x: Any, low: Any, high: Any) -> Any:
    if low is None:
        inside = comparison.le(x, high)
    elif high is None:
        inside = comparison.ge(x, low)
    else:
        inside = comparison.logical_and(comparison.ge(x, low), comparison.le(x, high))
    return comparison.where(inside, grad, 0)


def _clamp_min_grad(grad: Any, x: Any, low: Any, high: Any) -> Any:
    below = comparison.lt(x, low)
    if high is not None:
        below = comparison.logical_and(below, comparison.lt(low, high))
    return comparison.where(below, grad, 0)


def _clamp_max_grad(grad: Any, x: Any, low: Any, high: Any) -> Any:
    above = comparison.gt(x, high)
    if low is not None:
        above = comparison.logical_or(above, comparison.gt(low, high))
    return comparison.where(above, grad, 0)


@composite(
    out=broadcast,
    dtype=promote,
    samples=pairs,
    takes="real",
    smooth=False,
    inplace=True,
    fits=("min",),
)
def clamp_min(self: Tensor, min: Tensor | Scalar) -> Tensor:
    """``clamp(self, min=min)``."""
    if min is None:  # which clamp would take for "no bound"
        raise DTypeError("the bound is missing", fix="give a number or a tensor")
    return clamp(self, min, None)


@composite(
    out=broadcast,
    dtype=promote,
    samples=pairs,
    takes="real",
    smooth=False,
    inplace=True,
    fits=("max",),
)
def clamp_max(self: Tensor, max: Tensor | Scalar) -> Tensor:
    """``clamp(self, max=max)``."""
    if max is None:  # which clamp would take for "no bound"
        raise DTypeError("the bound is missing", fix="give a number or a tensor")
    return clamp(self, None, max)
