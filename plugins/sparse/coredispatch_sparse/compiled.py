"""The kernel pack of compiled products, and when its kernels serve.

The pack lies above the NumPy kernels of the layout and rejects what it does not take; Numba is
imported on the first call it serves, not when the plugin is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from coredispatch_sparse import kernels
from coredispatch_sparse.csr import CSR

__all__ = ["COMPILED", "WHEN", "available"]

_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
# Multiplications from which a compiled kernel pays for its call and for importing Numba.
_WORTHWHILE = 1 << 14


def available() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def takes_matmul(self: Any, other: Any) -> bool:
    """A product of one sparse and one strided factor of the same type that fit together."""
    if isinstance(other, CSR):
        if not isinstance(self, np.ndarray) or self.ndim == 0:
            return False
        sparse, dense, inner = other, self, self.shape[-1] == other.shape[0]
    else:
        if not isinstance(self, CSR) or not isinstance(other, np.ndarray) or other.ndim == 0:
            return False
        sparse, dense, inner = self, other, self.shape[1] == other.shape[0]
    return (
        inner
        and dense.ndim <= 2
        and sparse.dtype == dense.dtype
        and dense.dtype in _TYPES
        and sparse.nnz * (dense.size // max(1, sparse.shape[sparse is self])) >= _WORTHWHILE
    )


def matmul(self: Any, other: Any) -> np.ndarray:
    """sparse @ strided or strided @ sparse."""
    from coredispatch_sparse import numba_kernels

    if isinstance(other, CSR):
        return numba_kernels.matmul(kernels.transpose(other), self.T).T
    return numba_kernels.matmul(self, other)


def takes_sampled_matmul(self: Any, x: Any, y: Any) -> bool:
    """A sparse pattern and two strided matrices of one type whose product has its shape."""
    return (
        isinstance(self, CSR)
        and isinstance(x, np.ndarray)
        and isinstance(y, np.ndarray)
        and x.ndim == y.ndim == 2
        and (x.shape[0], y.shape[1]) == self.shape
        and x.shape[1] == y.shape[0]
        and x.dtype == y.dtype
        and x.dtype in _TYPES
        and self.nnz * x.shape[1] >= _WORTHWHILE
    )


def sampled_matmul(self: CSR, x: np.ndarray, y: np.ndarray) -> CSR:
    """``x @ y`` at the places of ``self``."""
    from coredispatch_sparse import numba_kernels

    return numba_kernels.sampled_product(self.pattern, x, y.T)


COMPILED: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "csr_matmul": matmul,
    "csr_sampled_matmul": sampled_matmul,
}
WHEN: dict[str, Callable[..., bool]] = {
    "matmul": takes_matmul,
    "csr_matmul": takes_matmul,
    "csr_sampled_matmul": takes_sampled_matmul,
}
