"""sort, argsort and topk of short rows; NumPy's kernels serve long ones and other dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import INT64, POINTWISE, is_dense
from coredispatch_cpu_numba.entries import Loop

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
        launch(x, n, k, int(descending), values, indices, count, count, task, 0)
    else:
        _in_order(own, size, size // n, x, n, k, int(descending), values, indices, weight=n)
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


KERNELS: dict[str, Callable[..., Any]] = {"argsort": argsort, "sort": sort, "topk": topk}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, 1)
