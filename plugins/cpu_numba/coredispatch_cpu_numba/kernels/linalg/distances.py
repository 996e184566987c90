"""Distances of the rows of two matrices, and their gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_SPLIT = 32768
_distances = Loop("linalg.distances", "distances", _SPLIT)
_gradients = Loop("linalg.distances", "gradients", _SPLIT)
_FEW_ROWS = 256  # of which the index of pairs is kept
_ROWS = 16  # as in the loops
_VECTOR, _VECTORS = 16, 64  # elements of the widest vector, and of the four that loops take at once
_ORDERS = {2.0: 2, 1.0: 1, inf: 0}


def _fit(x1: Any, x2: Any) -> bool:
    return (
        is_dense(x1, 1)
        and is_dense(x2, 1)
        and x1.dtype == x2.dtype
        and x1.ndim == x2.ndim > 1
        and x1.shape[:-2] == x2.shape[:-2]
        and x1.shape[-1] == x2.shape[-1]
    )


def _turned(x: np.ndarray) -> tuple[np.ndarray, int]:
    """``x`` with its rows side by side, and how many there are with those that fill up vectors."""
    count = x.shape[-2]
    step = _VECTORS if count > _VECTORS else _VECTOR
    room = -(-count // step) * step
    if room == count:
        return np.ascontiguousarray(x.swapaxes(-1, -2)), room
    turned = np.zeros((*x.shape[:-2], x.shape[-1], room), x.dtype)
    turned[..., :count] = x.swapaxes(-1, -2)
    return turned, room


def cdist(x1: np.ndarray, x2: np.ndarray, p: float, compute_mode: Any) -> Any:
    """Norms of order 1, 2 and infinity."""
    order = _ORDERS.get(p)
    if order is None or compute_mode is not None or not _fit(x1, x2):
        return NotImplemented
    own, n, m, d = x1.dtype, x1.shape[-2], x2.shape[-2], x1.shape[-1]
    out = np.empty((*x1.shape[:-1], m), own)
    beside, room = _turned(x2)
    groups = -(-n // _ROWS)
    count = prod(x1.shape[:-2]) * groups
    arguments = x1, beside, n, m, d, room, groups, order, out
    _distances(own, count * _ROWS * m * d, count, *arguments, weight=_ROWS * m * d)
    return out


@lru_cache(maxsize=8)
def _pairs(n: int) -> np.ndarray:
    """Where the distances of all pairs stand in the matrix of all distances."""
    rows, columns = np.triu_indices(n, 1)
    places: np.ndarray = rows * n + columns
    return places


def pdist(input: np.ndarray, p: float) -> Any:
    """The part of :func:`cdist` above the diagonal: of few rows, it costs less than its index."""
    n = len(input)
    if not 1 < n <= _FEW_ROWS:
        return NotImplemented
    whole = cdist(input, input, p, None) if input.ndim == 2 else NotImplemented
    return whole if whole is NotImplemented else whole.reshape(-1).take(_pairs(n))


def cdist_backward(
    grad: np.ndarray, x1: np.ndarray, x2: np.ndarray, p: float, out: np.ndarray
) -> Any:
    """The gradient of ``x1`` of norms of order 1 and 2."""
    order = _ORDERS.get(p)
    if not order or not _fit(x1, x2):
        return NotImplemented
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    if not grad.dtype == out.dtype == x1.dtype:
        return NotImplemented
    if not grad.shape == out.shape == (*x1.shape[:-1], m):
        return NotImplemented
    grad, out = np.ascontiguousarray(grad), np.ascontiguousarray(out)  # of x2 they are turned
    result = np.empty(x1.shape, x1.dtype)
    beside, room = _turned(x2)
    groups = -(-n // _ROWS)
    count = prod(x1.shape[:-2]) * groups
    arguments = grad, out, x1, beside, n, m, d, room, groups, order, result
    _gradients(x1.dtype, count * _ROWS * m * d, count, *arguments, weight=_ROWS * m * d)
    return result


KERNELS: dict[str, Callable[..., Any]] = {
    "cdist": cdist,
    "cdist_backward": cdist_backward,
    "pdist": pdist,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, 1)
