"""cumsum and cumprod, carried in float64, logcumsumexp, running extremes along any dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import CHAINS, along, tiles

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 32768
_LOG_SPLIT = 8192
# Tiles of columns share the cache lines at their borders, and threads that write to them wait for
# each other in every row. From here on memory is slower than that.
_MEMORY = 1 << 21
_LONG = 4096  # a row from which it pays to add up its pieces first


def _scan(name: str) -> Callable[..., np.ndarray]:
    rows = Loop("reduction.scans", f"{name}_rows", _SPLIT)
    pieces = Loop("reduction.scans", f"{name}_pieces", _SPLIT)
    columns = Loop("reduction.scans", f"{name}_columns", _SPLIT)

    few_rows, few_columns = rows.compiled, columns.compiled

    def kernel(self: np.ndarray, dim: int, dtype: Any) -> Any:
        if dtype is not None or not is_dense(self, 1):
            return NotImplemented
        shape = self.shape
        spans = along(shape, dim)
        if spans is None:
            return NotImplemented
        outer, n, inner = spans
        size, own = self.size, self.dtype
        out = np.empty(shape, own)
        if size < _LONG:  # Loop.__call__ written out
            if inner > 1:
                launch, task, _ = few_columns[own]
                launch(self, n, inner, inner, 1, out, outer, outer, task, 0)
            else:
                groups = (outer + CHAINS - 1) // CHAINS
                launch, task, _ = few_rows[own]
                launch(self, n, out, groups, groups, task, 0)
        elif inner > 1:
            tile, count = tiles(outer, inner, thread_count.wanted if size >= _MEMORY else 1)
            columns(own, size, outer * count, self, n, inner, tile, count, out, weight=tile * n)
        elif outer < CHAINS and n >= _LONG:
            pieces(own, size, outer, self, n, out, weight=n)
        else:
            groups = (outer + CHAINS - 1) // CHAINS
            rows(own, size, groups, self, n, out, weight=n * CHAINS)
        return out

    kernel.__name__ = name
    return kernel


_log_rows = Loop("reduction.log_sums", "rows", _LOG_SPLIT)
_log_columns = Loop("reduction.log_sums", "columns", _LOG_SPLIT)


def _spans(self: np.ndarray, dim: int) -> tuple[int, int, int] | None:
    """The array as outer, scanned and inner elements; None for what the loops do not take."""
    return along(self.shape, dim) if self.ndim and is_dense(self, 1) else None


def logcumsumexp(self: np.ndarray, dim: int) -> Any:
    """Running logarithms of sums of exponentials."""
    spans = _spans(self, dim)
    if spans is None:
        return NotImplemented
    outer, n, inner = spans
    own, size, out = self.dtype, self.size, np.empty(self.shape, self.dtype)
    if inner > 1:
        tile, count = tiles(outer, inner, thread_count.wanted if size >= _MEMORY else 1)
        arguments = (self, n, inner, tile, count, out)
        _log_columns(own, size, outer * count, *arguments, weight=tile * n)
    else:
        _log_rows(own, size, outer, self, n, out, weight=n)
    return out


_running = Loop("reduction.scans", "running", _SPLIT)


def _extreme(name: str, upward: int) -> Callable[..., Any]:
    def kernel(self: np.ndarray, dim: int) -> Any:
        spans = _spans(self, dim)
        if spans is None:
            return NotImplemented
        outer, n, inner = spans
        out, places = np.empty(self.shape, self.dtype), np.empty(self.shape, INT64)
        arguments = (self, n, inner, upward, out, places)
        _running(self.dtype, self.size, outer, *arguments, weight=n * inner)
        return out, places

    kernel.__name__ = name
    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _scan(name) for name in ("cumsum", "cumprod")},
    "cummax": _extreme("cummax", 1),
    "cummin": _extreme("cummin", 0),
    "logcumsumexp": logcumsumexp,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
