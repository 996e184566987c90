"""Norms of order 1, 2 and infinity along neighbouring dimensions, and of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, sqrt
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import along, reduced, tiles

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 65536
_BLOCK = 16384  # elements whose squares are summed in one piece
_ORDERS = {2.0: 2, 1.0: 1, inf: 0}
_rows = Loop("reduction.norms", "norm_rows", _SPLIT)
_columns = Loop("reduction.norms", "norm_columns", _SPLIT)
_squares = Loop("reduction.norms", "squares", _SPLIT)
_few_rows, _few_columns = _rows.compiled, _columns.compiled


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """``(outer, n, inner)`` and the result's shape; None where ``dim`` are no neighbours."""
    spans = along(shape, dim)
    return spans and (*spans, reduced(shape, dim, keepdim))


def power_norm(self: np.ndarray, p: float, dim: Any, keepdim: bool) -> Any:
    """The norm of order ``p``."""
    order = _ORDERS.get(p)
    if order is None or not is_dense(self, 1):
        return NotImplemented
    plan = _plan(self.shape, dim, keepdim)
    if plan is None:
        return NotImplemented
    outer, n, inner, shape = plan
    if n == 1:
        order = 0  # one number is its own norm, and its square may be out of range
    size, own = self.size, self.dtype
    out = np.empty(shape, own)
    if inner > 1:
        tile, count = tiles(outer, inner, thread_count.wanted if size >= _SPLIT else 1)
        arguments = (self, n, inner, tile, count, order, out)
        if size < _SPLIT:  # Loop.__call__ written out
            launch, task, _ = _few_columns[own]
            launch(*arguments, outer * count, outer * count, task, 0)
        else:
            _columns(own, size, outer * count, *arguments, weight=tile * n)
    elif outer == 1 and order == 2 and size >= _SPLIT:  # pieces for several threads
        blocks = -(-size // _BLOCK)
        sums = np.empty(blocks)
        _squares(own, size, blocks, self, sums, weight=_BLOCK)
        out[...] = sqrt(sum(sums.tolist()))
    elif size < _SPLIT:
        launch, task, _ = _few_rows[own]
        launch(self, n, order, out, outer, outer, task, 0)
    else:
        _rows(own, size, outer, self, n, order, out, weight=n)
    return out


def vector_norm(self: np.ndarray, ord: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Any:
    """:func:`power_norm` without the checks of what orders and dtypes there are."""
    if dtype is not None or type(ord) not in (int, float):
        return NotImplemented
    return power_norm(self, ord, dim, keepdim)


def norm(self: np.ndarray, p: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Any:
    """The same; ``"fro"`` is 2."""
    return vector_norm(self, 2 if p is None or p == "fro" else p, dim, keepdim, dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "linalg_vector_norm": vector_norm,
    "norm": norm,
    "power_norm": power_norm,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
