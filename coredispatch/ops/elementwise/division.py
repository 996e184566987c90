"""Quotients and remainders, reciprocals, and what rests on divisibility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.rules import (
    REAL_NUMBER,
    broadcast,
    exact,
    promote,
    promote_float,
    require_int,
    require_one_of,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import int_pairs, positive_pairs, unary
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.model.dtypes import float32
from coredispatch.registry.model.value import dtype_of


@primitive(
    out=broadcast,
    dtype=promote_float,
    reference=np.true_divide,
    cast="widest",
    samples=positive_pairs,
    tolerance=ulp(1),
    inplace=True,
    alias=("divide", "true_divide"),
)
def div(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self / other``.

    Shapes broadcast, dtypes promote, and integers divided by integers give the default floating
    dtype. ``rounding_mode="floor"`` is :func:`floor_divide`, ``"trunc"`` rounds towards zero;
    both keep integers integers.
    """


div.vjp(
    self=lambda grad, other: div(grad, adjoint(other)),
    # Two divisions keep the range that other**2 leaves. The result, which the second one could
    # begin with, may be written in place, as in PyTorch.
    other=lambda grad, self, other: neg(mul(grad, adjoint(div(div(self, other), other)))),
)


@div.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    require_one_of("rounding_mode", rounding_mode, (None, "floor", "trunc"))
    if rounding_mode is None:
        return div(self, other)
    op = floor_divide if rounding_mode == "floor" else trunc_divide
    if isinstance(self, Value) and not isinstance(other, Value):
        dtype = dtype_of(self)
        if dtype.is_floating_point and dtype.itemsize == 2:
            # Rounded to the dtype first, 0.3 would be a number that gives other whole numbers.
            return lazy.to_dtype(op(lazy.to_dtype(self, float32), other), dtype)
    return op(self, other)


# Quotients that are rounded, and what is left over: they jump where the divisor is small.
_STEPPED: dict[str, Any] = {
    "out": broadcast,
    "dtype": promote,
    "samples": positive_pairs,
    "takes": REAL_NUMBER,
    "values": (0.3, 2.0),
    "tolerance": exact,
    "smooth": False,
    "inplace": True,
}


# ``(self - fmod(self, other)) / other``, as NumPy and PyTorch compute it, rounds: a quotient above
# ``2**22`` may be the next whole number.
@primitive(reference=np.floor_divide, **{**_STEPPED, "tolerance": ulp(2)})
def floor_divide(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise quotient rounded towards minus infinity (Python's ``//``).

    Shapes broadcast, dtypes promote, integers stay integers; an integer zero in ``other`` raises
    ``ZeroDivisionError`` (which is a ``RuntimeError`` too). The gradient is zero.
    """


floor_divide.vjp(
    self=lambda grad: lazy.zeros_like(grad),
    other=lambda grad: lazy.zeros_like(grad),
)


@composite(namespace=(), method=False, **_STEPPED)
def trunc_divide(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise quotient rounded towards zero: ``div(self, other, rounding_mode="trunc")``."""
    dtype = promote.compute(self, other)
    if dtype.is_floating_point:
        # In half precision the quotient would be rounded up to the next integer first.
        wide = float32 if dtype.itemsize == 2 else dtype
        given = common(promote, self, other)
        a, b = (lazy.to_dtype(x, wide) if isinstance(x, Value) else x for x in given)
        out = lazy.trunc(div(a, b))
        return out if wide is dtype else lazy.to_dtype(out, dtype)
    quotient = floor_divide(self, other)
    left = sub(self, mul(quotient, other))
    short = lazy.logical_and(lazy.ne(left, 0), lazy.lt(quotient, 0))
    return add(quotient, short)


trunc_divide.vjp(
    self=lambda grad: lazy.zeros_like(grad),
    other=lambda grad: lazy.zeros_like(grad),
)


@primitive(reference=np.remainder, **_STEPPED)
def remainder(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self - other * floor(self / other)``: the sign is that of ``other``.

    Python's ``%``. Shapes broadcast, dtypes promote. An integer zero in ``other`` raises
    ``ZeroDivisionError``; a floating one gives NaN.
    """


remainder.edge("1 at multiples", [4.0, 5.0], 2.0, gradient=[1.0, 1.0])


remainder.vjp(
    self=lambda grad: grad,
    other=lambda grad, self, other: neg(mul(grad, floor_divide(self, other))),
)


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.fmod,
    samples=positive_pairs,
    takes=REAL_NUMBER,
    values=(0.3, 2.0),
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def fmod(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise remainder with the sign of ``self`` (C's ``fmod``)."""
    if not promote.compute(self, other).is_floating_point:
        return _integer_fmod(*common(promote, self, other))
    self, other = common(promote, self, other)
    size = remainder(_size(self), _size(other))
    if not isinstance(self, Value):
        return neg(size) if math.copysign(1.0, self) < 0 else size
    result = lazy.where(lazy.lt(self, 0), neg(size), size)
    nothing = lazy.logical_and(lazy.eq(self, 0), lazy.eq(size, 0))
    return lazy.where(nothing, self, result)  # -0.0 keeps its sign


fmod.edge("1 at multiples", [4.0, 5.0], 2.0, gradient=[1.0, 1.0])


def _integer_fmod(self: Any, other: Any) -> Any:
    """:func:`fmod` of integers, without the absolute value that the smallest one lacks."""
    left = remainder(self, other)  # has the sign of other
    opposite = lazy.ne(lazy.lt(left, 0), lazy.lt(self, 0) if isinstance(self, Value) else self < 0)
    return lazy.where(lazy.logical_and(lazy.ne(left, 0), opposite), sub(left, other), left)


fmod.vjp(
    self=lambda grad: grad,
    other=lambda grad, self, other: neg(mul(grad, trunc_divide(self, other))),
)


def _size(x: Any) -> Any:
    """``abs`` of a tensor or of a number; unsigned tensors as they are."""
    if not isinstance(x, Value):
        return abs(x)
    return lazy.abs(x) if dtype_of(x).is_signed else x


@composite(
    out=same_shape,
    dtype=promote_float,
    reference=np.reciprocal,
    samples=unary,
    dtypes="float+complex",
    values=(0.25, 2.0),
    tolerance=ulp(1),
    inplace=True,
    cast="float32_accelerated",
)
def reciprocal(self: Tensor) -> Tensor:
    """Elementwise ``1 / self``; integers give the default floating dtype."""
    return div(1, self)


@reciprocal.vjp
def _(grad, out):
    return neg(mul(grad, adjoint(mul(out, out))))


reciprocal.edge("infinite at 0", [0.0, 2.0], gradient=[-float("inf"), -0.25])


# ---- greatest common divisor ------------------------------------------------------------------


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.gcd,
    samples=int_pairs,
    takes="int",
    differentiable=False,
    tolerance=exact,
    inplace=True,
)
def gcd(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise greatest common divisor of integers, never negative; ``gcd(0, 0)`` is 0."""
    require_int("gcd", self, other)
    a, b = add(self, mul(other, 0)), add(other, mul(self, 0))
    while lazy.any(lazy.ne(b, 0)).item():  # Euclid, all elements at once
        done = lazy.eq(b, 0)
        a, b = (
            lazy.where(done, a, b),
            lazy.where(done, 0, remainder(a, lazy.where(done, 1, b))),
        )
    return _size(a)  # at the end: the smallest integer has no absolute value


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.lcm,
    samples=int_pairs,
    takes="int",
    differentiable=False,
    tolerance=exact,
    inplace=True,
)
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise least common multiple of integers, never negative; 0 where either is 0."""
    a, b = common(promote, self, other)  # -4 has another size once it is 252
    divisor = gcd(a, b)
    step = floor_divide(a, lazy.where(lazy.eq(divisor, 0), 1, divisor))
    return mul(_size(step), _size(b))
