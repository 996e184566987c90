"""softmax, log_softmax and their gradients, along any dimension of a contiguous array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import COLUMNS, along

__all__ = ["KERNELS", "LEAST", "WHEN"]

_LEAST = 256
_SPLIT = 24576
_FEW = 4096  # elements whose calls are written out


def _forward(name: str) -> Callable[..., Any]:
    rows = Loop("activation.softmax", f"{name}_rows", _SPLIT)
    columns = Loop("activation.softmax", f"{name}_columns", _SPLIT)

    few_rows, few_columns = rows.compiled, columns.compiled

    def kernel(self: np.ndarray, dim: int, dtype: Any = None) -> Any:
        if dtype is not None or not is_dense(self, 1):
            return NotImplemented
        shape = self.shape
        spans = along(shape, dim)
        if spans is None:
            return NotImplemented
        outer, n, inner = spans
        size, own = self.size, self.dtype
        out = np.empty(shape, own)
        if size < _FEW and inner <= COLUMNS:  # Loop.__call__ written out
            if inner == 1:
                launch, task, _ = few_rows[own]
                launch(self, n, out, outer, outer, task, 0)
            else:
                launch, task, _ = few_columns[own]
                launch(self, n, inner, 1, out, outer, outer, task, 0)
        elif inner == 1:
            rows(own, size, outer, self, n, out, weight=n)
        else:
            tiles = (inner + COLUMNS - 1) // COLUMNS
            columns(own, size, outer * tiles, self, n, inner, tiles, out, weight=n * COLUMNS)
        return out

    kernel.__name__ = name
    return kernel


def _backward(name: str) -> Callable[..., Any]:
    rows = Loop("activation.softmax", f"{name}_rows", _SPLIT)
    columns = Loop("activation.softmax", f"{name}_columns", _SPLIT)

    def kernel(grad: np.ndarray, output: np.ndarray, dim: int) -> np.ndarray:
        outer, n, inner = along(grad.shape, dim) or (0, 0, 0)
        size, own = grad.size, grad.dtype
        out = np.empty(grad.shape, own)
        if inner == 1:
            rows(own, size, outer, grad, output, n, out, weight=n)
        else:
            tiles = (inner + COLUMNS - 1) // COLUMNS
            arguments = (grad, output, n, inner, tiles, out)
            columns(own, size, outer * tiles, *arguments, weight=n * COLUMNS)
        return out

    kernel.__name__ = name
    return kernel


def _accepts_pair(grad: Any, output: Any, dim: int) -> bool:
    return is_dense(grad, _LEAST) and is_like(output, grad) and along(grad.shape, dim) is not None


KERNELS = {
    "softmax": _forward("softmax"),
    "log_softmax": _forward("log_softmax"),
    "softmax_backward": _backward("softmax_backward"),
    "log_softmax_backward": _backward("log_softmax_backward"),
}
WHEN: dict[str, Callable[..., bool]] = {
    "softmax_backward": _accepts_pair,
    "log_softmax_backward": _accepts_pair,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
