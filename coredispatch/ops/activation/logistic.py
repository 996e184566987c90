"""The logistic function and its inverse, and products with a logarithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, magnitude
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.elementwise.exponential import exp, float_metadata, log, log1p
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common, filled, floating, in_float32
from coredispatch.ops.support.rules import (
    broadcast,
    conditioned,
    promote,
    promote_float,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import pairs, tensor_pairs, unary
from coredispatch.registry import Value, composite

_INF = float("inf")


def sigmoid_reference(self: Any) -> Any:
    """Reference of :func:`sigmoid`."""
    x = np.asarray(self)
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@composite(
    **float_metadata(sigmoid_reference, 4, cast=None),
    namespace=("", "nn.functional"),
)
def sigmoid(self: Tensor) -> Tensor:
    """Elementwise logistic function ``1 / (1 + exp(-self))``; integers become floating."""
    x = floating(self)
    if x.dtype.kind == "c":
        return div(1, add(exp(neg(x)), 1))
    # exp(-x) overflows where the result is a small number yet; where exp(x) would, it is 1.
    e = exp(lazy.clamp(x, max={"float16": 11.0, "float64": 700.0}.get(x.dtype.name, 80.0)))
    return div(e, add(e, 1))


@sigmoid.vjp
def _(grad, out):
    return sigmoid_backward(grad, out)


@composite(
    out=broadcast, dtype=promote, samples=tensor_pairs, dtypes="float", namespace=(), method=False
)
def sigmoid_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Gradient of :func:`sigmoid` from its output: ``grad * output * (1 - output)``."""
    grad, out = common(promote, grad, output)
    return mul(grad, adjoint(mul(out, sub(1, out))))


@composite(
    out=same_shape, dtype=promote_float, samples=unary, namespace="special", tolerance=ulp(4)
)
def expit(self: Tensor) -> Tensor:
    """:func:`sigmoid` under its name in statistics."""
    return sigmoid(self)


def _logit_reference(self: Any, eps: float | None = None) -> Any:
    p = self if eps is None else np.clip(self, eps, 1 - eps)
    return np.log(p / (1 - p))


@composite(
    takes="real",
    out=same_shape,
    dtype=promote_float,
    reference=_logit_reference,
    samples=unary,
    dtypes="float",
    values=(0.1, 0.9),
    tolerance=conditioned,
    cast="float32_accelerated",
    namespace=("", "special"),
    inplace=True,
)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """Elementwise ``log(self / (1 - self))``, after clamping to ``[eps, 1 - eps]`` if given."""
    x = floating(self)
    x = x if eps is None else magnitude.clamp(x, eps, 1 - eps)
    return in_float32(lambda p: log(div(p, sub(1, p))), x)


@logit.vjp
def _(grad, self, eps):
    slope = div(grad, mul(self, sub(1, self)))
    low, high = (0, 1) if eps is None else (eps, 1 - eps)
    inside = comparison.logical_and(comparison.ge(self, low), comparison.le(self, high))
    # Outside there is no logarithm, or a constant where it is clamped.
    return comparison.where(inside, slope, math.nan if eps is None else 0)


def _zero_wins(x: Any, y: Any, logarithm: Any) -> Any:
    y = np.asarray(y, np.float64)
    return np.where((x == 0) & ~np.isnan(y), 0, x * logarithm(y))


@composite(
    takes="real",
    out=broadcast,
    dtype=promote_float,
    samples=pairs,
    reference=lambda self, other: _zero_wins(self, other, np.log),
    dtypes="float",
    values=(0.1, 3.0),
    tolerance=ulp(4),
    namespace=("", "special"),
    inplace=True,
)
def xlogy(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """``self * log(other)``, 0 where ``self`` is 0 unless ``other`` is NaN."""
    return _times_log(self, other, log, math.log)


xlogy.edge(
    "0 for a factor of 0 but NaN in the logarithm of 0",
    [0.0, 0.0, 2.0],
    [0.0, 1.0, 3.0],
    gradient=([0.0, 0.0, 1.0986122886681098], [float("nan"), 0.0, 0.6666666666666666]),
)


xlogy.vjp(
    self=lambda grad, self, other: mul(grad, _log_factor(self, other)),
    other=lambda grad, self, other: mul(grad, div(self, other)),
)


def _log_factor(x: Any, y: Any) -> Any:
    """``log(y)``, and 0 where ``x`` is 0 and the logarithm infinite or not a number."""
    if not isinstance(y, Value):
        factor = log(filled(x, (), y))
        return factor if y > 0 else comparison.where(comparison.eq(x, 0), 0, factor)
    dead = comparison.logical_and(comparison.eq(x, 0), comparison.le(y, 0))
    return comparison.where(dead, 0, log(y))


@composite(
    takes="real",
    out=broadcast,
    dtype=promote_float,
    samples=pairs,
    reference=lambda self, other: _zero_wins(self, other, np.log1p),
    dtypes="float",
    values=(0.1, 3.0),
    tolerance=ulp(4),
    namespace="special",
    method=False,
)
def xlog1py(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """``self * log1p(other)``, 0 where ``self`` is 0 unless ``other`` is NaN."""
    return _times_log(self, other, log1p, math.log1p)


xlog1py.vjp(
    self=lambda grad, self, other: mul(grad, _log1p_factor(self, other)),
    other=lambda grad, self, other: mul(grad, div(self, add(other, 1))),
)


def _log1p_factor(x: Any, y: Any) -> Any:
    """``log1p(y)``, and 0 where ``x`` is 0 and the logarithm infinite or not a number."""
    if not isinstance(y, Value):
        factor = log1p(filled(x, (), y))
        return factor if y > -1 else comparison.where(comparison.eq(x, 0), 0, factor)
    dead = comparison.logical_and(comparison.eq(x, 0), comparison.le(y, -1))
    return comparison.where(dead, 0, log1p(y))


def _times_log(x: Any, y: Any, op: Any, number: Any) -> Any:
    x, y = common(promote_float, x, y)
    if not isinstance(y, Value):
        product = mul(x, _real_log(number, y))
        return product if y != y else comparison.where(comparison.eq(x, 0), 0, product)
    if not isinstance(x, Value):
        if x != 0:
            return mul(op(y), x)
        return comparison.where(comparison.isnan(y), y, 0)
    dead = comparison.logical_and(comparison.eq(x, 0), comparison.logical_not(comparison.isnan(y)))
    return comparison.where(dead, 0, mul(op(y), x))


def _real_log(number: Any, y: Any) -> float:
    """A logarithm of the math module, which raises where the result is NaN or -infinity."""
    try:
        return number(y)
    except ValueError:
        pole = 0 if number is math.log else -1
        return -_INF if y == pole else math.nan
