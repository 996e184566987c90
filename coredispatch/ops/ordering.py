"""Sorting and what rests on order: top elements, medians, quantiles, modes.

NaN counts as larger than every number. All sorts are stable, and so are the indices of equal
elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops import comparison, late, rounding
from coredispatch.ops.annotations import Scalar, Tensor
from coredispatch.ops.arithmetic import mul, sub
from coredispatch.ops.casting import filled
from coredispatch.ops.reduction import any, argmax, sum
from coredispatch.ops.rules import (
    conditioned,
    exact,
    indices,
    normalize_dim,
    require_one_of,
    same_shape,
    values_and_indices,
)
from coredispatch.ops.samples import Sample, dim_reductions, scans
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.dtypes import float32, float64, int64
from coredispatch.registry.errors import ArgumentError, DimError, DTypeError
from coredispatch.registry.value import dtype_of

_INF = float("inf")


def scattered(grad: Any, shape: Any, dim: int, index: Any) -> Any:
    """Zeros of ``shape`` with ``grad`` at ``index`` along ``dim``: the gradient of a selection."""
    zeros = filled(grad, shape, 0)
    if not shape:
        return late.reshape(grad, ())
    return late.scatter(zeros, dim, index, grad)


# ---- sort -------------------------------------------------------------------------------------


def _pair_shapes(self: Any, dim: int = -1, *_: Any) -> Any:
    normalize_dim(dim, len(self.shape))
    return [same_shape(self), same_shape(self)]


def _sort_samples(make: Any) -> Iterator[Sample]:
    for sample in scans(make):
        yield sample
        yield Sample(*sample.args, True)


def argsort_reference(
    self: Any, dim: int = -1, descending: bool = False, stable: Any = None
) -> Any:
    """NumPy's stable argsort in either direction."""
    if not np.ndim(self):
        return np.zeros((), np.int64)
    if not descending:
        return np.argsort(self, axis=dim, kind="stable")
    reverse = np.flip(np.argsort(np.flip(self, dim), axis=dim, kind="stable"), dim)
    return self.shape[dim] - 1 - reverse


def _sort_reference(self: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    index = argsort_reference(self, dim, descending)
    if not np.ndim(self):
        return self, index
    return np.take_along_axis(self, index, dim), index


@primitive(
    out=_pair_shapes,
    dtype=values_and_indices,
    reference=_sort_reference,
    samples=_sort_samples,
    dtypes="real",
    tolerance=exact,
    smooth=False,
    fields=("values", "indices"),
)
def sort(
    self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> tuple[Tensor, Tensor]:
    """Sorted elements along ``dim`` and the int64 indices they came from, as a named tuple.

    Equal elements keep their order whatever ``stable`` says; NaN sorts as the largest.
    """


@sort.vjp
def _(grad, out, self_shape, dim):
    return scattered(grad[0], self_shape, dim, out[1])


@sort.overload
def _(
    self: Tensor, *, stable: bool, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return sort(self, dim, descending, stable)


@composite(
    out=lambda self, dim=-1, *_: _pair_shapes(self, dim)[0],
    dtype=indices,
    reference=argsort_reference,
    samples=_sort_samples,
    dtypes="real",
    differentiable=False,
    tolerance=exact,
)
def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """int64 indices that sort ``self`` along ``dim``, stable."""
    return sort(self, dim, descending, stable)[1]


@composite(
    reference=lambda self: np.sort(self, axis=0),
    samples=lambda make: (Sample(make((5,))), Sample(make((3, 5)))),
    dtypes="real",
    tolerance=exact,
    smooth=False,
)
def msort(self: Tensor) -> Tensor:
    """``self`` sorted along dim 0."""
    return sort(self, 0)[0]


# ---- selection by rank ------------------------------------------------------------------------


def _topk_shapes(self: Any, k: int, dim: int = -1, *_: Any) -> Any:
    dim = normalize_dim(dim, len(self.shape))
    n = self.shape[dim] if self.shape else 1
    if not 0 <= k <= n:
        raise DimError(f"k={k} is out of range for a dimension of size {n}", fix=f"use 0 to {n}")
    shape = list(self.shape)
    if shape:
        shape[dim] = k
    return [tuple(shape), tuple(shape)]


def _topk_samples(make: Any) -> Iterator[Sample]:
    for shape in ((5,), (17,), (257,), (4, 4), (2, 3, 5)):
        for largest in (True, False):
            yield Sample(make(shape), 3, -1, largest)
    yield Sample(make((3, 5)), 1, 0)
    yield Sample(make((3, 5)), 5, 1)
    yield Sample(make(()), 1)


def _topk_reference(
    self: Any, k: int, dim: int = -1, largest: bool = True, sorted: Any = True
) -> Any:
    values, index = _sort_reference(self, dim, largest)
    if not np.ndim(self):
        return values, index
    first = np.arange(k)
    return np.take(values, first, axis=dim), np.take(index, first, axis=dim)


@composite(
    out=_topk_shapes,
    dtype=values_and_indices,
    reference=_topk_reference,
    samples=_topk_samples,
    dtypes="real",
    tolerance=exact,
    smooth=False,
    fields=("values", "indices"),
)
def topk(
    self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) elements along ``dim`` and their indices, in order.

    The first of equal elements comes first; NaN counts as the largest. Raises ``DimError`` when
    ``k`` exceeds the dimension.
    """
    _topk_shapes(self, k, dim)
    values, index = sort(self, dim, largest)
    if self.ndim:
        values, index = late.narrow(values, dim, 0, k), late.narrow(index, dim, 0, k)
    return topk.result_type((values, index))


@topk.vjp
def _(grad, out, self_shape, dim):
    return scattered(grad[0], self_shape, dim, out[1])


def _single_shapes(self: Any, dim: int = -1, keepdim: bool = False, *_: Any) -> Any:
    dim = normalize_dim(dim, len(self.shape))
    if self.shape and self.shape[dim] == 0:
        raise DimError(f"dimension {dim} of shape {tuple(self.shape)} is empty")
    shape = list(self.shape)
    if shape:
        shape[dim : dim + 1] = [1] if keepdim else []
    return [tuple(shape), tuple(shape)]


_SINGLE = {
    "out": _single_shapes,
    "dtype": values_and_indices,
    "samples": dim_reductions,
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
    "fields": ("values", "indices"),
}


def _picked(x: Any, dim: int, index: Any, keepdim: bool) -> Any:
    """Elements at ``index``, which has the dimension with size 1, and the indices."""
    if not x.ndim:
        return x, late.reshape(index, ())
    values = late.gather(x, dim, index)
    return (values, index) if keepdim else (late.squeeze(values, dim), late.squeeze(index, dim))


def _kth_shapes(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _single_shapes(self, dim, keepdim)


@composite(
    **_SINGLE
    | {
        "out": _kth_shapes,
        "samples": lambda make: (
            Sample(make((5,)), 2),
            Sample(make((4, 4)), 4, 0),
            Sample(make((2, 3, 5)), 1, -2, True),
        ),
    }
)
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The ``k``-th smallest element along ``dim`` (counted from 1) and its index."""
    n = self.shape[normalize_dim(dim, self.ndim)] if self.ndim else 1
    if not 1 <= k <= n:
        raise DimError(f"k={k} is out of range for a dimension of size {n}", fix=f"use 1 to {n}")
    index = late.unsqueeze(argsort(late.detach(self)), 0) if not self.ndim else None
    if index is None:
        index = late.narrow(argsort(late.detach(self), dim), dim, k - 1, 1)
    return kthvalue.result_type(_picked(self, dim, index, keepdim))


def _rank_index(x: Any, dim: int, rank: Any) -> Any:
    """Index of the element of 0-based ``rank`` (a number or one per slice) along ``dim``."""
    order = argsort(x, dim)
    if isinstance(rank, int):
        return late.narrow(order, dim, rank, 1)
    return late.gather(order, dim, rank)


def _median_index(x: Any, dim: int, skip_nan: bool) -> Any:
    n = x.shape[dim]
    if not dtype_of(x).is_floating_point:
        return _rank_index(x, dim, (n - 1) // 2)
    nan = comparison.isnan(x)
    if skip_nan:
        count = sum(comparison.logical_not(nan), dim, True)
        rank = late.to_dtype(rounding.floor(mul(sub(count, 1), 0.5)), int64)
        return _rank_index(x, dim, comparison.where(comparison.lt(rank, 0), 0, rank))
    middle = _rank_index(x, dim, (n - 1) // 2)
    return comparison.where(any(nan, dim, True), argmax(nan, dim, True), middle)


@composite(**_SINGLE | {"namespace": (), "method": False})
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Lower medians along ``dim`` and their indices: ``median(self, dim, keepdim)``."""
    _single_shapes(self, dim, keepdim)
    x = late.detach(self)
    index = _median_index(x, dim, False) if x.ndim else late.zeros_like(x, dtype=int64)
    return median_dim.result_type(_picked(self, dim, index, keepdim))


@composite(**_SINGLE | {"namespace": (), "method": False})
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Lower medians of what is not NaN, and their indices: ``nanmedian(self, dim, keepdim)``."""
    _single_shapes(self, dim, keepdim)
    x = late.detach(self)
    index = _median_index(x, dim, True) if x.ndim else late.zeros_like(x, dtype=int64)
    return nanmedian_dim.result_type(_picked(self, dim, index, keepdim))


_FLAT_SAMPLES = {
    "samples": lambda make: (Sample(make(s)) for s in ((), (1,), (5,), (16,), (3, 5))),
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
}


def _lower_median(self: Any) -> Any:
    flat = np.sort(np.ravel(self))
    return np.array(np.nan) if np.isnan(flat[-1]) else flat[(flat.size - 1) // 2]


@composite(reference=_lower_median, **_FLAT_SAMPLES)
def median(self: Tensor) -> Tensor:
    """The median of all elements, the lower of the two middle ones; NaN if any is NaN.

    ``median(self, dim, keepdim=False)`` gives the named tuple (values, indices). Raises
    ``DimError`` for no elements in a dim; without one the result is NaN.
    """
    if self.numel() == 0:
        return filled(self, (), math.nan)
    return median_dim(late.reshape(self, (-1,)), 0)[0]


@median.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return median_dim(self, dim, keepdim)


@composite(**_FLAT_SAMPLES)
def nanmedian(self: Tensor) -> Tensor:
    """:func:`median` of the elements that are not NaN; NaN when there is none."""
    if self.numel() == 0:
        return filled(self, (), math.nan)
    return nanmedian_dim(late.reshape(self, (-1,)), 0)[0]


@nanmedian.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return nanmedian_dim(self, dim, keepdim)


@composite(**_SINGLE)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along ``dim`` (the smallest of equals) and its last index."""
    _single_shapes(self, dim, keepdim)
    x = late.detach(self)
    if not x.ndim:
        return mode.result_type(_picked(self, dim, late.zeros_like(x, dtype=int64), keepdim))
    rows = late.movedim(x, dim, -1)
    ordered, order = sort(rows)
    n = rows.shape[-1]
    # Length of the run that ends at each place: the distance to the run's first element.
    place = late.expand(late.arange(0, n, 1, dtype=int64, device=x.device), rows.shape)
    first = late.ones_like(late.narrow(place, -1, 0, 1))
    changed = comparison.ne(late.narrow(ordered, -1, 1, n - 1), late.narrow(ordered, -1, 0, n - 1))
    starts = late.cat([first, late.to_dtype(changed, int64)], -1)
    run = sub(place, late.cummax(mul(starts, place), -1)[0])
    # The sort is stable, so the end of the longest run holds the last index of the mode.
    index = late.gather(order, -1, argmax(run, -1, True))
    return mode.result_type(_picked(self, dim, late.movedim(index, -1, dim), keepdim))


# ---- quantiles --------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_samples(make: Any) -> Iterator[Sample]:
    for method in _METHODS:
        yield Sample(make((17,)), 0.3, interpolation=method)
    yield Sample(make((3, 5)), 0.5, 1)
    yield Sample(make((3, 5)), 0.9, 0, True)


_QUANTILE = {
    "samples": _quantile_samples,
    "dtypes": (float32, float64),
    "tolerance": conditioned,
    "smooth": False,
}


def _quantile_reference(
    self: Any, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear"
) -> Any:
    rows = np.sort(np.ravel(self) if dim is None else np.moveaxis(self, dim, -1))
    rank = q * (rows.shape[-1] - 1)
    low, high = math.floor(rank), math.ceil(rank)
    if interpolation == "nearest":
        low = high = round(rank)
    low, high = {"lower": (low, low), "higher": (high, high)}.get(interpolation, (low, high))
    a, b = rows[..., low], rows[..., high]
    weight = 0.5 if interpolation == "midpoint" else rank - low
    out = np.where(a == b, a, a + weight * (b - a))
    out = np.where(np.isnan(rows[..., -1]), np.nan, out)
    if not keepdim:
        return out
    return out.reshape([1] * np.ndim(self)) if dim is None else np.expand_dims(out, dim)


@composite(
    reference=_quantile_reference,
    **_QUANTILE,
)
def quantile(
    self: Tensor,
    q: Tensor | Scalar,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The ``q``-quantiles along ``dim`` (of all elements for None); NaN if any element is.

    Args:
        self: float32 or float64.
        q: a number in [0, 1], or a 1-d tensor of them, which becomes the first dim of the result.
        interpolation: between the two nearest ranks: "linear", "lower", "higher", "midpoint",
            or "nearest".
    """
    return _quantiles(self, q, dim, keepdim, interpolation, False)


@composite(**_QUANTILE)
def nanquantile(
    self: Tensor,
    q: Tensor | Scalar,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """:func:`quantile` of the elements that are not NaN."""
    return _quantiles(self, q, dim, keepdim, interpolation, True)


def _quantiles(x: Any, q: Any, dim: Any, keepdim: bool, method: str, skip_nan: bool) -> Any:
    require_one_of("interpolation", method, _METHODS)
    if dtype_of(x) not in (float32, float64):
        raise DTypeError(f"quantile needs float32 or float64, got {dtype_of(x)}")
    if not isinstance(q, Value):
        if not 0 <= q <= 1:
            raise ArgumentError(f"q={q} is not in [0, 1]")
        q = filled(x, (), q)
    shape = x.shape
    rows = late.reshape(x, (-1,)) if dim is None else late.movedim(x, dim, -1)
    if not x.ndim:
        rows = late.reshape(x, (1,))
    if rows.shape[-1] == 0:
        raise DimError("quantile of no elements")
    ordered = sort(rows)[0]
    nan = comparison.isnan(late.detach(ordered))
    last = sub(sum(comparison.logical_not(nan), -1, True), 1)
    last = comparison.where(comparison.lt(last, 0), 0, last)
    if not skip_nan:
        last = late.full_like(last, rows.shape[-1] - 1)
    rank = mul(late.reshape(q, (-1,)), late.to_dtype(last, dtype_of(x)))
    low, high = rounding.floor(rank), rounding.ceil(rank)
    if method == "nearest":
        low = high = rounding.round(rank)
    if method == "lower":
        high = low
    if method == "higher":
        low = high
    a = late.gather(ordered, -1, late.to_dtype(low, int64))
    b = late.gather(ordered, -1, late.to_dtype(high, int64))
    weight = 0.5 if method == "midpoint" else sub(rank, low)
    out = late.lerp(a, b, weight)
    if not skip_nan:
        out = comparison.where(any(nan, -1, True), math.nan, out)
    out = late.movedim(out, -1, 0)  # the quantiles come first
    if keepdim:
        kept = [1] * len(shape) if dim is None else list(shape)
        if dim is not None:
            kept[dim] = 1
        out = late.reshape(out, (out.shape[0], *kept))
    return out if q.ndim else late.squeeze(out, 0)
