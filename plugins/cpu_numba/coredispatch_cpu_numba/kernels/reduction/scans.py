"""cumsum and cumprod along any dimension of a contiguous array, carried in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import CHAINS, along, tiles

__all__ = ["KERNELS", "LEAST", "WHEN"]

_LEAST = 64
_SPLIT = 32768
_LONG = 4096  # a row from which it pays to add up its pieces first


def _scan(name: str) -> Callable[..., np.ndarray]:
    rows = Loop("reduction.scans", f"{name}_rows", _SPLIT)
    pieces = Loop("reduction.scans", f"{name}_pieces", _SPLIT)
    columns = Loop("reduction.scans", f"{name}_columns", _SPLIT)

    def kernel(self: np.ndarray, dim: int, dtype: Any) -> np.ndarray:
        outer, n, inner = along(self.shape, dim) or (0, 0, 0)
        size, own = self.size, self.dtype
        out = np.empty(self.shape, own)
        if inner > 1:
            tile, count = tiles(outer, inner, size >= _SPLIT)
            columns(own, size, outer * count, self, n, inner, tile, count, out, weight=tile * n)
        elif outer < CHAINS and n >= _LONG:
            pieces(own, size, outer, self, n, out, weight=n)
        else:
            groups = (outer + CHAINS - 1) // CHAINS
            rows(own, size, groups, self, n, out, weight=n * CHAINS)
        return out

    kernel.__name__ = name
    return kernel


def _accepts(self: Any, dim: int, dtype: Any = None) -> bool:
    return dtype is None and is_dense(self, _LEAST) and along(self.shape, dim) is not None


KERNELS: dict[str, Callable[..., Any]] = {name: _scan(name) for name in ("cumsum", "cumprod")}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
