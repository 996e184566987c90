"""NumPy kernels of decompositions that NumPy itself has no function for, or only half of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.errors import DTypeError, LinAlgError

__all__ = ["KERNELS", "refuse_others"]

#: columns that are eliminated one by one; more are halved, so that products do the work
_PANEL = 16


def refuse_others(x: np.ndarray) -> None:
    """Refuse a dtype that LAPACK has no routines for: NumPy makes float64 of it without a word."""
    if x.dtype.char not in "fdFD":
        raise DTypeError(f"decompositions need float32 or more, got {x.dtype}", fix="use x.float()")


def _magnitude(x: np.ndarray) -> np.ndarray:
    """What LAPACK compares pivots by: of complex numbers the sum of the parts, not the modulus."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def _eliminate(a: np.ndarray, order: np.ndarray, pivots: np.ndarray, pivot: bool) -> None:
    """Gaussian elimination of a stack ``(b, m, n)`` in place, column by column."""
    batch = np.arange(len(a))
    for k in range(min(a.shape[1:])):
        if pivot:
            p = k + np.argmax(_magnitude(a[:, k:, k]), axis=1)
            pivots[:, k] = p
            if np.any(p != k):
                for x in (a, order):
                    x[batch, k], x[batch, p] = x[batch, p], x[batch, k].copy()
        else:
            pivots[:, k] = k
        head = a[:, k, k]
        a[:, k + 1 :, k] /= np.where(head == 0, 1, head)[:, None]
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]


def _recurse(a: np.ndarray, order: np.ndarray, pivots: np.ndarray, pivot: bool) -> None:
    """Toledo, "Locality of reference in LU decomposition with partial pivoting" (1997)."""
    m, n = a.shape[1:]
    k = min(m, n)
    if k <= _PANEL:
        _eliminate(a, order, pivots, pivot)
        return
    half = k // 2
    moved = np.broadcast_to(np.arange(m), (len(a), m)).copy()[:, :, None]
    _recurse(a[:, :, :half], moved, pivots[:, :half], pivot)
    rest = np.take_along_axis(a[:, :, half:], moved, 1)
    lower = np.tril(a[:, :half, :half], -1) + np.eye(half, dtype=a.dtype)
    rest[:, :half] = np.linalg.solve(lower, rest[:, :half])
    rest[:, half:] -= a[:, half:, :half] @ rest[:, :half]
    below = np.broadcast_to(np.arange(m - half), (len(a), m - half)).copy()[:, :, None]
    _recurse(rest[:, half:], below, pivots[:, half:], pivot)
    pivots[:, half:] += half
    a[:, :, half:] = rest
    a[:, half:, :half] = np.take_along_axis(a[:, half:, :half], below, 1)
    moved[:, half:] = np.take_along_axis(moved[:, half:], below, 1)
    order[...] = np.take_along_axis(order, moved, 1)


def _lu_factor_ex(x: np.ndarray, pivot: bool, check_errors: bool) -> Any:
    refuse_others(x)
    *lead, m, n = x.shape
    k = min(m, n)
    a = np.array(x, copy=True, order="C").reshape(-1, m, n) if x.size else x.copy()
    pivots = np.zeros((len(a) if x.size else 0, k), np.int64)
    if not x.size:
        return a, np.ones((*lead, k), np.int32), np.zeros(lead, np.int32)
    order = np.zeros((len(a), m, 1), np.int64)
    _recurse(a, order, pivots, pivot)
    zero = np.diagonal(a, axis1=1, axis2=2) == 0
    info = np.where(zero.any(1), zero.argmax(1) + 1, 0).astype(np.int32)
    if check_errors and info.any():
        first = int(np.argmax(info != 0))
        raise LinAlgError(
            f"(Batch element {first}): U[{info[first]},{info[first]}] is zero",
            fix="the matrix is singular; use linalg.lstsq or linalg.pinv",
        )
    return a.reshape(x.shape), (pivots + 1).astype(np.int32).reshape(*lead, k), info.reshape(lead)


def _lu_row_order(pivots: np.ndarray, rows: int) -> np.ndarray:
    *lead, k = pivots.shape
    flat = pivots.reshape(math.prod(lead), k)
    order = np.broadcast_to(np.arange(rows), (len(flat), rows)).copy()
    batch = np.arange(len(flat))
    for i in range(k):
        p = flat[:, i].astype(np.int64) - 1
        order[batch, i], order[batch, p] = order[batch, p], order[batch, i].copy()
    return order.reshape(*lead, rows)


def _geqrf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    refuse_others(x)
    if x.ndim > 1 and not x.size:
        return x.copy(), np.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
    packed, tau = np.linalg.qr(x, mode="raw")
    # NumPy gives LAPACK's columns as rows.
    return np.ascontiguousarray(packed.mT), tau


KERNELS: dict[str, Callable[..., Any]] = {
    "linalg_lu_factor_ex": silent(_lu_factor_ex),
    "lu_row_order": _lu_row_order,
    "geqrf": silent(_geqrf),
}
