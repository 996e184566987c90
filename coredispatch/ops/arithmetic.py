"""Arithmetic: sums, products, quotients, remainders, and what is made of them.

Gradients of complex arguments follow PyTorch: the gradient of a real loss is its conjugate
Wirtinger derivative, so every factor enters a ``vjp`` through :func:`adjoint`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops import late
from coredispatch.ops.adjoint import adjoint
from coredispatch.ops.annotations import Scalar, Tensor
from coredispatch.ops.rules import (
    NUMBER,
    REAL_NUMBER,
    broadcast,
    exact,
    promote,
    promote_float,
    require_int,
    require_one_of,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.samples import int_pairs, pairs, positive_pairs, triples, unary
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.errors import DTypeError
from coredispatch.registry.value import dtype_of


def _scaled(x: Any, factor: Any) -> Any:
    return mul(x, factor) if isinstance(x, Value) else x * factor


# ---- sums and products ------------------------------------------------------------------------


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.add,
    cast="widest",
    samples=pairs,
    tolerance=ulp(1),
    inplace=True,
)
def add(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self + other``.

    Shapes broadcast, dtypes promote. For bool inputs it is the logical or. With the keyword
    ``alpha`` the result is ``self + alpha * other``.
    """


@add.vjp
def _(grad):
    return grad, grad


@add.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return add(self, _scaled(other, alpha))


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.subtract,
    cast="widest",
    samples=pairs,
    dtypes=NUMBER,
    tolerance=ulp(1),
    inplace=True,
    alias=("subtract",),
)
def sub(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self - other``.

    Shapes broadcast, dtypes promote; bool tensors are refused (use ``logical_xor``). With the
    keyword ``alpha`` the result is ``self - alpha * other``.
    """


@sub.vjp
def _(grad):
    return grad, lambda: neg(grad)


@sub.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return sub(self, _scaled(other, alpha))


@composite(out=broadcast, dtype=promote, samples=pairs, dtypes=NUMBER)
def rsub(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``other - self``; with ``alpha``, ``other - alpha * self``."""
    return sub(other, self)


@rsub.overload
def _(self: Tensor, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return sub(other, mul(self, alpha))


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.multiply,
    cast="widest",
    samples=pairs,
    tolerance=ulp(1),
    inplace=True,
    alias=("multiply",),
)
def mul(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self * other``. Shapes broadcast, dtypes promote; logical and for bool."""


@mul.vjp
def _(grad, self, other):
    return lambda: mul(grad, adjoint(other)), lambda: mul(grad, adjoint(self))


@primitive(
    out=same_shape,
    dtype=same,
    reference=np.negative,
    samples=unary,
    dtypes=NUMBER,
    tolerance=exact,
    inplace=True,
    alias=("negative",),
)
def neg(self: Tensor) -> Tensor:
    """Elementwise ``-self``. Unsigned integers wrap; bool tensors are refused."""


@neg.vjp
def _(grad):
    return neg(grad)


@composite(
    out=same_shape,
    dtype=same,
    reference=np.positive,
    samples=unary,
    dtypes=NUMBER,
    tolerance=exact,
    view="maybe",
)
def positive(self: Tensor) -> Tensor:
    """``+self``: the tensor itself."""
    if dtype_of(self).kind == "b":
        raise DTypeError("unary + is not defined for bool tensors", fix="use x.to(cd.int64)")
    return self


@composite(
    out=same_shape,
    dtype=same,
    reference=np.square,
    samples=unary,
    tolerance=ulp(1),
    inplace=True,
)
def square(self: Tensor) -> Tensor:
    """Elementwise ``self * self``."""
    return mul(self, self)


@square.vjp
def _(grad, self):
    return mul(grad, mul(adjoint(self), 2))


@composite(out=broadcast, dtype=promote, samples=triples, dtypes=NUMBER, inplace=True)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``self + value * tensor1 * tensor2``; shapes broadcast, dtypes promote."""
    product = mul(tensor1, tensor2)
    return add(self, product if value == 1 else mul(product, value))


@addcmul.vjp
def _(grad, tensor1, tensor2, value):
    scaled = grad if value == 1 else mul(grad, adjoint(value))
    return (
        grad,
        lambda: mul(scaled, adjoint(tensor2)),
        lambda: mul(scaled, adjoint(tensor1)),
    )


@composite(
    out=broadcast,
    dtype=promote_float,
    samples=triples,
    dtypes="float+complex",
    values=(0.5, 2.0),
    inplace=True,
)
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``self + value * tensor1 / tensor2``; shapes broadcast, integers become floating."""
    quotient = div(tensor1, tensor2)
    return add(self, quotient if value == 1 else mul(quotient, value))


@composite(
    out=broadcast, dtype=promote_float, samples=triples, dtypes="float+complex", inplace=True
)
def lerp(self: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """Linear interpolation ``self + weight * (end - self)``.

    Evaluated from the nearer end, as in PyTorch, so that ``weight`` 1 gives ``end`` exactly.
    """
    distance = sub(end, self)
    if not isinstance(weight, Value):
        if abs(weight) < 0.5:
            return add(self, mul(distance, weight))
        return sub(end, mul(distance, 1 - weight))
    near = late.lt(late.abs(weight), 0.5)
    from_end = sub(end, mul(distance, sub(1, weight)))
    return late.where(near, add(self, mul(distance, weight)), from_end)


@lerp.vjp
def _(grad, self, end, weight):
    return (
        lambda: mul(grad, adjoint(sub(1, weight) if isinstance(weight, Value) else 1 - weight)),
        lambda: mul(grad, adjoint(weight)),
        lambda: mul(grad, adjoint(sub(end, self))),
    )


# ---- quotients --------------------------------------------------------------------------------


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


@div.vjp
def _(grad, out, self, other):
    # -out/other costs one division less than -self/other**2 and keeps its range.
    return (
        lambda: div(grad, adjoint(other)),
        lambda: neg(mul(grad, adjoint(div(out, other)))),
    )


@div.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    require_one_of("rounding_mode", rounding_mode, (None, "floor", "trunc"))
    if rounding_mode is None:
        return div(self, other)
    return floor_divide(self, other) if rounding_mode == "floor" else trunc_divide(self, other)


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.floor_divide,
    samples=positive_pairs,
    dtypes=REAL_NUMBER,
    values=(0.3, 2.0),
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def floor_divide(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise quotient rounded towards minus infinity (Python's ``//``).

    Shapes broadcast, dtypes promote, integers stay integers; an integer zero in ``other`` raises
    ``ZeroDivisionError`` (which is a ``RuntimeError`` too). The gradient is zero.
    """


@floor_divide.vjp
def _(grad):
    return lambda: late.zeros_like(grad), lambda: late.zeros_like(grad)


@composite(
    out=broadcast,
    dtype=promote,
    samples=positive_pairs,
    dtypes=REAL_NUMBER,
    values=(0.3, 2.0),
    tolerance=exact,
    smooth=False,
    inplace=True,
    namespace=(),
    method=False,
)
def trunc_divide(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise quotient rounded towards zero: ``div(self, other, rounding_mode="trunc")``."""
    if promote.compute(self, other).is_floating_point:
        return late.trunc(div(self, other))
    quotient = floor_divide(self, other)
    left = sub(self, mul(quotient, other))
    short = late.logical_and(late.ne(left, 0), late.lt(quotient, 0))
    return add(quotient, short)


@trunc_divide.vjp
def _(grad):
    return lambda: late.zeros_like(grad), lambda: late.zeros_like(grad)


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.remainder,
    samples=positive_pairs,
    dtypes=REAL_NUMBER,
    values=(0.3, 2.0),
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def remainder(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self - other * floor(self / other)``: the sign is that of ``other``.

    Python's ``%``. Shapes broadcast, dtypes promote. An integer zero in ``other`` raises
    ``ZeroDivisionError``; a floating one gives NaN.
    """


@remainder.vjp
def _(grad, self, other):
    return grad, lambda: neg(mul(grad, floor_divide(self, other)))


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.fmod,
    samples=positive_pairs,
    dtypes=REAL_NUMBER,
    values=(0.3, 2.0),
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def fmod(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise remainder with the sign of ``self`` (C's ``fmod``)."""
    size = remainder(_size(self), _size(other))
    negative = late.lt(self, 0) if isinstance(self, Value) else self < 0
    if not isinstance(negative, Value):
        return neg(size) if negative else size
    return late.where(negative, neg(size), size)


@fmod.vjp
def _(grad, self, other):
    return grad, lambda: neg(mul(grad, trunc_divide(self, other)))


def _size(x: Any) -> Any:
    """``abs`` of a tensor or of a number; unsigned tensors as they are."""
    if not isinstance(x, Value):
        return abs(x)
    return late.abs(x) if dtype_of(x).is_signed else x


@composite(
    out=same_shape,
    dtype=promote_float,
    reference=np.reciprocal,
    samples=unary,
    dtypes="float+complex",
    values=(0.25, 2.0),
    tolerance=ulp(1),
    inplace=True,
)
def reciprocal(self: Tensor) -> Tensor:
    """Elementwise ``1 / self``; integers give the default floating dtype."""
    return div(1, self)


@reciprocal.vjp
def _(grad, out):
    return neg(mul(grad, adjoint(mul(out, out))))


# ---- greatest common divisor ------------------------------------------------------------------


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.gcd,
    samples=int_pairs,
    dtypes="int",
    differentiable=False,
    tolerance=exact,
    inplace=True,
)
def gcd(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise greatest common divisor of integers, never negative; ``gcd(0, 0)`` is 0."""
    require_int("gcd", self, other)
    a, b = add(_size(self), mul(other, 0)), add(_size(other), mul(self, 0))
    while late.any(late.ne(b, 0)).item():  # Euclid, all elements at once
        done = late.eq(b, 0)
        a, b = (
            late.where(done, a, b),
            late.where(done, 0, remainder(a, late.where(done, 1, b))),
        )
    return a


@composite(
    out=broadcast,
    dtype=promote,
    reference=np.lcm,
    samples=int_pairs,
    dtypes="int",
    differentiable=False,
    tolerance=exact,
    inplace=True,
)
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise least common multiple of integers, never negative; 0 where either is 0."""
    divisor = gcd(self, other)
    step = floor_divide(self, late.where(late.eq(divisor, 0), 1, divisor))
    return _size(mul(step, other))
