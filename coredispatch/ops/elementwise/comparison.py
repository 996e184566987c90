"""Comparisons, selection by a condition, tests for special values, and logic on truth values.

None of the results but those of ``where`` has a gradient: truth values are not differentiable.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import arithmetic
from coredispatch.ops.elementwise.bitwise import bitwise_and, bitwise_not, bitwise_or, bitwise_xor
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import boolean, broadcast, exact, promote, same_shape
from coredispatch.ops.support.samples import Sample, pairs, selections, unary
from coredispatch.registry import Promotion, Value, composite, primitive
from coredispatch.registry.model.dtypes import DType, bool_, uint8
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.value import dtype_of

_INF = float("inf")


def _relation(reference: Any, **more: Any) -> dict[str, Any]:
    metadata = {
        "out": broadcast,
        "dtype": boolean,
        "reference": reference,
        "samples": pairs,
        "differentiable": False,
        "tolerance": exact,
    }
    return metadata | more


def _test(reference: Any, **more: Any) -> dict[str, Any]:
    metadata = {
        "out": same_shape,
        "dtype": bool_,
        "reference": reference,
        "samples": unary,
        "differentiable": False,
        "tolerance": exact,
    }
    return metadata | more


# ---- relations --------------------------------------------------------------------------------


@primitive(**_relation(np.equal), inplace=True)
def eq(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self == other`` as bool; NaN equals nothing. Shapes broadcast."""


@composite(**_relation(np.not_equal), inplace=True, alias=("not_equal",))
def ne(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self != other`` as bool. Shapes broadcast."""
    return bitwise_not(eq(self, other))


@primitive(**_relation(np.less, takes="real"), inplace=True, alias=("less",))
def lt(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self < other`` as bool, false for NaN. Shapes broadcast."""


@primitive(**_relation(np.less_equal, takes="real"), inplace=True, alias=("less_equal",))
def le(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self <= other`` as bool, false for NaN. Shapes broadcast."""


@composite(**_relation(np.greater, takes="real"), inplace=True, alias=("greater",))
def gt(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self > other`` as bool, false for NaN. Shapes broadcast."""
    return lt(other, self)


@composite(**_relation(np.greater_equal, takes="real"), inplace=True, alias=("greater_equal",))
def ge(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self >= other`` as bool, false for NaN. Shapes broadcast."""
    return le(other, self)


# ---- selection --------------------------------------------------------------------------------

_of_branches = Promotion("promote", skip=("condition",))


def _selected(condition: Any, self: Any, other: Any) -> tuple[int, ...]:
    dtype = DType.of(condition.dtype)
    if dtype not in (bool_, uint8):
        raise DTypeError(f"the condition must be bool, got {dtype}", fix="use condition.bool()")
    return broadcast(condition, self, other)


@primitive(
    out=_selected,
    dtype=_of_branches,
    reference=np.where,
    samples=selections,
    cast="widest",
    tolerance=exact,
    fits=("self", "other"),
)
def where(condition: Tensor, self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self`` where ``condition`` holds, else ``other``.

    ``condition`` is bool (uint8 is accepted); all three broadcast and the dtypes of the two
    branches promote. A branch that is not chosen contributes no gradient, not even NaN. With the
    condition alone, the indices of its true elements as a tuple, ``nonzero(as_tuple=True)``.
    """


where.vjp(
    self=lambda grad, condition: where(condition, grad, 0),
    other=lambda grad, condition: where(condition, 0, grad),
)


@where.overload
def _(condition: Tensor) -> Tensor:
    return lazy.nonzero(condition, as_tuple=True)


# ---- special values ---------------------------------------------------------------------------


@composite(**_test(np.isnan))
def isnan(self: Tensor) -> Tensor:
    """True where an element is NaN (either part of a complex one)."""
    return ne(self, self)


@composite(**_test(np.isinf))
def isinf(self: Tensor) -> Tensor:
    """True where an element is infinite (either part of a complex one)."""
    if dtype_of(self).category < 2:
        return ne(self, self)
    return eq(_reach(self), _INF)


@composite(**_test(np.isfinite))
def isfinite(self: Tensor) -> Tensor:
    """True where an element is neither infinite nor NaN."""
    if dtype_of(self).category < 2:
        return eq(self, self)
    return lt(_reach(self), _INF)


def _reach(x: Any) -> Any:
    """Magnitude, for complex numbers the sum of the parts' (infinite if and only if one is)."""
    if not dtype_of(x).is_complex:
        return lazy.abs(x)
    return arithmetic.add(lazy.abs(lazy.real(x)), lazy.abs(lazy.imag(x)))


@composite(**_test(np.isposinf, takes="real"))
def isposinf(self: Tensor) -> Tensor:
    """True where an element is plus infinity."""
    return eq(self, _INF) if dtype_of(self).is_floating_point else ne(self, self)


@composite(**_test(np.isneginf, takes="real"))
def isneginf(self: Tensor) -> Tensor:
    """True where an element is minus infinity."""
    return eq(self, -_INF) if dtype_of(self).is_floating_point else ne(self, self)


@composite(**_test(np.signbit, takes="real"))
def signbit(self: Tensor) -> Tensor:
    """True where the sign bit is set: below zero, and -0.0."""
    if not dtype_of(self).is_floating_point:
        return lt(self, 0) if dtype_of(self).is_signed else ne(self, self)
    # atan2 tells -0.0 from 0.0: the angle of (-1, -0.0) is -pi.
    return lt(lazy.atan2(self, lazy.full_like(self, -1.0)), 0)


# ---- logic ------------------------------------------------------------------------------------


def _truth(x: Any) -> Any:
    if not isinstance(x, Value):
        if not isinstance(x, (Number, np.bool_)):  # a text is true to Python
            raise DTypeError(
                f"expected a tensor or a number, got {type(x).__name__}",
                fix="convert it with cd.tensor(...)",
            )
        return bool(x)
    return x if dtype_of(x) is bool_ else ne(x, 0)


@composite(**_relation(np.logical_and), inplace=True)
def logical_and(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise truth of ``self`` and ``other``; nonzero is true. Shapes broadcast."""
    return bitwise_and(_truth(self), _truth(other))


@composite(**_relation(np.logical_or), inplace=True)
def logical_or(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise truth of ``self`` or ``other``; nonzero is true. Shapes broadcast."""
    return bitwise_or(_truth(self), _truth(other))


@composite(**_relation(np.logical_xor), inplace=True)
def logical_xor(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise truth of exactly one of the two; nonzero is true. Shapes broadcast."""
    return bitwise_xor(_truth(self), _truth(other))


@composite(**_test(np.logical_not), inplace=True)
def logical_not(self: Tensor) -> Tensor:
    """Elementwise ``self == 0`` as bool."""
    return bitwise_not(_truth(self))


# ---- closeness --------------------------------------------------------------------------------


@composite(
    out=broadcast,
    dtype=bool_,
    reference=lambda self, other, rtol=1e-5, atol=1e-8, equal_nan=False: np.isclose(
        self, other, rtol, atol, equal_nan
    ),
    samples=pairs,
    differentiable=False,
    tolerance=exact,
)
def isclose(
    self: Tensor,
    other: Tensor | Scalar,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Elementwise ``abs(self - other) <= atol + rtol * abs(other)``; equal infinities are close.

    Integers and bools are compared in float64. ``equal_nan`` makes NaN close to NaN.
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise ArgumentError(
                f"{name} must not be negative, got {tolerance}", fix=f"use {name} >= 0"
            )
    close = eq(self, other)
    if promote.compute(self, other).category < 2:
        self, other = (
            lazy.to_dtype(x, widest(x)) if isinstance(x, Value) else x for x in (self, other)
        )
    size = lazy.abs(other) if isinstance(other, Value) else abs(other)
    allowed = arithmetic.mul(size, rtol) if isinstance(size, Value) else rtol * size
    distance = lazy.abs(arithmetic.sub(self, other))
    near = le(
        distance, arithmetic.add(allowed, atol) if isinstance(size, Value) else allowed + atol
    )
    close = logical_or(close, logical_and(near, isfinite(distance)))
    if equal_nan and isinstance(other, Value):
        close = logical_or(close, logical_and(isnan(self), isnan(other)))
    return close


def _twins(make: Any) -> Iterator[Sample]:
    """``op(self, other)``: equal, and other in all elements, in the last one, or in size."""
    for sample in unary(make):
        (x,) = sample.args
        yield Sample(x, x.copy())
        yield Sample(x, make(x.shape))
        if x.size:
            other = x.copy()
            other[(-1,) * x.ndim] = ~other[(-1,) * x.ndim] if x.dtype == bool else 77
            yield Sample(x, other)
            yield Sample(x, other[None])


def _near(make: Any) -> Iterator[Sample]:
    """``op(self, other, rtol, atol, equal_nan)`` of those with one size."""
    for sample in _twins(make):
        if sample.args[0].shape == sample.args[1].shape:
            for equal_nan in (False, True):
                yield Sample(*sample.args, 1e-5, 1e-8, equal_nan)


@composite(
    out=lambda *_: (),
    dtype=bool_,
    reference=np.allclose,
    samples=_near,
    dtypes="float",
    differentiable=False,
    namespace=(),
    method=False,
)
def all_close(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    """Whether every element :func:`isclose`, as a 0-dim bool tensor."""
    return lazy.all(isclose(self, other, rtol, atol, equal_nan))


@composite(reference=np.allclose, samples=_near, dtypes="float", tolerance=exact)
def allclose(
    self: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether every element of ``self`` is close to that of ``other``.

    Close means ``abs(self - other) <= atol + rtol * abs(other)``; shapes broadcast. With
    ``equal_nan`` NaN is close to NaN.
    """
    return bool(all_close(self, other, rtol, atol, equal_nan))


@composite(
    reference=lambda a, b: a.shape == b.shape and bool((a == b).all()),
    samples=_twins,
    tolerance=exact,
)
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one size and equal elements. NaN equals nothing."""
    return is_same_size(self, other) and bool(lazy.all(eq(self, other)))


@composite(reference=lambda a, b: a.shape == b.shape, samples=_twins, tolerance=exact)
def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one size."""
    return tuple(self.shape) == tuple(other.shape)
