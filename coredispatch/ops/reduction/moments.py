"""Moments: variance, standard deviation, covariance and correlation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn, warn_of_no_freedom
from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.arithmetic import mul, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.sums import mean, reduced_count, spread, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Scalar, Tensor
from coredispatch.ops.support.casting import in_float32
from coredispatch.ops.support.rules import conditioned, reduced
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import DType as DTypeClass
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import default_dtype, float32
from coredispatch.registry.model.errors import DTypeError, ShapeError
from coredispatch.registry.model.value import dtype_of

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
    dim = None if dim == () else dim
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
    n = _left(shape, dim, correction)
    return n if n > 0 else 0


def _left(shape: Any, dim: Any, correction: Any) -> float:
    n: float = reduced_count(shape, dim) - (1 if correction is None else correction)
    return n


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
    return _variance("var", self, dim, correction, keepdim)


def _variance(name: str, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    """What ``name`` of the moments computes, with its warning."""
    _moment_dtype(self)
    if not _left(self.shape, dim, correction) > 0:
        warn_of_no_freedom(name)
    return in_float32(_var, self, dim, correction, keepdim)


def _centered(x: Any, dim: Any) -> Any:
    """The deviations from the mean.

    The mean of numbers that differ little is rounded by more than they differ: that of the
    deviations is what the first one is off.
    """
    deviation = sub(x, mean(x, dim, True))
    return sub(deviation, mean(deviation, dim, True))


def _var(x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    deviation = _centered(x, dim)
    if dtype_of(deviation).is_complex:
        deviation = magnitude.abs(deviation)
    total = sum(mul(deviation, deviation), dim, keepdim)
    return div(total, degrees_of_freedom(x.shape, dim, correction))


@var.vjp
def _(grad, self, dim, correction, keepdim):
    return _var_grad(grad, self, dim, correction, keepdim)


def _var_grad(grad: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    scale = mul(grad, 2.0 / _divisor(x.shape, dim, correction))
    return mul(spread(scale, x.shape, dim, keepdim), _centered(x, dim))


@var.overload
def _(self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False) -> Tensor:
    return var(self, dim, correction=int(unbiased), keepdim=keepdim)


@var.overload
def _(self: Tensor, unbiased: bool) -> Tensor:
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
    return exponential.sqrt(_variance("std", self, dim, correction, keepdim))


@std.vjp
def _(grad, out, self, dim, correction, keepdim):
    zero = comparison.eq(out, 0)
    safe = comparison.where(zero, 1, mul(out, 2))
    slope = comparison.where(zero, 0, div(grad, safe))
    return _var_grad(slope, self, dim, correction, keepdim)


std.edge("0 for equal numbers", [2.0, 2.0, 2.0], gradient=[0.0, 0.0, 0.0])
std.edge("0 for equal numbers without a correction", [3.0, 3.0], correction=0, gradient=[0.0, 0.0])


@std.overload
def _(self: Tensor, dim: IntList | None, unbiased: bool, keepdim: bool = False) -> Tensor:
    return std(self, dim, correction=int(unbiased), keepdim=keepdim)


@std.overload
def _(self: Tensor, unbiased: bool) -> Tensor:
    return std(self, correction=int(unbiased))


_MOMENT_PAIR = _MOMENT | {"out": _moment_shapes, "dtype": _moment_pair_dtypes, "method": False}


@composite(
    reference=lambda self, dim=None, correction=None, keepdim=False: (
        _var_reference(self, dim, correction, keepdim),
        np.mean(self, axis=None if dim == () else dim, keepdims=keepdim),
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
def _(self: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    return var_mean(self, correction=int(unbiased))


@composite(
    reference=lambda self, dim=None, correction=None, keepdim=False: (
        _std_reference(self, dim, correction, keepdim),
        np.mean(self, axis=None if dim == () else dim, keepdims=keepdim),
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
def _(self: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    return std_mean(self, correction=int(unbiased))


def _matrix_of_variables(self: Any) -> Any:
    if self.ndim > 2:
        raise ShapeError(
            f"needs at most 2 dimensions, got {self.ndim}", fix="pass (variables, observations)"
        )
    return self if self.ndim == 2 else lazy.reshape(self, (1, -1))


def _checked_weights(name: str, weights: Any, count: int, kind: str) -> Any:
    if weights is None:
        return None
    if weights.ndim > 1 or weights.numel() != count:
        raise ShapeError(
            f"{name} of shape {tuple(weights.shape)} does not fit {count} observations",
            fix=f"give a vector of {count} elements",
        )
    dtype = dtype_of(weights)
    if dtype.is_floating_point if kind == "integers" else not dtype.is_floating_point:
        raise DTypeError(
            f"{name} must be {kind}, and have dtype {dtype.name}",
            fix="use fweights for counts, aweights for importances",
        )
    return lazy.checked(weights, weights.detach(), 0, None, name)


def _covariances(make: Any) -> Iterator[Sample]:
    yield Sample(make((3, 17)))
    yield Sample(make((2, 5)), correction=0)
    counts = np.array([2, 1, 3, 1, 2])
    yield Sample(make((2, 5)), aweights=make.positive((5,)))
    yield Sample(make((2, 5)), fweights=counts)
    yield Sample(make((3, 5)), fweights=counts, aweights=make.positive((5,)))


@composite(
    reference=lambda self, correction=1, fweights=None, aweights=None: np.cov(
        self, ddof=correction, fweights=fweights, aweights=aweights
    ),
    samples=_covariances,
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
    fweights = _checked_weights("fweights", fweights, x.shape[1], "integers")
    aweights = _checked_weights("aweights", aweights, x.shape[1], "floating-point numbers")
    if x.dtype.category < 2:
        x = lazy.to_dtype(x, default_dtype())
    dtype = x.dtype
    if dtype.itemsize == 2:
        x = lazy.to_dtype(x, float32)
        aweights = aweights if aweights is None else lazy.to_dtype(aweights, float32)
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else mul(weights, aweights)
    if weights is None:
        total = float(x.shape[1])
        center = sub(x, mean(x, 1, True))
        weighted = center
        freedom: Any = max(total - correction, 0.0)
        if not freedom:
            warn(
                "cov(): degrees of freedom is <= 0. Correction should be strictly less than the "
                "number of observations."
            )
    else:
        total = sum(weights)
        center = sub(x, div(sum(mul(x, weights), 1, True), total))
        weighted = mul(center, weights)
        if aweights is None or correction == 0:
            freedom = sub(total, correction)
        else:
            freedom = sub(total, mul(div(sum(mul(weights, aweights)), total), correction))
        freedom = magnitude.clamp(freedom, 0, None)
    product = div(lazy.matmul(weighted, lazy.conj(lazy.transpose(center, 0, 1))), freedom)
    product = lazy.to_dtype(product, dtype)
    return product if self.ndim == 2 and x.shape[0] != 1 else lazy.reshape(product, ())


@composite(
    reference=np.corrcoef,
    samples=lambda make: (Sample(make((3, 17))), Sample(make((2, 5)))),
    dtypes="float",
    tolerance=conditioned,
)
def corrcoef(self: Tensor) -> Tensor:
    """Pearson correlations of variables in rows, clamped to [-1, 1]."""

    def normalized(x: Tensor) -> Tensor:
        c = cov(x)
        if not c.ndim:
            return div(c, c)
        deviation = exponential.sqrt(lazy.diagonal(c))
        scaled = div(div(c, lazy.unsqueeze(deviation, 1)), lazy.unsqueeze(deviation, 0))
        if scaled.dtype.is_complex:
            parts = magnitude.clamp(lazy.view_as_real(scaled), -1, 1)
            return lazy.view_as_complex(parts)
        return magnitude.clamp(scaled, -1, 1)

    return in_float32(normalized, self)
