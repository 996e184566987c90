"""The regularized incomplete gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from coredispatch.plugin import constants
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_FLOAT64 = np.dtype(np.float64)
_loop = Loop("elementwise.incomplete_gamma", "igamma", 1024)


@cache
def _table() -> np.ndarray:
    return np.ravel(constants.TEMME)


def _kernel(upper: int) -> Callable[..., np.ndarray]:
    def regularized(self: Any, other: Any) -> np.ndarray:
        # Computed in float64 and rounded once, whatever the dtype.
        own = getattr(self, "dtype", None)
        if own is None or own != getattr(other, "dtype", None):
            own = np.result_type(self, other)
        a, x = np.asarray(self, _FLOAT64), np.asarray(other, _FLOAT64)
        if a.shape != x.shape:
            a, x = np.broadcast_arrays(a, x)
        out = np.empty(a.shape, _FLOAT64)
        if out.size:
            given = np.ascontiguousarray(a), np.ascontiguousarray(x)
            _loop(_FLOAT64, out.size, out.size, *given, _table(), upper, own.itemsize < 8, out)
        return out.astype(own, copy=False)

    return regularized


KERNELS: dict[str, Callable[..., Any]] = {"igamma": _kernel(0), "igammac": _kernel(1)}
