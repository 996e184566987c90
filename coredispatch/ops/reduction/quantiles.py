"""Medians, quantiles and modes: what rests on order statistics.

NaN counts as larger than every number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, rounding
from coredispatch.ops.elementwise.arithmetic import mul, sub
from coredispatch.ops.reduction.extrema import argmax, attained
from coredispatch.ops.reduction.sorting import SINGLE, argsort, picked, single_shapes, sort
from coredispatch.ops.reduction.sums import any, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import filled
from coredispatch.ops.support.rules import (
    conditioned,
    exact,
    require_one_of,
)
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Value, composite
from coredispatch.registry.model.dtypes import float32, float64, int64
from coredispatch.registry.model.errors import ArgumentError, DimError, DTypeError
from coredispatch.registry.model.sizes import is_int
from coredispatch.registry.model.value import dtype_of


def _rank_index(x: Any, dim: int, rank: Any) -> Any:
    """Index of the element of 0-based ``rank`` (a number or one per slice) along ``dim``."""
    order = argsort(x, dim)
    if is_int(rank):
        return lazy.narrow(order, dim, rank, 1)
    return lazy.gather(order, dim, rank)


def _median_index(x: Any, dim: int, skip_nan: bool) -> Any:
    n = x.shape[dim]
    if not dtype_of(x).is_floating_point:
        return _rank_index(x, dim, (n - 1) // 2)
    nan = comparison.isnan(x)
    if skip_nan:
        count = sum(comparison.logical_not(nan), dim, True)
        rank = lazy.to_dtype(rounding.floor(mul(sub(count, 1), 0.5)), int64)
        return _rank_index(x, dim, comparison.where(comparison.lt(rank, 0), 0, rank))
    middle = _rank_index(x, dim, (n - 1) // 2)
    return comparison.where(any(nan, dim, True), argmax(nan, dim, True), middle)


@composite(takes="real", **SINGLE | {"namespace": (), "method": False})
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Lower medians along ``dim`` and their indices: ``median(self, dim, keepdim)``."""
    single_shapes(self, dim, keepdim)
    x = lazy.detach(self)
    index = _median_index(x, dim, False) if x.ndim else lazy.zeros_like(x, dtype=int64)
    return median_dim.result_type(picked(self, dim, index, keepdim))


@composite(takes="real", **SINGLE | {"namespace": (), "method": False})
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Lower medians of what is not NaN, and their indices: ``nanmedian(self, dim, keepdim)``."""
    single_shapes(self, dim, keepdim)
    x = lazy.detach(self)
    index = _median_index(x, dim, True) if x.ndim else lazy.zeros_like(x, dtype=int64)
    return nanmedian_dim.result_type(picked(self, dim, index, keepdim))


_FLAT_SAMPLES = {
    "samples": lambda make: (Sample(make(s)) for s in ((), (1,), (5,), (16,), (3, 5))),
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
}


def _lower_median(self: Any) -> Any:
    flat = np.sort(np.ravel(self))
    return np.array(np.nan) if np.isnan(flat[-1]) else flat[(flat.size - 1) // 2]


def _of_nothing(self: Any) -> Any:
    """NaN; as an integer PyTorch's: the least int32 or int64, 0 for the other dtypes."""
    if self.dtype.is_floating_point:
        return filled(self, (), math.nan)
    least = {"int32": -(2**31), "int64": -(2**63)}
    return filled(self, (), least.get(self.dtype.name, 0))


@composite(takes="real", reference=_lower_median, **_FLAT_SAMPLES)
def median(self: Tensor) -> Tensor:
    """The median of all elements, the lower of the two middle ones; NaN if any is NaN.

    ``median(self, dim, keepdim=False)`` gives the named tuple (values, indices). Raises
    ``DimError`` for no elements in a dim; without one the result is NaN, or as PyTorch's integers.
    Equal elements share the gradient evenly; along a dim it goes to the one of the index.
    """
    if self.numel() == 0:
        return _of_nothing(self)
    return median_dim(lazy.reshape(self, (-1,)), 0)[0]


@median.vjp
def _(grad, out, self):
    return attained(grad, out, self)


median.edge("ties share", [1.0, 2.0, 2.0], gradient=[0.0, 0.5, 0.5])
median.edge("NaN shares", [1.0, math.nan, math.nan], gradient=[0.0, 0.5, 0.5])


@median.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return median_dim(self, dim, keepdim)


@composite(takes="real", **_FLAT_SAMPLES)
def nanmedian(self: Tensor) -> Tensor:
    """:func:`median` of the elements that are not NaN; NaN when there is none."""
    if self.numel() == 0:
        return _of_nothing(self)
    return nanmedian_dim(lazy.reshape(self, (-1,)), 0)[0]


@nanmedian.vjp
def _(grad, out, self):
    return attained(grad, out, self, nan_wins=False)


nanmedian.edge("ties share", [1.0, 2.0, math.nan, 2.0], gradient=[0.0, 0.5, 0.0, 0.5])


@nanmedian.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return nanmedian_dim(self, dim, keepdim)


@composite(takes="real", **SINGLE)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along ``dim`` (the smallest of equals) and its last index."""
    single_shapes(self, dim, keepdim)
    x = lazy.detach(self)
    if not x.ndim:
        return mode.result_type(picked(self, dim, lazy.zeros_like(x, dtype=int64), keepdim))
    rows = lazy.movedim(x, dim, -1)
    ordered, order = sort(rows)
    n = rows.shape[-1]
    # Length of the run that ends at each place: the distance to the run's first element.
    place = lazy.expand(lazy.arange(0, n, 1, dtype=int64, device=x.device), rows.shape)
    first = lazy.ones_like(lazy.narrow(place, -1, 0, 1))
    changed = comparison.ne(lazy.narrow(ordered, -1, 1, n - 1), lazy.narrow(ordered, -1, 0, n - 1))
    starts = lazy.cat([first, lazy.to_dtype(changed, int64)], -1)
    run = sub(place, lazy.cummax(mul(starts, place), -1)[0])
    # The sort is stable, so the end of the longest run holds the last index of the mode.
    index = lazy.gather(order, -1, argmax(run, -1, True))
    return mode.result_type(picked(self, dim, lazy.movedim(index, -1, dim), keepdim))


# ---- quantiles --------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_samples(make: Any) -> Iterator[Sample]:
    # The rank is computed in the dtype of the elements: these are exact in each.
    for method in _METHODS:
        yield Sample(make((17,)), 19 / 64, interpolation=method)
    yield Sample(make((17,)), 5 / 32, interpolation="nearest")  # the even one of two as near
    yield Sample(make((3, 5)), 0.5, 1)
    yield Sample(make((3, 5)), 29 / 32, 0, True)


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
    cast="float32",
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


quantile.edge("ties share as places do", [1.0, 2.0, 2.0, 4.0], 0.5, gradient=[0.0, 0.5, 0.5, 0.0])


@composite(cast="float32", **_QUANTILE)
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
        raise DTypeError(
            f"quantile needs float32 or float64, got {dtype_of(x)}", fix="convert with x.float()"
        )
    if not isinstance(q, Value):
        if not 0 <= q <= 1:
            raise ArgumentError(f"q={q} is not in [0, 1]", fix="use q from 0 to 1")
        q = filled(x, (), q)
    shape = x.shape
    rows = lazy.reshape(x, (-1,)) if dim is None else lazy.movedim(x, dim, -1)
    if not x.ndim:
        rows = lazy.reshape(x, (1,))
    if rows.shape[-1] == 0:
        raise DimError(
            "a quantile needs elements, and there are none", fix="give a tensor with elements"
        )
    ordered = sort(rows)[0]
    nan = comparison.isnan(lazy.detach(ordered))
    last = sub(sum(comparison.logical_not(nan), -1, True), 1)
    last = comparison.where(comparison.lt(last, 0), 0, last)
    if not skip_nan:
        last = lazy.full_like(last, rows.shape[-1] - 1)
    rank = mul(lazy.reshape(q, (-1,)), lazy.to_dtype(last, dtype_of(x)))
    low, high = rounding.floor(rank), rounding.ceil(rank)
    if method == "nearest":
        low = high = rounding.round(rank)
    if method == "lower":
        high = low
    if method == "higher":
        low = high
    a = lazy.gather(ordered, -1, lazy.to_dtype(low, int64))
    b = lazy.gather(ordered, -1, lazy.to_dtype(high, int64))
    if method in ("linear", "midpoint"):
        mixed = lazy.lerp(a, b, 0.5 if method == "midpoint" else sub(rank, low))
        # Between equal infinities, whose difference is NaN, lies that infinity.
        stuck = comparison.logical_and(comparison.isinf(a), comparison.eq(a, b))
        out = comparison.where(stuck, a, mixed)
    else:
        out = a
    if not skip_nan:
        out = comparison.where(any(nan, -1, True), math.nan, out)
    out = lazy.movedim(out, -1, 0)  # the quantiles come first
    if keepdim:
        kept = [1] * len(shape) if dim is None else list(shape)
        if dim is not None and shape:
            kept[dim] = 1
        out = lazy.reshape(out, (out.shape[0], *kept))
    return out if q.ndim else lazy.squeeze(out, 0)
