"""NumPy kernels of products of matrices and vectors, and of matrix decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.numpy import lu
from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.errors import LinAlgError, ShapeError

__all__ = ["KERNELS"]


def product(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` over matrices, with half precision added up in float32.

    ml_dtypes and float16 have no BLAS; NumPy would round after every addition.
    """

    def kernel(a: np.ndarray, b: np.ndarray) -> Any:
        dtype = a.dtype
        if dtype.itemsize == 2 and dtype.kind not in "iu":
            return function(a.astype(np.float32), b.astype(np.float32)).astype(dtype)
        return function(a, b)

    return kernel


def _product(a: np.ndarray, b: np.ndarray) -> Any:
    # Measured on 8 x 8 matrices: dot 0.4 us, np.matmul 0.9 us. But dot scales by a single element,
    # and BLAS scales by 0 without a look: NaN times 0 would be 0.
    if b.ndim == 2 and len(b) != 1:
        if a.ndim == 2:
            return a.dot(b)
        if a.ndim > 2 and a.size and a.flags.c_contiguous:
            # NumPy would call BLAS once for each matrix of the stack.
            rows = a.reshape(-1, a.shape[-1]).dot(b)
            return rows.reshape((*a.shape[:-1], b.shape[1]))
    return np.matmul(a, b)


matmul = product(_product)


def mm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of two matrices."""
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(f"mm takes two matrices, got {a.shape} and {b.shape}", fix="use matmul")
    return matmul(a, b)


def bmm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of two stacks of matrices."""
    if a.ndim != 3 or b.ndim != 3 or len(a) != len(b):
        raise ShapeError(f"bmm takes two stacks of matrices, got {a.shape} and {b.shape}")
    return matmul(a, b)


def mv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of a matrix and a vector."""
    if a.ndim != 2 or b.ndim != 1:
        raise ShapeError(f"mv takes a matrix and a vector, got {a.shape} and {b.shape}")
    return matmul(a, b)


def dot(a: np.ndarray, b: np.ndarray) -> Any:
    """Product of two vectors."""
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"dot takes two vectors, got {a.shape} and {b.shape}")
    return np.asarray(matmul(a, b))


def outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All products of an element of each vector."""
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer takes two vectors, got {a.shape} and {b.shape}")
    return a[:, None] * b


def addmm(x: np.ndarray, a: np.ndarray, b: np.ndarray, beta: Any, alpha: Any) -> np.ndarray:
    """``beta * x + alpha * (a @ b)``; half precision is rounded once, at the end."""
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(
            f"addmm multiplies two matrices, got shapes {a.shape} and {b.shape}",
            fix="use matmul for vectors and batches",
        )
    dtype = a.dtype
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        wide = (each.astype(np.float32) for each in (x, a, b))
        return addmm(*wide, beta, alpha).astype(dtype)
    out = matmul(a, b)
    if alpha == 0:  # BLAS does not read what it switches off
        out = np.zeros_like(out)
    elif alpha != 1:
        out *= np.asarray(alpha).astype(out.dtype)
    if beta == 0:
        return out
    if beta != 1:
        x = x * np.asarray(beta).astype(out.dtype)
    # The ufunc itself refuses what does not expand to its out.
    return np.add(out, x, out=out)


def _decomposition(function: Callable[..., Any], hint: str) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        lu.refuse_others(args[0])
        try:
            return function(*args)
        except np.linalg.LinAlgError as error:
            if any(word in str(error) for word in _NUMERICAL):
                raise LinAlgError(str(error), fix=hint) from error
            raise  # a wrong shape: the rule of the operator says it better

    return kernel


#: what LAPACK finds out while it computes
_NUMERICAL = ("ingular matrix", "positive definite", "converge")


def _cholesky(x: np.ndarray, upper: bool) -> np.ndarray:
    return np.linalg.cholesky(x, upper=upper)


def _qr(x: np.ndarray, mode: str) -> tuple[np.ndarray, np.ndarray]:
    if mode == "r":
        return np.zeros(0, x.dtype), np.linalg.qr(x, "r")
    return tuple(np.linalg.qr(x, mode))


def _svd(x: np.ndarray, full_matrices: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.linalg.svd(x, full_matrices))


def _eigh(x: np.ndarray, uplo: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.linalg.eigh(x, uplo))


def _solve(a: np.ndarray, b: np.ndarray, left: bool) -> np.ndarray:
    # PyTorch's rule of what counts as a stack of vectors; NumPy 2 has another one.
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    if vector:
        b = b[..., None]
    if left:
        x = np.linalg.solve(a, b)
    else:
        x = np.linalg.solve(a.mT, b.mT).mT
    return x[..., 0] if vector else x


def _slogdet(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sign, log = np.linalg.slogdet(x)
    return np.asarray(sign), np.asarray(log)


def _eig(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eig(x)
    wanted = np.complex64 if x.dtype.name in ("float32", "complex64") else np.complex128
    return values.astype(wanted, copy=False), vectors.astype(wanted, copy=False)


_SINGULAR = "the matrix is singular; use linalg.lstsq or linalg.pinv"

KERNELS: dict[str, Callable[..., Any]] = {
    "matmul": silent(matmul),
    "mm": silent(mm),
    "bmm": silent(bmm),
    "mv": silent(mv),
    "dot": silent(dot),
    "outer": silent(outer),
    "addmm": silent(addmm),
    "cholesky": _decomposition(_cholesky, "the matrix must be positive definite"),
    "linalg_qr": _decomposition(_qr, "check the input for NaN"),
    "linalg_svd": _decomposition(_svd, "check the input for NaN"),
    "linalg_eigh": _decomposition(_eigh, "check the input for NaN"),
    "linalg_eig": _decomposition(_eig, "check the input for NaN"),
    "linalg_solve": _decomposition(_solve, _SINGULAR),
    "linalg_inv": _decomposition(np.linalg.inv, _SINGULAR),
    "linalg_slogdet": _decomposition(_slogdet, _SINGULAR),
    "det": _decomposition(lambda x: np.asarray(np.linalg.det(x)), _SINGULAR),
    **lu.KERNELS,
}
