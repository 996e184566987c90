"""sort, argsort and topk of short rows; kthvalue and median of few elements along any dimension.

NumPy's kernels serve what is longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, INT64, POINTWISE, is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import reduced

__all__ = ["KERNELS", "LEAST"]

#: elements of a row, by the size of one: it takes as many comparisons as the square of that. The
#: loop has room for 256.
_LONGEST = {2: 96, 4: 96, 8: 256}
_FEW = 4096  # elements up to which the calls of a search for one maximum after the other cost more
_SPLIT = 4096
_in_order = Loop("reduction.sorting", "rows", _SPLIT)
_few_in_order = _in_order.compiled


def _first(x: np.ndarray, k: int, dim: int, descending: bool) -> Any:
    """The first ``k`` of each row in order, and where they were."""
    shape = x.shape
    if not shape or (dim != -1 and dim != len(shape) - 1) or not is_dense(x, 1, POINTWISE):
        return NotImplemented
    n = shape[-1]
    if n > _LONGEST[x.itemsize] or not 0 < k <= n:
        return NotImplemented
    own, size = x.dtype, x.size
    shape = (*shape[:-1], k)
    values, indices = np.empty(shape, own), np.empty(shape, INT64)
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _few_in_order[own]
        count = size // n
        launch(x, n, 0, k, int(descending), values, indices, count, count, task, 0)
    else:
        _in_order(own, size, size // n, x, n, 0, k, int(descending), values, indices, weight=n)
    return values, indices


def sort(self: np.ndarray, dim: int, descending: bool, stable: bool) -> Any:
    """Rows in order, and where their elements were."""
    return _first(self, self.shape[-1] if self.ndim else 0, dim, descending)


def argsort(self: np.ndarray, dim: int, descending: bool, stable: bool) -> Any:
    """Where the elements of rows in order were."""
    found = sort(self, dim, descending, stable)
    return found if found is NotImplemented else found[1]


def topk(self: np.ndarray, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The ``k`` largest or smallest elements of rows in order, and where they were."""
    if self.size > _FEW and self.shape[-1] >= 16 * k:
        return NotImplemented  # NumPy's takes one maximum after the other
    return _first(self, k, dim, largest)


def kthvalue(self: np.ndarray, k: int, dim: int, keepdim: bool) -> Any:
    """The ``k``-th smallest elements along ``dim``, and where they were."""
    shape, own = self.shape, self.dtype
    ndim = len(shape)
    if not -ndim <= dim < ndim or not is_dense(self, 1, POINTWISE):
        return NotImplemented
    n = shape[dim]
    if n > _LONGEST[own.itemsize] or not 0 < k <= n:
        return NotImplemented
    rows = self
    if dim != -1 and dim != ndim - 1:
        order = [d for d in range(ndim) if d != dim % ndim]
        rows = np.ascontiguousarray(self.transpose(*order, dim))
    count, shape = self.size // n, reduced(shape, dim, keepdim)
    values, indices = np.empty(shape, own), np.empty(shape, INT64)
    _in_order(own, self.size, count, rows, n, k - 1, 1, 0, values, indices, weight=n)
    return values, indices


def median_dim(self: np.ndarray, dim: int, keepdim: bool) -> Any:
    """The lower medians along ``dim`` where there is no NaN, and where they were."""
    if not -self.ndim <= dim < self.ndim or self.dtype not in FLOATS:
        return NotImplemented
    if np.isnan(np.vdot(self, self)):
        return NotImplemented
    return kthvalue(self, (self.shape[dim] + 1) // 2, dim, keepdim)


KERNELS: dict[str, Callable[..., Any]] = {
    "argsort": argsort,
    "kthvalue": kthvalue,
    "median_dim": median_dim,
    "sort": sort,
    "topk": topk,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, 1)
