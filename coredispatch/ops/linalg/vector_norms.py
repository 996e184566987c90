"""Norms of the elements of a tensor, taken as one vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.extrema import amax, amin
from coredispatch.ops.reduction.sums import reduced_count, spread, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import DType, IntList, Tensor
from coredispatch.ops.support.casting import in_float32
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, dot, normalize_dim, reduced, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Value, composite
from coredispatch.registry.model.dtypes import complex64, complex128, float32, float64
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.value import dtype_of


def _norm_samples(make: Any) -> Iterator[Sample]:
    for shape in ((1,), (17,), (4, 4), (2, 3, 5)):
        yield Sample(make(shape))
        for p in (0, 1, 2, 3, 0.5, math.inf, -math.inf):
            yield Sample(make(shape), p)
    yield Sample(make((3, 5)), 2, 1, True)
    yield Sample(make((2, 3, 5)), 1, (0, 2))


def _norm_reference(self: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False) -> Any:
    x = np.abs(self)
    axis = None if dim == () else dim
    if p == math.inf:
        return np.max(x, axis=axis, keepdims=keepdim)
    if p == -math.inf:
        return np.min(x, axis=axis, keepdims=keepdim)
    if p != 0 and np.sum(x, axis=axis, keepdims=True).size == x.size:
        return np.sum(x, axis=axis, keepdims=keepdim)  # one number is its own norm
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
    cast="float32_accelerated",
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
        return lazy.linalg_matrix_norm(self, "nuc", dims, keepdim)
    if p is None or p == "fro":
        p = 2
    elif isinstance(p, str):
        require_one_of("p", p, ("fro", "nuc"))
    x = self if dtype is None else lazy.to_dtype(self, dtype)
    if dtype_of(x).category < 2:
        raise DTypeError(
            f"the norm of {dtype_of(x)} elements needs a floating dtype",
            fix="convert with x.float(), or pass dtype=",
        )
    power: Any = p
    return in_float32(power_norm, x, float(power), dim, keepdim)


@composite(
    out=lambda self, p, dim, keepdim: reduced(self, dim, keepdim),
    samples=lambda make: (
        Sample(make(s), p, dim, keepdim)
        for s, dim, keepdim in (
            ((17,), None, False),
            ((3, 5), (1,), True),
            ((2, 3, 4), (0, 2), False),
        )
        for p in (2.0, 1.0, 3.0, 0.0, math.inf, -math.inf)
    ),
    tolerance=conditioned,
    smooth=False,
    dtypes=(float32, float64, complex64, complex128),  # callers widen half precision
    namespace=(),
    method=False,
)
def power_norm(self: Tensor, p: float, dim: IntList | None, keepdim: bool) -> Tensor:
    """``sum(abs(self) ** p) ** (1 / p)`` over ``dim``; its limits for 0 and the infinities."""
    dims = () if dim is None else dim
    several = not p or reduced_count(self.shape, dim) != 1
    if p == 2 and several and dtype_of(self).category < 3:
        return exponential.sqrt(sum(mul(self, self), dim, keepdim))
    size = magnitude.abs(self)
    if p == math.inf or not several:  # one number is its own norm
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if p == 0:
        return sum(comparison.ne(size, 0), dim, keepdim, dtype=dtype_of(size))
    if p == 1:
        return sum(size, dim, keepdim)
    if p == 2:
        return exponential.sqrt(sum(mul(size, size), dim, keepdim))
    return _power(sum(_power(size, p), dim, keepdim), 1 / p)


def _power(x: Any, exponent: float) -> Any:
    """``x ** exponent``; an exponent beyond the numbers of the dtype is an infinity of it."""
    if abs(exponent) > float(np.finfo(dtype_of(x).to_real().name).max):
        exponent = math.copysign(math.inf, exponent)
    return exponential.pow(x, exponent)


def power_norm_grad(
    grad: Any, out: Any, self: Any, p: float, dim: IntList | None, keepdim: bool
) -> Any:
    """The gradient of :func:`power_norm`, whose result is ``out``."""
    shape = self.shape
    if p == 0:
        return lazy.zeros_like(self)
    if p == 1 or reduced_count(shape, dim) == 1:
        return mul(magnitude.sgn(self), spread(grad, shape, dim, keepdim))
    if p == 2:
        zero = comparison.eq(out, 0)
        share = comparison.where(zero, 0, div(grad, comparison.where(zero, 1, out)))
        return mul(self, spread(share, shape, dim, keepdim))
    grad = spread(grad, shape, dim, keepdim)
    out = spread(out, shape, dim, keepdim)
    size = magnitude.abs(self)
    if math.isinf(p):
        mask = comparison.eq(size, out)
        share = div(grad, spread(sum(mask, dim, True), shape, dim, True))
        return mul(magnitude.sgn(self), comparison.where(mask, share, 0))
    zero = comparison.eq(size, 0)
    safe = comparison.where(zero, 1, size)
    norm_safe = comparison.where(comparison.eq(out, 0), 1, out)
    slope = mul(_power(safe, p - 1), _power(norm_safe, 1 - p))
    return mul(magnitude.sgn(self), mul(grad, comparison.where(zero, 0, slope)))


power_norm.vjp(power_norm_grad)


@composite(
    reference=lambda self, other, p=2: _norm_reference(self - other, p),
    samples=lambda make: (Sample(make((5,)), make((5,))), Sample(make((3, 5)), make((5,)), 1)),
    dtypes="float",
    tolerance=dot,
    smooth=False,
    cast="float32_accelerated",
)
def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The ``p``-norm of ``self - other``, 0-dim; shapes broadcast."""
    difference = sub(self, other)
    if difference.dtype.category < 2:
        raise DTypeError(
            f"not defined for dtype {difference.dtype.name}",
            fix="it takes floating point and complex numbers",
        )
    out = power_norm(wide(difference), float(p), None, False)  # powers overflow half precision
    return out if difference.dtype.is_complex else narrow(out, difference)


dist.edge("0 at a distance of 0", [1.0, 2.0], [1.0, 2.0], 2, gradient=([0.0, 0.0], [0.0, 0.0]))


@composite(
    takes="float+complex",
    samples=lambda make: (Sample(make((3, 5)), 2, 0, 1.0), Sample(make((2, 3, 5)), 1, -1, 2.0)),
    dtypes="float",
    tolerance=conditioned,
    smooth=False,
    inplace=True,
    cast="float32_accelerated",
)
def renorm(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """``self`` with each slice along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
    if self.ndim < 2:
        raise ShapeError(
            f"renorm needs at least 2 dimensions, got {self.ndim}",
            fix="use a tensor with at least 2 dimensions",
        )
    if p <= 0 or maxnorm < 0:
        raise ArgumentError(
            f"renorm needs p > 0 and maxnorm >= 0, got {p} and {maxnorm}",
            fix="use p > 0 and maxnorm >= 0",
        )
    dim = normalize_dim(dim, self.ndim)
    others = tuple(d for d in range(self.ndim) if d != dim)

    def scaled(x: Tensor) -> Tensor:
        size = power_norm(x, float(p), others, True)
        factor = comparison.where(comparison.gt(size, maxnorm), div(maxnorm, add(size, 1e-7)), 1)
        return mul(x, factor)

    return in_float32(scaled, self)


# ---- which singular values count ----------------------------------------------------------------


def smallest_that_counts(sizes: Any, rtol: Any, atol: Any, default: float) -> Any:
    """The limit below which ``sizes`` (..., k) count as zero, (..., 1): the greater of ``atol`` and
    ``rtol`` times the greatest, numbers or tensors of one for each matrix.

    Without ``rtol`` it is ``default``, or 0 where ``atol`` is above zero.
    """
    rtol, atol = (lazy.unsqueeze(x, -1) if isinstance(x, Value) else x for x in (rtol, atol))
    if rtol is None:
        rtol = default if atol is None else _default_beside(atol, default)
    limit = amax(sizes, -1, True) * rtol
    if atol is None:
        return limit
    return lazy.maximum(limit, atol) if isinstance(atol, Value) else lazy.clamp(limit, atol)


def _default_beside(atol: Any, default: float) -> Any:
    if not isinstance(atol, Value):
        return 0.0 if atol else default
    return comparison.where(comparison.gt(atol, 0), 0.0, default)
