"""Cumulative operations along one dimension, differences, and integration by trapezoids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential
from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.sums import sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import DType, Scalar, Tensor
from coredispatch.ops.support.inspection import any_true
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import (
    conditioned,
    dot,
    exact,
    normalize_dim,
    same,
    same_shape,
    values_and_indices,
)
from coredispatch.ops.support.samples import Sample, scans
from coredispatch.registry import DType as DTypeClass
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import bool_, int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.value import dtype_of


def _along(self: Any, dim: int, *_: Any) -> tuple[int, ...]:
    normalize_dim(dim, len(self.shape))
    return same_shape(self)


def _scan_dtype(self: Any, dim: Any = None, dtype: Any = None) -> Any:
    own = DTypeClass.of(self.dtype)
    return dtype if dtype is not None else int64 if own.category < 2 else own


def _scan_reference(function: Any) -> Any:
    def reference(self: Any, dim: int, dtype: Any = None) -> Any:
        own = {} if dtype is None else {"dtype": dtype}
        if not np.ndim(self):
            return function(np.reshape(self, 1), axis=0, **own).reshape(())
        return function(self, axis=dim, **own)

    return reference


_SCAN = {"out": _along, "dtype": _scan_dtype, "samples": scans, "cast": "float32_accelerated"}


@primitive(reference=_scan_reference(np.cumsum), tolerance=dot, inplace=True, **_SCAN)
def cumsum(self: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Cumulative sums along ``dim``. Bool and integers become int64; half precision accumulates
    in float32.
    """


@cumsum.vjp
def _(grad, dim):
    return reversed_cumsum(grad, dim)


def reversed_cumsum(x: Any, dim: int) -> Any:
    """Cumulative sums from the end."""
    if not x.ndim:
        return x
    return lazy.flip(cumsum(lazy.flip(x, (dim,)), dim), (dim,))


@primitive(
    reference=_scan_reference(np.cumprod),
    tolerance=conditioned,
    dtypes="real",
    inplace=True,
    **_SCAN,
)
def cumprod(self: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Cumulative products along ``dim``. Dtypes as in :func:`cumsum`."""


@cumprod.vjp
def _(grad, out, self, dim):
    if not self.ndim or self.shape[dim] <= 1:
        return grad
    return cumprod_backward(grad, out, self, dim)


cumprod.edge("one zero", [2.0, 0.0, 3.0], 0, gradient=[1.0, 8.0, 0.0])


def _cumprod_backward_reference(grad_output: Any, out: Any, self: Any, dim: int) -> Any:
    shares = np.flip(np.cumsum(np.flip(grad_output * np.conj(out), dim), dim), dim)
    return shares / np.conj(self)


@composite(
    out=lambda grad_output, out, self, dim: tuple(self.shape),
    dtype=lambda grad_output, *_: grad_output.dtype,
    reference=_cumprod_backward_reference,
    samples=lambda make: (
        Sample(make(x.shape), np.cumprod(x, dim), x, dim)
        for x, dim in ((make.positive((5,)), 0), (make.positive((3, 4)), -1))
    ),
    dtypes="float",
    tolerance=conditioned,
    unbroadcast=False,
    namespace=(),
)
def cumprod_backward(grad_output: Tensor, out: Tensor, self: Tensor, dim: int) -> Tensor:
    """Gradient of :func:`cumprod`, whose result is ``out``; exact where ``self`` has zeros."""
    if not any_true(comparison.eq(self, 0)):
        return div(reversed_cumsum(mul(grad_output, adjoint(out)), dim), adjoint(self))
    return _cumprod_grad_with_zeros(grad_output, self, dim)


def _cumprod_grad_with_zeros(grad: Any, x: Any, dim: int) -> Any:
    """Row k: the sum over i >= k of grad_i times the product of x_0 .. x_i without x_k."""
    rows = lazy.movedim(x, dim, -1)
    n = rows.shape[-1]
    eye = lazy.eye(n, dtype=bool_, device=x.device)
    without = comparison.where(eye, 1, lazy.unsqueeze(rows, -2))
    products = cumprod(without, -1)
    upper = lazy.triu(lazy.ones((n, n), dtype=dtype_of(x), device=x.device))
    weights = mul(adjoint(mul(products, upper)), lazy.unsqueeze(lazy.movedim(grad, dim, -1), -2))
    return lazy.movedim(sum(weights, -1), -1, dim)


# ---- scans by doubling ------------------------------------------------------------------------


def doubling_scan(x: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Inclusive scan over the last dim of the tensors ``x`` with an associative ``combine``.

    Hillis and Steele, Data Parallel Algorithms, Communications of the ACM 29 (1986): log2(n)
    rounds, each joining every element with the one a power of two before it.
    """
    n, step = x[0].shape[-1], 1
    while step < n:
        head = [lazy.narrow(t, -1, 0, step) for t in x]
        before = [lazy.narrow(t, -1, 0, n - step) for t in x]
        after = [lazy.narrow(t, -1, step, n - step) for t in x]
        joined = combine(before, after)
        x = [lazy.cat([h, j], -1) for h, j in zip(head, joined, strict=True)]
        step *= 2
    return x


def _running_extremum(x: Any, dim: int, reaches: Any) -> Any:
    """Values and indices of a running extremum; the latest of equals, NaN wins."""
    if not x.ndim:
        return lazy.clone(x), lazy.zeros((), dtype=int64, device=x.device)

    def later(before: Any, after: Any) -> Any:
        take = comparison.logical_or(reaches(after[0], before[0]), comparison.isnan(after[0]))
        return [comparison.where(take, a, b) for a, b in zip(after, before, strict=True)]

    rows = lazy.movedim(lazy.detach(x), dim, -1)
    places = lazy.arange(0, rows.shape[-1], 1, dtype=int64, device=x.device)
    start = [rows, lazy.expand(places, rows.shape)]
    index = lazy.movedim(doubling_scan(start, later)[1], -1, dim)
    return lazy.gather(x, dim, index), index


def _pair_shapes(self: Any, dim: int) -> Any:
    return [_along(self, dim), _along(self, dim)]


_EXTREMUM = {
    "out": _pair_shapes,
    "dtype": values_and_indices,
    "samples": scans,
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
    "fields": ("values", "indices"),
}


@composite(takes="real", **_EXTREMUM)
def cummax(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running maxima along ``dim`` and their indices (the latest of equals); NaN wins."""
    normalize_dim(dim, self.ndim)
    return cummax.result_type(_running_extremum(self, dim, comparison.ge))


cummax.edge("the last of equal elements", [1.0, 3.0, 3.0], 0, gradient=[1.0, 1.0, 1.0])


@composite(takes="real", **_EXTREMUM)
def cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running minima along ``dim`` and their indices (the latest of equals); NaN wins."""
    normalize_dim(dim, self.ndim)
    return cummin.result_type(_running_extremum(self, dim, comparison.le))


cummin.edge("the last of equal elements", [3.0, 1.0, 1.0], 0, gradient=[1.0, 1.0, 1.0])


@composite(
    takes="float+complex",
    out=_along,
    dtype=same,
    reference=_scan_reference(np.logaddexp.accumulate),
    samples=scans,
    dtypes="float",
    tolerance=conditioned,
    cast="float32_accelerated",
)
def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """``log(cumsum(exp(self)))`` along ``dim`` without overflow."""
    normalize_dim(dim, self.ndim)
    if not self.ndim or self.shape[dim] <= 1:
        return lazy.clone(self)
    rows = lazy.movedim(wide(self), dim, -1)
    (out,) = doubling_scan([rows], lambda a, b: [exponential.logaddexp(a[0], b[0])])
    return narrow(lazy.movedim(out, -1, dim), self)


# ---- differences and integrals ----------------------------------------------------------------


@composite(
    reference=lambda self, n=1, dim=-1, prepend=None, append=None: np.diff(
        np.concatenate([x for x in (prepend, self, append) if x is not None], dim), n, axis=dim
    ),
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((3, 5)), 2),
        Sample(make((3, 5)), 1, 0),
        Sample(make((2, 1))),
        Sample(make((3, 5)), 1, 1, make((3, 2)), make((3, 1))),
        Sample(make((3, 3)), 2, 0, make((1, 3)), None),
    ),
    tolerance=conditioned,
)
def diff(
    self: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """``n``-th forward differences along ``dim``, which loses ``n`` elements.

    ``prepend`` and ``append`` are joined to ``self`` along ``dim`` first. Bool differences are
    exclusive ors.
    """
    if self.ndim == 0:
        raise ShapeError("a 0-dim tensor has no differences", fix="reshape it to (1,) first")
    if n == 0:
        return lazy.clone(self)
    normalize_dim(dim, self.ndim)
    parts = [part for part in (prepend, self, append) if part is not None]
    x = lazy.cat(parts, dim) if len(parts) > 1 else self
    dim = normalize_dim(dim, x.ndim)
    if n < 0:
        raise ArgumentError(f"diff needs n >= 0, got {n}", fix="use n >= 0")
    minus = comparison.logical_xor if dtype_of(x).kind == "b" else sub
    for _ in range(min(n, x.shape[dim])):
        m = x.shape[dim] - 1
        x = minus(lazy.narrow(x, dim, 1, m), lazy.narrow(x, dim, 0, m))
    return x


@composite(
    reference=lambda y, x=None, dx=1.0, dim=-1: np.trapezoid(y, x, dx, axis=dim),
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((3, 5)), make((5,))),
        Sample(make((3, 5)), dx=0.5, dim=0),
        Sample(make((4, 4)), make((4,)), dim=0),
    ),
    dtypes="float",  # differences of points cancel: the error is that of the parts
    method=False,
    alias=("trapz",),
)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Scalar = 1, dim: int = -1) -> Tensor:
    """Integral of ``y`` along ``dim`` by the trapezoidal rule, at points ``x`` or ``dx`` apart."""
    return sum(_areas(y, x, dx, dim), normalize_dim(dim, y.ndim))


@trapezoid.overload
def _(y: Tensor, x: Tensor, dim: int) -> Tensor:
    return trapezoid(y, x, dim=dim)


@composite(
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((3, 5)), make((5,))),
        Sample(make((4, 4)), make((4,)), dim=0),
    ),
    dtypes="float",
    method=False,
)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Scalar = 1, dim: int = -1
) -> Tensor:
    """Cumulative integral of ``y`` along ``dim``, one element shorter than ``y``."""
    return cumsum(_areas(y, x, dx, dim), normalize_dim(dim, y.ndim))


def _areas(y: Any, x: Any, dx: Any, dim: int) -> Any:
    dim = normalize_dim(dim, y.ndim)
    m = y.shape[dim] - 1
    if m < 0:
        return mul(y, 0.5)  # no point, no area
    heights = add(lazy.narrow(y, dim, 1, m), lazy.narrow(y, dim, 0, m))
    if x is None:
        return mul(heights, dx * 0.5)
    if x.ndim == 1:
        widths = diff(x)
        shape = [1] * y.ndim
        shape[dim] = m
        widths = lazy.reshape(widths, shape)
    else:  # the dimension is counted in y; x has those of y from the end on, as in broadcasting
        x = lazy.reshape(x, (*(1,) * (y.ndim - x.ndim), *x.shape)) if x.ndim < y.ndim else x
        widths = diff(x, 1, dim)
    return mul(mul(heights, widths), 0.5)
