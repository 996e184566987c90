"""Reductions: sums, products, extrema, truth, moments and norms.

``dim`` is an int or a sequence of ints, counted from either end; None (or an empty sequence)
reduces every dimension. ``keepdim`` keeps reduced dimensions with size 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison
from coredispatch.ops.elementwise.arithmetic import mul
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import DType, IntList, Tensor
from coredispatch.ops.support.rules import (
    accumulated,
    conditioned,
    dot,
    exact,
    normalize_dims,
    reduced,
    same,
)
from coredispatch.ops.support.samples import (
    Sample,
    nonempty_reductions,
    reductions,
)
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import bool_, float32, int64
from coredispatch.registry.model.errors import DTypeError, ShapeError


def kept_shape(shape: Any, dim: Any) -> tuple[int, ...]:
    """``shape`` with the reduced dims of size 1."""
    dims = normalize_dims(dim, len(shape))
    return tuple(1 if i in dims else n for i, n in enumerate(shape))


def reduced_count(shape: Any, dim: Any) -> int:
    """How many elements each result is made of."""
    if not dim:
        return math.prod(shape)
    return math.prod([shape[d] for d in normalize_dims(dim, len(shape))])


def spread(x: Any, shape: Any, dim: Any, keepdim: bool) -> Any:
    """A reduced tensor brought back over the shape it was reduced from, as a view."""
    if x.ndim and not keepdim:
        x = lazy.reshape(x, kept_shape(shape, dim))
    return lazy.expand(x, shape)


def _axis(dim: Any) -> Any:
    return None if dim is None or dim == () else dim


def reduction_reference(function: Any, wide: bool = True) -> Any:
    """A NumPy reduction under the op's argument names."""

    def reference(self: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        if not np.ndim(self):
            dim = None
        return function(self, axis=_axis(dim), keepdims=keepdim, **options)

    return reference


# ---- sums and products ------------------------------------------------------------------------


@primitive(
    out=reduced,
    dtype=accumulated,
    reference=reduction_reference(np.sum),
    samples=reductions,
    tolerance=dot,
    cast="float32_accelerated",
)
def sum(
    self: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Sum over ``dim``; 0 for no elements.

    The result is int64 for bool and integer inputs, else of the input's dtype, or ``dtype``.
    Half precision accumulates in float32.
    """


@sum.vjp
def _(grad, self_shape, dim, keepdim):
    return spread(grad, self_shape, dim, keepdim)


sum.edge("of no elements", [], gradient=[])


@primitive(
    out=reduced,
    dtype=accumulated,
    reference=reduction_reference(np.prod),
    samples=reductions,
    dtypes="real",
    tolerance=conditioned,
    cast="float32",
)
def prod(
    self: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Product over ``dim``; 1 for no elements. Dtypes as in :func:`sum`, complex ones too."""


@prod.vjp
def _(grad, self, dim, keepdim):
    dims = normalize_dims(dim, self.ndim)
    others = [d for d in range(self.ndim) if d not in dims]
    if not dims:
        return grad
    # All reduced dims as one last dim; each element's factor is the product of all others.
    order = [*others, *dims]
    x = lazy.permute(self, order)
    lead = tuple(x.shape[: len(others)])
    flat = lazy.reshape(x, (*lead, reduced_count(self.shape, dim)))
    factors = adjoint(product_of_others(flat))
    slope = lazy.permute(lazy.reshape(factors, x.shape), list(np.argsort(order)))
    return mul(spread(grad, self.shape, dim, keepdim), slope)


prod.edge("one zero", [2.0, 0.0, 3.0], gradient=[0.0, 6.0, 0.0])
prod.edge("two zeros", [0.0, 0.0, 3.0], gradient=[0.0, 0.0, 0.0])
prod.edge("of no elements", [], gradient=[])


def product_of_others(x: Any) -> Any:
    """For each element the product of all others of its row (last dim); exact with zeros."""
    n = x.shape[-1]
    if n == 0:
        return x
    ones = lazy.ones_like(lazy.narrow(x, -1, 0, 1))
    before = lazy.cumprod(lazy.cat([ones, lazy.narrow(x, -1, 0, n - 1)], -1), -1)
    later = lazy.cat([ones, lazy.flip(lazy.narrow(x, -1, 1, n - 1), (-1,))], -1)
    after = lazy.flip(lazy.cumprod(later, -1), (-1,))
    return mul(before, after)


def _mean_dtype(self: Any, dim: Any = None, keepdim: Any = None, dtype: Any = None) -> Any:
    own = dtype if dtype is not None else same(self)
    if own.category < 2:
        raise DTypeError(
            f"the mean of {own} elements needs a floating dtype",
            fix="pass dtype=cd.float32, or convert with x.float()",
        )
    return own


@composite(
    out=reduced,
    dtype=_mean_dtype,
    reference=reduction_reference(np.mean),
    samples=nonempty_reductions,
    dtypes="float+complex",
    tolerance=dot,
)
def mean(
    self: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Arithmetic mean over ``dim``; NaN for no elements.

    Raises ``DTypeError`` for bool and integer inputs unless a floating ``dtype`` is given.
    """
    own, count = _mean_dtype(self, dim, keepdim, dtype), reduced_count(self.shape, dim) or math.nan
    if own.itemsize > 2:
        return div(sum(self, dim, keepdim, dtype=dtype), count)
    # The sum of half precision may not fit it, and would be rounded before it is divided.
    return lazy.to_dtype(div(sum(self, dim, keepdim, dtype=float32), count), own)


@mean.vjp
def _(grad, self_shape, dim, keepdim):
    return spread(div(grad, reduced_count(self_shape, dim) or 1), self_shape, dim, keepdim)


mean.edge("of no elements", [], gradient=[])


@composite(
    out=reduced,
    dtype=accumulated,
    reference=reduction_reference(np.nansum),
    samples=reductions,
    takes="real",
    tolerance=dot,
    cast="float32_accelerated",
)
def nansum(
    self: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """:func:`sum` with NaN counted as 0."""
    return sum(comparison.where(comparison.isnan(self), 0, self), dim, keepdim, dtype=dtype)


nansum.edge("0 at NaN", [1.0, float("nan")], gradient=[1.0, 0.0])


@composite(
    takes="float",
    out=reduced,
    dtype=_mean_dtype,
    reference=reduction_reference(np.nanmean),
    samples=nonempty_reductions,
    tolerance=dot,
)
def nanmean(
    self: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Mean of the elements that are not NaN."""
    count = sum(comparison.logical_not(comparison.isnan(self)), dim, keepdim)
    return div(nansum(self, dim, keepdim, dtype=dtype), count)


nanmean.edge("0 at NaN", [1.0, float("nan"), 3.0], gradient=[0.5, 0.0, 0.5])


@composite(
    out=lambda self, dim=None: reduced(self, dim),
    dtype=int64,
    reference=lambda self, dim=None: np.count_nonzero(self, axis=_axis(dim)),
    samples=lambda make: (
        Sample(make(s), *d)
        for s, d in (((), ()), ((0,), ()), ((17,), ()), ((3, 5), (0,)), ((2, 3, 5), ((0, 2),)))
    ),
    differentiable=False,
    tolerance=exact,
)
def count_nonzero(self: Tensor, dim: IntList | None = None) -> Tensor:
    """Number of nonzero elements over ``dim``, int64. NaN counts."""
    return sum(comparison.ne(self, 0), dim)


# ---- truth ------------------------------------------------------------------------------------


@primitive(
    out=reduced,
    dtype=bool_,
    reference=reduction_reference(np.any),
    samples=reductions,
    differentiable=False,
    tolerance=exact,
)
def any(self: Tensor, dim: IntList | None = None, keepdim: bool = False) -> Tensor:
    """Whether any element over ``dim`` is nonzero, as bool; false for no elements."""


@primitive(
    out=reduced,
    dtype=bool_,
    reference=reduction_reference(np.all),
    samples=reductions,
    differentiable=False,
    tolerance=exact,
)
def all(self: Tensor, dim: IntList | None = None, keepdim: bool = False) -> Tensor:
    """Whether every element over ``dim`` is nonzero, as bool; true for no elements."""


def _sum_to_size_reference(self: Any, size: Any) -> Any:
    lead = tuple(range(self.ndim - len(size)))
    ones = tuple(i - len(size) for i, n in enumerate(size) if n == 1)
    return np.sum(np.sum(self, axis=ones, keepdims=True), axis=lead)


@composite(
    reference=_sum_to_size_reference,
    samples=lambda make: (
        Sample(make((2, 3, 4)), (3, 1)),
        Sample(make((3, 4)), (3, 4)),
        Sample(make((3, 4)), ()),
        Sample(make((3, 1)), (1, 1)),
    ),
    tolerance=dot,
    view="maybe",
    namespace=(),
)
def sum_to_size(self: Tensor, size: IntList) -> Tensor:
    """``self`` added up to ``size``, which it is the broadcast form of: the gradient of ``expand``.

    Raises :class:`ShapeError` where ``size`` does not expand to the shape of ``self``.
    """
    shape, size = tuple(self.shape), tuple(size)
    lead = len(shape) - len(size)
    if lead < 0 or [n for n, m in zip(size, shape[lead:]) if n not in (1, m)]:
        raise ShapeError(
            f"size {size} does not expand to shape {shape}",
            fix="use lengths of 1, or those of the tensor",
        )
    dims = [i for i, n in enumerate(shape) if i < lead or (size[i - lead] == 1 and n != 1)]
    return lazy.reshape(sum(self, tuple(dims), True), size) if dims else self
