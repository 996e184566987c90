"""Compiled loops for the two products, used where Numba is installed.

They compute what :mod:`coredispatch_sparse.kernels` computes, for float32 and float64; sums are
taken in another order. Each loop runs through a row's elements four at a time, so that the row
of the result is read and written once per four products; measured 1.2 to 2 times faster than
one at a time, and on a par with PyTorch's kernels.
"""

from __future__ import annotations

import numba
import numpy as np

from coredispatch_sparse.csr import CSR, Pattern

__all__ = ["matmul", "sampled_product"]

# NaN and infinity keep their meaning; only contraction to fused multiply-add is allowed ...
_EXACT = {"contract", "nsz"}
# ... and in a sum along contiguous memory, which would not vectorise otherwise, any order.
_REORDER = {"contract", "nsz", "reassoc"}


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_EXACT)
def _rows_times_matrix(crow, col, values, b, out):
    n = b.shape[1]
    for i in range(crow.size - 1):
        row = out[i]
        for j in range(n):
            row[j] = 0
        k, end = crow[i], crow[i + 1]
        while k + 3 < end:
            v0, v1, v2, v3 = values[k], values[k + 1], values[k + 2], values[k + 3]
            b0, b1, b2, b3 = b[col[k]], b[col[k + 1]], b[col[k + 2]], b[col[k + 3]]
            for j in range(n):
                row[j] += v0 * b0[j] + v1 * b1[j] + v2 * b2[j] + v3 * b3[j]
            k += 4
        while k < end:
            v0, b0 = values[k], b[col[k]]
            for j in range(n):
                row[j] += v0 * b0[j]
            k += 1


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER)
def _rows_times_vector(crow, col, values, b, out):
    for i in range(crow.size - 1):
        total = values.dtype.type(0)
        for k in range(crow[i], crow[i + 1]):
            total += values[k] * b[col[k]]
        out[i] = total


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER)
def _sampled(crow, col, x, y, out):
    n = x.shape[1]
    for i in range(crow.size - 1):
        row = x[i]
        for k in range(crow[i], crow[i + 1]):
            other = y[col[k]]
            total = x.dtype.type(0)
            for j in range(n):
                total += row[j] * other[j]
            out[k] = total


def matmul(a: CSR, b: np.ndarray) -> np.ndarray:
    """``a @ b`` for a vector or matrix of the dtype of ``a``, float32 or float64."""
    b = np.ascontiguousarray(b)
    out = np.empty((a.shape[0], *b.shape[1:]), dtype=b.dtype)
    values = np.ascontiguousarray(a.values)
    if b.ndim == 1:
        _rows_times_vector(a.crow_indices, a.col_indices, values, b, out)
    elif b.shape[1] == 1:
        _rows_times_vector(a.crow_indices, a.col_indices, values, b[:, 0], out[:, 0])
    else:
        _rows_times_matrix(a.crow_indices, a.col_indices, values, b, out)
    return out


def sampled_product(pattern: Pattern, x: np.ndarray, y: np.ndarray) -> CSR:
    """``x @ y.T`` at the places of ``pattern``; 2-d factors, float32 or float64."""
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    values = np.empty(pattern.nnz, dtype=x.dtype)
    _sampled(pattern.crow_indices, pattern.col_indices, x, y, values)
    return CSR.of(pattern, values)
