"""Rows of (sparse_csr, cuda): products by cuSPARSE, through CuPy.

Without them a product is made of core operators, which gather a row of the dense factor for each
stored element. cuSPARSE takes float32, float64 and complex numbers, with int32 indices; the rest is
left to such products.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coredispatch.plugin import from_raw, to_raw
from coredispatch_sparse import anywhere
from coredispatch_sparse.csr import CSR

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

__all__ = ["CUDA"]

_TYPES = ("float32", "float64", "complex64", "complex128")
_LARGEST = 2**31 - 1


def _product(sparse: CSR, dense: Any, transposed: bool) -> Any:
    """``sparse @ dense`` or ``sparse.T @ dense``, or NotImplemented."""
    values, count = sparse.values, sparse.shape[transposed]
    small = max(sparse.shape) <= _LARGEST and sparse.nnz <= _LARGEST
    inner = sparse.shape[not transposed]
    if values.dtype.name not in _TYPES or dense.dtype != values.dtype or not small:
        return NotImplemented
    if dense.ndim not in (1, 2) or dense.shape[0] != inner:
        return NotImplemented
    if not sparse.nnz or not dense.size:
        return import_module("cupy").zeros((count, *dense.shape[1:]), values.dtype)
    parts = values, sparse.col_indices, sparse.crow_indices
    matrix = import_module("cupyx.scipy.sparse").csr_matrix(parts, shape=sparse.shape)
    dense = dense if dense.flags.c_contiguous else dense.copy()
    return (matrix.T if transposed else matrix) @ dense


def matmul(self: Any, other: Any) -> Tensor:
    """sparse @ strided and strided @ sparse, vectors and matrices."""
    left, right = to_raw(self), to_raw(other)
    found = NotImplemented
    if isinstance(left, CSR) and not isinstance(right, CSR):
        found = _product(left, right, False)
    elif isinstance(right, CSR) and not isinstance(left, CSR) and left.ndim in (1, 2):
        found = _product(right, left.T, True)
        found = found if found is NotImplemented else found.T
    if found is NotImplemented:
        return anywhere.matmul(self, other)
    return from_raw(found, keys_like=other if isinstance(left, CSR) else self)


#: rows of sparse_csr on cuda
CUDA: dict[str, Callable[..., Any]] = {"matmul": matmul, "csr_matmul": matmul}
