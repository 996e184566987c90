"""Sums and products, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.number_first import accept_alpha_first, accept_value_first
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import (
    NUMBER,
    broadcast,
    exact,
    promote,
    promote_float,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import pairs, triples, unary
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.model.dtypes import (
    DType,
    Promotion,
    bool_,
    float32,
    float64,
    int64,
    result_type,
    scalar_dtype,
)
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.scalars import stored
from coredispatch.registry.model.sizes import at_least
from coredispatch.registry.model.value import dtype_of

_FLOATS = (float32, float64)
_FITTING = 1e38  # every floating dtype of 32 bits or more holds what is smaller


def _times_alpha(alpha: Any, x: Any, beside: Any) -> Any:
    """``alpha * x``, computed in the dtype that ``beside + alpha * x`` has.

    Raises :class:`DTypeError` for an ``alpha`` of a higher kind than the tensors.
    """
    if type(alpha) in (float, int) and isinstance(x, Value) and isinstance(beside, Value):
        dtype = dtype_of(x)
        if dtype is dtype_of(beside) and dtype in _FLOATS and abs(alpha) < _FITTING:
            return mul(x, alpha)
    dtype = result_type(beside, x)
    if isinstance(alpha, Value):
        return mul(x, alpha)
    kind = scalar_dtype(alpha)
    if kind.category > max(dtype.category, 1) or (kind is bool_ and dtype is not bool_):
        raise DTypeError(
            f"alpha={alpha} is {kind.name}, and the tensors compute in {dtype.name}",
            fix="use an integer alpha for integers, a real one for real numbers",
        )
    alpha = bool(alpha) if dtype is bool_ else stored(alpha, dtype, "alpha")
    if not isinstance(x, Value):
        return x * alpha
    return mul(x if dtype_of(x).category == 2 else lazy.to_dtype(x, dtype), alpha)


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


add.vjp(self=lambda grad: grad, other=lambda grad: grad)


@add.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return add(self, _times_alpha(alpha, other, self))


add.overloads[-1].rewrite = lambda self, other, alpha: (self, _times_alpha(alpha, other, self))


accept_alpha_first(add)


@primitive(
    out=broadcast,
    dtype=promote,
    reference=np.subtract,
    cast="widest",
    samples=pairs,
    takes=NUMBER,
    tolerance=ulp(1),
    inplace=True,
    alias=("subtract",),
)
def sub(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self - other``.

    Shapes broadcast, dtypes promote; bool tensors are refused (use ``logical_xor``). With the
    keyword ``alpha`` the result is ``self - alpha * other``.
    """


sub.vjp(self=lambda grad: grad, other=lambda grad: -grad)


@sub.overload
def _(self: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return sub(self, _times_alpha(alpha, other, self))


sub.overloads[-1].rewrite = lambda self, other, alpha: (self, _times_alpha(alpha, other, self))


accept_alpha_first(sub)


@composite(out=broadcast, dtype=promote, samples=pairs, takes=NUMBER)
def rsub(self: Tensor, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``other - self``; with ``alpha``, ``other - alpha * self``."""
    return sub(other, self)


@rsub.overload
def _(self: Tensor, other: Tensor | Scalar, *, alpha: Scalar) -> Tensor:
    return sub(other, _times_alpha(alpha, self, other))


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


mul.vjp(
    self=lambda grad, other: mul(grad, adjoint(other)),
    other=lambda grad, self: mul(grad, adjoint(self)),
)


@primitive(
    out=same_shape,
    dtype=same,
    reference=np.negative,
    samples=unary,
    takes=NUMBER,
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
    takes=NUMBER,
    tolerance=exact,
    view="maybe",
)
def positive(self: Tensor) -> Tensor:
    """``+self``: the tensor itself."""
    return self


def _squared(self: Any) -> Any:
    dtype = dtype_of(self) if isinstance(self, Value) else DType.of(self.dtype)
    return int64 if dtype is bool_ else dtype


@composite(
    out=same_shape,
    dtype=_squared,
    reference=lambda self: np.multiply(self, self, dtype=np.int64 if self.dtype == bool else None),
    samples=unary,
    tolerance=ulp(1),
    inplace=True,
)
def square(self: Tensor) -> Tensor:
    """Elementwise ``self * self``; int64 of bool, as ``self ** 2`` is."""
    x = lazy.to_dtype(self, int64) if dtype_of(self) is bool_ else self
    return mul(x, x)


@square.vjp
def _(grad, self):
    return mul(grad, mul(adjoint(self), 2))


@composite(
    out=broadcast,
    dtype=promote,
    samples=triples,
    dtypes=NUMBER,
    inplace=True,
    fits=("value",),
    cast="widest_accelerated",
)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``self + value * tensor1 * tensor2``; shapes broadcast, dtypes promote."""
    self, tensor1, tensor2 = common(promote, self, tensor1, tensor2)
    product = mul(wide(tensor1), wide(tensor2))
    return narrow(add(wide(self), product if value == 1 else mul(product, value)), self)


accept_value_first(addcmul)


def _times(grad: Any, factor: Any, value: Any) -> Any:
    return mul(grad if value == 1 else mul(grad, adjoint(value)), adjoint(factor))


addcmul.vjp(
    self=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: _times(grad, tensor2, value),
    tensor2=lambda grad, tensor1, value: _times(grad, tensor1, value),
)


@composite(
    out=broadcast,
    dtype=promote_float,
    samples=triples,
    takes="float+complex",
    values=(0.5, 2.0),
    inplace=True,
    fits=("value",),
    cast="widest_accelerated",
)
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``self + value * tensor1 / tensor2``; shapes broadcast, integers become floating."""
    self, tensor1, tensor2 = common(promote_float, self, tensor1, tensor2)
    quotient = lazy.div(wide(tensor1), wide(tensor2))
    return narrow(add(wide(self), quotient if value == 1 else mul(quotient, value)), self)


accept_value_first(addcdiv)


@composite(
    out=broadcast,
    dtype=Promotion("promote_float", to_float=True, scales=("weight",)),
    samples=triples,
    takes="float+complex",
    inplace=True,
)
def lerp(self: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """Linear interpolation ``self + weight * (end - self)``.

    Evaluated from the nearer end, as in PyTorch, so that ``weight`` 1 gives ``end`` exactly.
    """
    start, end, weight = common(promote_float, self, end, weight)
    return narrow(
        _between(*(wide(x) if isinstance(x, Value) else x for x in (start, end, weight))), start
    )


def _between(start: Any, end: Any, weight: Any) -> Any:
    """``lerp`` in the dtype of its arguments."""
    distance = sub(end, start)
    if not isinstance(weight, Value):
        if not at_least(abs(weight), 0.5):
            return add(start, mul(distance, weight))
        return sub(end, mul(distance, 1 - weight))
    near = lazy.lt(lazy.abs(weight), 0.5)
    from_end = sub(end, mul(distance, sub(1, weight)))
    return lazy.where(near, add(start, mul(distance, weight)), from_end)


lerp.vjp(
    self=lambda grad, weight: mul(
        grad, adjoint(sub(1, weight) if isinstance(weight, Value) else 1 - weight)
    ),
    end=lambda grad, weight: mul(grad, adjoint(weight)),
    weight=lambda grad, self, end: mul(grad, adjoint(sub(end, self))),
)
