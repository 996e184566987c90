"""Sorting and what rests on order: top elements, medians, quantiles, modes.

NaN counts as larger than every number. All sorts are stable, and so are the indices of equal
elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import filled
from coredispatch.ops.support.rules import (
    exact,
    indices,
    normalize_dim,
    same_shape,
    values_and_indices,
)
from coredispatch.ops.support.samples import Sample, dim_reductions, scans
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import DimError


def scattered(grad: Any, shape: Any, dim: int, index: Any) -> Any:
    """Zeros of ``shape`` with ``grad`` at ``index`` along ``dim``: the gradient of a selection."""
    zeros = filled(grad, shape, 0)
    if not shape:
        return lazy.reshape(grad, ())
    return lazy.scatter(zeros, dim, index, grad)


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
    takes="real",
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
def _(grad0, out1, self_shape, dim):
    return scattered(grad0, self_shape, dim, out1)


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
    takes="real",
    differentiable=False,
    tolerance=exact,
)
def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """int64 indices that sort ``self`` along ``dim``, stable."""
    return sort(self, dim, descending, stable)[1]


@composite(
    reference=lambda self: np.sort(self, axis=0),
    samples=lambda make: (Sample(make((5,))), Sample(make((3, 5)))),
    takes="real",
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
    takes="real",
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
        values, index = lazy.narrow(values, dim, 0, k), lazy.narrow(index, dim, 0, k)
    return topk.result_type((values, index))


@topk.vjp
def _(grad0, out1, self_shape, dim):
    return scattered(grad0, self_shape, dim, out1)


def single_shapes(self: Any, dim: int = -1, keepdim: bool = False, *_: Any) -> Any:
    dim = normalize_dim(dim, len(self.shape))
    if self.shape and self.shape[dim] == 0:
        raise DimError(
            f"dimension {dim} of shape {tuple(self.shape)} is empty",
            fix="reduce over a dimension that has elements",
        )
    shape = list(self.shape)
    if shape:
        shape[dim : dim + 1] = [1] if keepdim else []
    return [tuple(shape), tuple(shape)]


SINGLE = {
    "out": single_shapes,
    "dtype": values_and_indices,
    "samples": dim_reductions,
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
    "fields": ("values", "indices"),
}


def picked(x: Any, dim: int, index: Any, keepdim: bool) -> Any:
    """Elements at ``index``, which has the dimension with size 1, and the indices."""
    if not x.ndim:
        return lazy.clone(x), lazy.reshape(index, ())
    values = lazy.gather(x, dim, index)
    return (values, index) if keepdim else (lazy.squeeze(values, dim), lazy.squeeze(index, dim))


def _kth_shapes(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return single_shapes(self, dim, keepdim)


@composite(
    takes="real",
    **SINGLE
    | {
        "out": _kth_shapes,
        "samples": lambda make: (
            Sample(make((5,)), 2),
            Sample(make((4, 4)), 4, 0),
            Sample(make((2, 3, 5)), 1, -2, True),
        ),
    },
)
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The ``k``-th smallest element along ``dim`` (counted from 1) and its index."""
    n = self.shape[normalize_dim(dim, self.ndim)] if self.ndim else 1
    if not 1 <= k <= n:
        raise DimError(f"k={k} is out of range for a dimension of size {n}", fix=f"use 1 to {n}")
    index = lazy.unsqueeze(argsort(lazy.detach(self)), 0) if not self.ndim else None
    if index is None:
        # A copy: the derivative and the result keep it, not the whole order.
        index = lazy.clone(lazy.narrow(argsort(lazy.detach(self), dim), dim, k - 1, 1))
    return kthvalue.result_type(picked(self, dim, index, keepdim))
