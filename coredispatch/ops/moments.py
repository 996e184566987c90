"""Moments, norms and log-sums: composites of the plain reductions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops import comparison, exponential, late, magnitude
from coredispatch.ops.annotations import DType, IntList, Scalar, Tensor
from coredispatch.ops.arithmetic import add, div, mul, sub
from coredispatch.ops.casting import floating, in_float32
from coredispatch.ops.reduction import (
    amax,
    amin,
    mean,
    reduced_count,
    spread,
    sum,
)
from coredispatch.ops.rules import conditioned, dot, normalize_dim, reduced, require_one_of
from coredispatch.ops.samples import Sample, nonempty_reductions
from coredispatch.registry import DType as DTypeClass
from coredispatch.registry import composite
from coredispatch.registry.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.value import dtype_of

# ---- variance ---------------------------------------------------------------------------------


def _moment_shape(
    self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[int, ...]:
    return reduced(self, dim, keepdim)


def _moment_shapes(
    self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Any:
    shape = reduced(self, dim, keepdim)
    return [shape, shape]


def _moment_dtype(self: Any, *_: Any) -> Any:
    own = DTypeClass.of(self.dtype)
    if own.category < 2:
        raise DTypeError(
            f"the variance of {own} elements needs a floating dtype", fix="convert with x.float()"
        )
    return own.to_real()


def _moment_pair_dtypes(self: Any, *_: Any) -> Any:
    return _moment_dtype(self), DTypeClass.of(self.dtype)


def _moment_samples(make: Any) -> Iterator[Sample]:
    for shape in ((2,), (17,), (257,), (4, 4), (2, 3, 5)):
        yield Sample(make(shape))
        yield Sample(make(shape), correction=0)
    yield Sample(make((3, 5)), 1, keepdim=True)
    yield Sample(make((3, 5)), 0)
    yield Sample(make((2, 3, 4)), (0, 2), correction=0)


def _var_reference(
    self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Any:
    return np.var(self, axis=dim, ddof=1 if correction is None else correction, keepdims=keepdim)


_MOMENT = {
    "out": _moment_shape,
    "dtype": _moment_dtype,
    "samples": _moment_samples,
    "dtypes": "float+complex",
    "tolerance": conditioned,
}


def degrees_of_freedom(shape: Any, dim: Any, correction: Any) -> float:
    """The divisor of a variance: elements less the correction, never below 0."""
    n = reduced_count(shape, dim) - (1 if correction is None else correction)
    return n if n > 0 else 0


def _divisor(shape: Any, dim: Any, correction: Any) -> float:
    n = degrees_of_freedom(shape, dim, correction)
    return n if n else math.nan


@composite(reference=_var_reference, **_MOMENT)
def var(
    self: Tensor,
    dim: IntList | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Variance over ``dim``: squared deviations from the mean over (n - ``correction``).

    ``correction`` is 1 by default (Bessel's); the older ``unbiased=False`` means 0. Complex
    inputs give a real result. NaN where n does not exceed the correction (infinite when
    something varies). Raises ``DTypeError`` for integers.
    """
    _moment_dtype(self)
    deviation = sub(self, mean(self, dim, True))
    if dtype_of(deviation).is_complex:
        deviation = magnitude.abs(deviation)
    total = sum(mul(deviation, deviation), dim, keepdim)
    return div(total, degrees_of_freedom(self.shape, dim, correction))


@var.vjp
def _(grad, self, dim, correction, keepdim):
    return _var_grad(grad, self, dim, correction, keepdim)


def _var_grad(grad: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    scale = mul(grad, 2.0 / _divisor(x.shape, dim, correction))
    return mul(spread(scale, x.shape, dim, keepdim), sub(x, mean(x, dim, True)))


@var.overload
def _(self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False) -> Tensor:
    return var(self, dim, correction=int(unbiased), keepdim=keepdim)


@var.overload
def _(self: Tensor, *, unbiased: bool) -> Tensor:
    return var(self, correction=int(unbiased))


def _std_reference(self: Any, dim: Any = None, correction: Any = None, keepdim: Any = False) -> Any:
    return np.sqrt(_var_reference(self, dim, correction, keepdim))


@composite(reference=_std_reference, **_MOMENT)
def std(
    self: Tensor,
    dim: IntList | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Standard deviation over ``dim``: the root of :func:`var`. Its gradient is 0 where it is."""
    return exponential.sqrt(var(self, dim, correction=correction, keepdim=keepdim))


@std.vjp
def _(grad, out, self, dim, correction, keepdim):
    zero = comparison.eq(out, 0)
    safe = comparison.where(zero, 1, mul(out, 2))
    slope = comparison.where(zero, 0, div(grad, safe))
    return _var_grad(slope, self, dim, correction, keepdim)


@std.overload
def _(self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False) -> Tensor:
    return std(self, dim, correction=int(unbiased), keepdim=keepdim)


@std.overload
def _(self: Tensor, *, unbiased: bool) -> Tensor:
    return std(self, correction=int(unbiased))


_MOMENT_PAIR = _MOMENT | {"out": _moment_shapes, "dtype": _moment_pair_dtypes, "method": False}


@composite(
    reference=lambda self, dim=None, correction=None, keepdim=False: (
        _var_reference(self, dim, correction, keepdim),
        np.mean(self, axis=dim, keepdims=keepdim),
    ),
    **_MOMENT_PAIR,
)
def var_mean(
    self: Tensor,
    dim: IntList | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Variance and mean over ``dim``."""
    return var(self, dim, correction=correction, keepdim=keepdim), mean(self, dim, keepdim)


@var_mean.overload
def _(
    self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return var_mean(self, dim, correction=int(unbiased), keepdim=keepdim)


@var_mean.overload
def _(self: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
    return var_mean(self, correction=int(unbiased))


@composite(
    reference=lambda self, dim=None, correction=None, keepdim=False: (
        _std_reference(self, dim, correction, keepdim),
        np.mean(self, axis=dim, keepdims=keepdim),
    ),
    **_MOMENT_PAIR,
)
def std_mean(
    self: Tensor,
    dim: IntList | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over ``dim``."""
    return std(self, dim, correction=correction, keepdim=keepdim), mean(self, dim, keepdim)


@std_mean.overload
def _(
    self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return std_mean(self, dim, correction=int(unbiased), keepdim=keepdim)


@std_mean.overload
def _(self: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
    return std_mean(self, correction=int(unbiased))


def _matrix_of_variables(self: Any) -> Any:
    if self.ndim > 2:
        raise ShapeError(
            f"needs at most 2 dimensions, got {self.ndim}", fix="pass (variables, observations)"
        )
    return self if self.ndim == 2 else late.reshape(self, (1, -1))


@composite(
    reference=lambda self, correction=1: np.cov(self, ddof=correction),
    samples=lambda make: (Sample(make((3, 17))), Sample(make((2, 5)), correction=0)),
    dtypes="float",
    tolerance=conditioned,
)
def cov(
    self: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Covariance matrix of variables in rows and observations in columns.

    ``fweights`` (repeat counts) and ``aweights`` (importances) have one element per column. The
    result is (n, n), 0-dim for a single variable.
    """
    x = _matrix_of_variables(self)
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else mul(weights, aweights)
    if weights is None:
        total = float(x.shape[1])
        center = sub(x, mean(x, 1, True))
        weighted = center
        freedom: Any = max(total - correction, 0.0)
    else:
        total = sum(weights)
        center = sub(x, div(sum(mul(x, weights), 1, True), total))
        weighted = mul(center, weights)
        if aweights is None or correction == 0:
            freedom = sub(total, correction)
        else:
            freedom = sub(total, mul(div(sum(mul(weights, aweights)), total), correction))
        freedom = magnitude.clamp(freedom, 0, None)
    product = div(late.matmul(weighted, late.conj(late.transpose(center, 0, 1))), freedom)
    return product if self.ndim == 2 and x.shape[0] != 1 else late.reshape(product, ())


@composite(
    reference=np.corrcoef,
    samples=lambda make: (Sample(make((3, 17))), Sample(make((2, 5)))),
    dtypes="float",
    tolerance=conditioned,
)
def corrcoef(self: Tensor) -> Tensor:
    """Pearson correlations of variables in rows, clamped to [-1, 1]."""
    c = cov(self)
    if not c.ndim:
        return div(c, c)
    deviation = exponential.sqrt(late.diagonal(c))
    scaled = div(div(c, late.unsqueeze(deviation, 1)), late.unsqueeze(deviation, 0))
    return magnitude.clamp(scaled, -1, 1)


# ---- log-sums ---------------------------------------------------------------------------------


def _logsumexp_reference(self: Any, dim: Any, keepdim: bool = False) -> Any:
    dim = dim if np.ndim(self) else None
    high = np.max(self, axis=dim, keepdims=True)
    high = np.where(np.isinf(high), 0, high)
    total = np.log(np.sum(np.exp(self - high), axis=dim, keepdims=True)) + high
    return total if keepdim or dim is None else np.squeeze(total, axis=dim)


def _logsumexp_samples(make: Any) -> Iterator[Sample]:
    for sample in nonempty_reductions(make):
        if len(sample.args) > 1:
            yield sample


@composite(
    out=reduced,
    reference=_logsumexp_reference,
    samples=_logsumexp_samples,
    dtypes="float",
    tolerance=conditioned,
    cast="float32",
    namespace=("", "special"),
)
def logsumexp(self: Tensor, dim: IntList, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(self)))`` over ``dim`` without overflow; minus infinity for no elements."""
    x = floating(self)
    if reduced_count(x.shape, dim) == 0:
        return exponential.log(sum(exponential.exp(x), dim, keepdim))
    high = amax(x, dim, True)
    # An infinite maximum would make inf - inf.
    high = comparison.where(comparison.isinf(high), 0, high)
    total = exponential.log(sum(exponential.exp(sub(x, high)), dim, keepdim))
    return add(total, high if keepdim else late.reshape(high, total.shape))


@logsumexp.vjp
def _(grad, out, self, dim, keepdim):
    total = spread(out, self.shape, dim, keepdim)
    # All elements at minus infinity: every share is 0, not exp(nan).
    share = exponential.exp(sub(self, comparison.where(comparison.isinf(total), 0, total)))
    return mul(spread(grad, self.shape, dim, keepdim), share)


# ---- norms ------------------------------------------------------------------------------------


def _norm_samples(make: Any) -> Iterator[Sample]:
    for shape in ((1,), (17,), (4, 4), (2, 3, 5)):
        yield Sample(make(shape))
        for p in (0, 1, 2, 3, 0.5, math.inf, -math.inf):
            yield Sample(make(shape), p)
    yield Sample(make((3, 5)), 2, 1, True)
    yield Sample(make((2, 3, 5)), 1, (0, 2))


def _norm_reference(self: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False) -> Any:
    x = np.abs(self)
    axis = dim
    if p == math.inf:
        return np.max(x, axis=axis, keepdims=keepdim)
    if p == -math.inf:
        return np.min(x, axis=axis, keepdims=keepdim)
    if p == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdim).astype(np.float64)
    p = 2 if p in ("fro", None) else p
    return np.sum(x**p, axis=axis, keepdims=keepdim) ** (1 / p)


@composite(
    reference=_norm_reference,
    samples=_norm_samples,
    dtypes="float+complex",
    tolerance=dot,
    smooth=False,
    cast="float32",
)
def norm(
    self: Tensor,
    p: object = "fro",
    dim: IntList | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The ``p``-norm of the elements over ``dim``, taken as one vector.

    Args:
        self: a floating or complex tensor; the result is real.
        p: any number, ``inf``, ``-inf``, or ``"fro"`` (2). ``"nuc"`` is the sum of the singular
            values of matrices over two dims.
        dim, keepdim: the dims reduced, None for all.
        dtype: the dtype computed in.

    Where a 2-norm is 0 its gradient is 0.
    """
    if p == "nuc":
        dims = (0, 1) if dim is None else dim
        return late.linalg_matrix_norm(self, "nuc", dims, keepdim)
    if p is None or p == "fro":
        p = 2
    elif isinstance(p, str):
        require_one_of("p", p, ("fro", "nuc"))
    x = self if dtype is None else late.to_dtype(self, dtype)
    if dtype_of(x).category < 2:
        raise DTypeError(
            f"the norm of {dtype_of(x)} elements needs a floating dtype",
            fix="convert with x.float(), or pass dtype=",
        )
    return in_float32(power_norm, x, float(p), dim, keepdim)


@composite(out=lambda self, p, dim, keepdim: reduced(self, dim, keepdim), smooth=False,
           dtypes="float+complex", namespace=(), method=False)  # fmt: skip
def power_norm(self: Tensor, p: float, dim: IntList | None, keepdim: bool) -> Tensor:
    """``sum(abs(self) ** p) ** (1 / p)`` over ``dim``; its limits for 0 and the infinities."""
    size = magnitude.abs(self)
    dims = () if dim is None else dim
    if p == math.inf:
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if p == 0:
        return sum(comparison.ne(size, 0), dim, keepdim, dtype=dtype_of(size))
    if p == 1:
        return sum(size, dim, keepdim)
    if p == 2:
        return exponential.sqrt(sum(mul(size, size), dim, keepdim))
    return exponential.pow(sum(exponential.pow(size, p), dim, keepdim), 1 / p)


@power_norm.vjp
def _(grad, out, self, p, dim, keepdim):
    shape = self.shape
    if p == 0:
        return late.zeros_like(self)
    grad = spread(grad, shape, dim, keepdim)
    if p == 1:
        return mul(magnitude.sgn(self), grad)
    out = spread(out, shape, dim, keepdim)
    if p == 2:
        zero = comparison.eq(out, 0)
        return mul(self, comparison.where(zero, 0, div(grad, comparison.where(zero, 1, out))))
    size = magnitude.abs(self)
    if math.isinf(p):
        mask = comparison.eq(size, out)
        share = div(grad, spread(sum(mask, dim, True), shape, dim, True))
        return mul(magnitude.sgn(self), comparison.where(mask, share, 0))
    zero = comparison.eq(size, 0)
    safe = comparison.where(zero, 1, size)
    norm_safe = comparison.where(comparison.eq(out, 0), 1, out)
    slope = mul(exponential.pow(safe, p - 1), exponential.pow(norm_safe, 1 - p))
    return mul(magnitude.sgn(self), mul(grad, comparison.where(zero, 0, slope)))


@composite(
    reference=lambda self, other, p=2: _norm_reference(self - other, p),
    samples=lambda make: (Sample(make((5,)), make((5,))), Sample(make((3, 5)), make((5,)), 1)),
    dtypes="float",
    tolerance=dot,
    smooth=False,
)
def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The ``p``-norm of ``self - other``, 0-dim; shapes broadcast."""
    return power_norm(sub(self, other), float(p), None, False)


@composite(
    samples=lambda make: (Sample(make((3, 5)), 2, 0, 1.0), Sample(make((2, 3, 5)), 1, -1, 2.0)),
    dtypes="float",
    tolerance=conditioned,
    smooth=False,
    inplace=True,
)
def renorm(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """``self`` with each slice along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
    if self.ndim < 2:
        raise ShapeError(f"renorm needs at least 2 dimensions, got {self.ndim}")
    if p <= 0 or maxnorm < 0:
        raise ArgumentError(f"renorm needs p > 0 and maxnorm >= 0, got {p} and {maxnorm}")
    dim = normalize_dim(dim, self.ndim)
    others = tuple(d for d in range(self.ndim) if d != dim)
    size = power_norm(self, float(p), others, True)
    factor = comparison.where(comparison.gt(size, maxnorm), div(maxnorm, add(size, 1e-7)), 1)
    return mul(self, factor)
