"""Sorting, selection by rank, searching and counting in NumPy.

NumPy sorts 64-bit integers with vector instructions, but has no fast stable ``argsort``. So for
types of up to 32 bits value and position are packed into one int64 key, whose order is that of
the values and, among equals, of the positions: sorting the keys is a stable sort that yields
values' order and indices at once. Measured on 1e6 float32: 12 ms against 95 ms for
``np.argsort(kind="stable")``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from coredispatch.registry.model.errors import DimError
from coredispatch.registry.model.sizes import normalize_dim

__all__ = ["KERNELS", "normalize_dim"]


_FEW = 16  # up to this many elements a top-k is found one by one
_SHORT = 16  # up to this length NumPy's insertion sort wins


def _ordered(x: np.ndarray) -> np.ndarray:
    """``x`` as new int32 or int64 of the same order; NaN last, -0.0 equal to 0.0."""
    if x.dtype.kind in "biu":
        return x.astype(np.int32 if x.itemsize < 4 or x.dtype.kind == "i" else np.int64)
    x = x.astype(np.float32) if x.itemsize == 2 else x
    x = x + np.float32(0)
    if x.size and np.isnan(x.max()):
        x[np.isnan(x)] = np.nan  # one sign, so that all of them are above infinity
    bits = x.view(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    return bits


def _packed(x: np.ndarray, descending: bool) -> np.ndarray:
    """Keys for rows (last dim): the value's order above 32 bits of position."""
    order = _ordered(x)
    if descending:
        np.invert(order, order)
    keys = order.astype(np.int64)
    keys <<= 32
    keys |= np.arange(x.shape[-1])
    return keys


def _packable(x: np.ndarray) -> bool:
    size, n = x.dtype.itemsize, x.shape[-1]
    return n < 1 << 31 and (size < 4 or (size == 4 and x.dtype.kind in "fi"))


def argsort_rows(x: np.ndarray, descending: bool) -> np.ndarray:
    """Stable argsort of the last dim in either direction."""
    n = x.shape[-1]
    if n > _SHORT and _packable(x):
        keys = _packed(x, descending)
        keys.sort(-1)
        keys &= 0xFFFFFFFF
        return keys
    if x.dtype.kind == "V":
        x = x.astype(np.float32)
    if not descending:
        return x.argsort(-1, kind="stable")
    return n - 1 - x[..., ::-1].argsort(-1, kind="stable")[..., ::-1]


def _last(x: np.ndarray, dim: int) -> tuple[np.ndarray, bool]:
    last = dim == -1 or dim == x.ndim - 1
    return (x if last else np.ascontiguousarray(x.swapaxes(dim, -1))), last


def sort(x: np.ndarray, dim: int, descending: bool, stable: bool) -> Any:
    """Sorted values and the indices they came from."""
    if not x.ndim:
        normalize_dim(dim, 0)
        return x.copy(), np.zeros((), np.int64)
    rows, last = _last(x, dim)
    order = argsort_rows(rows, descending)
    values = np.take_along_axis(rows, order, -1)
    if last:
        return values, order
    return np.ascontiguousarray(values.swapaxes(dim, -1)), np.ascontiguousarray(
        order.swapaxes(dim, -1)
    )


def argsort(x: np.ndarray, dim: int, descending: bool, stable: bool) -> Any:
    """Indices that sort ``x``."""
    if not x.ndim:
        normalize_dim(dim, 0)
        return np.zeros((), np.int64)
    rows, last = _last(x, dim)
    order = argsort_rows(rows, descending)
    return order if last else np.ascontiguousarray(order.swapaxes(dim, -1))


def _by_turns(rows: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """Indices of the first ``k`` by taking an extremum ``k`` times; None where that fails.

    NumPy's argmax is vectorized: for k = 4 of 1000 this takes a tenth of a partition's time. The
    taken elements become the least value of the dtype, so where that is among the first ``k``
    (or NaN would win the minimum) the caller falls back.
    """
    kind = rows.dtype.kind
    if kind not in "fi" or rows.dtype.itemsize < 4:
        return None
    work = rows.reshape(-1, rows.shape[-1])
    work = work.copy() if largest else np.negative(work) if kind == "f" else ~work
    if not largest and kind == "f" and work.size and np.isnan(work.max()):
        return None
    least = -np.inf if kind == "f" else np.iinfo(work.dtype).min
    order = np.empty((work.shape[0], k), np.int64)
    every = np.arange(work.shape[0])
    for turn in range(k):
        index = work.argmax(-1)
        order[:, turn] = index
        if (work[every, index] == least).any():
            return None
        work[every, index] = least
    return order.reshape(*rows.shape[:-1], k)


def topk(x: np.ndarray, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The first ``k`` of the sorted order; a partition where ``k`` is small."""
    if not x.ndim:
        normalize_dim(dim, 0)
        if not 0 <= k <= 1:
            raise DimError(f"k={k} is out of range for a 0-dim tensor", fix="use 0 or 1")
        return x.copy(), np.zeros((), np.int64)
    rows, last = _last(x, dim)
    n = rows.shape[-1]
    if not 0 <= k <= n:
        raise DimError(f"k={k} is out of range for a dimension of size {n}", fix=f"use 0 to {n}")
    order = _by_turns(rows, k, largest) if 0 < k <= _FEW and n >= 16 * k else None
    if order is None and 0 < k <= n // 4 and n > _SHORT and _packable(rows):
        keys = _packed(rows, largest)
        keys.partition(k - 1, -1)
        keys = keys[..., :k]
        keys.sort(-1)
        order = keys & 0xFFFFFFFF
    elif order is None:
        order = np.ascontiguousarray(argsort_rows(rows, largest)[..., :k])
    values = np.take_along_axis(rows, order, -1)
    if last:
        return values, order
    return np.ascontiguousarray(values.swapaxes(dim, -1)), np.ascontiguousarray(
        order.swapaxes(dim, -1)
    )


def median(x: np.ndarray) -> Any:
    """The lower of the two middle elements; NaN, which stands last, if there is one."""
    if x.dtype.kind not in "iuf" or not x.size:
        return NotImplemented  # the decomposition knows what becomes of nothing
    last = x.size - 1
    parted = np.partition(x.reshape(-1), (last // 2, last))
    return parted[last] if parted[last] != parted[last] else parted[last // 2]


def _rank_of_rows(rows: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements of ``rank`` of the last dim and their indices, as a stable sort has them."""
    flat = rows.reshape(-1, rows.shape[-1])
    if rows.dtype.kind in "fiu" and rows.itemsize > 2:
        values = np.partition(flat, rank, -1)[:, rank]
        equal = flat == values[:, None]
        if (np.count_nonzero(equal, -1) == 1).all():  # neither equal ones nor NaN
            return values, equal.argmax(-1)
    if _packable(rows):
        keys = _packed(flat, False)
        keys.partition(rank, -1)
        index = keys[:, rank] & 0xFFFFFFFF
    else:
        index = argsort_rows(flat, False)[:, rank]
    return flat[np.arange(len(flat)), index], index


def _ranked(x: np.ndarray, dim: int, rank: int, keepdim: bool, nan_first: bool) -> Any:
    """The element of ``rank`` along ``dim`` and its index.

    Where ``nan_first``, it is the first NaN of those that have one.
    """
    dim = normalize_dim(dim, x.ndim)
    rows, _ = _last(x, dim)
    values, index = _rank_of_rows(rows, rank)
    if nan_first and x.dtype.kind in "fV":
        missing = np.isnan(rows).reshape(-1, rows.shape[-1])
        if missing.any():
            index = np.where(missing.any(-1), missing.argmax(-1), index)
            values = rows.reshape(missing.shape)[np.arange(len(index)), index]
    found = []
    for array in (values.reshape(rows.shape[:-1]), index.reshape(rows.shape[:-1])):
        if dim < x.ndim - 1:  # the last dim stands where the one looked along was
            array = np.ascontiguousarray(np.moveaxis(array, dim, -1))
        found.append(np.expand_dims(array, dim) if keepdim else array)
    return tuple(found)


def kthvalue(x: np.ndarray, k: int, dim: int, keepdim: bool) -> Any:
    """The ``k``-th smallest elements along ``dim`` and their indices."""
    if not x.ndim or not 1 <= k <= x.shape[normalize_dim(dim, x.ndim)]:
        return NotImplemented  # the decomposition says what is wrong
    return _ranked(x, dim, k - 1, keepdim, False)


def median_dim(x: np.ndarray, dim: int, keepdim: bool) -> Any:
    """The lower medians along ``dim`` and their indices."""
    if not x.ndim or not x.shape[normalize_dim(dim, x.ndim)]:
        return NotImplemented  # as above
    return _ranked(x, dim, (x.shape[dim] - 1) // 2, keepdim, True)


def unique_all(x: np.ndarray, dim: int | None) -> Any:
    """Distinct elements or slices, the index of each element's value, and counts."""
    if x.dtype.kind == "V":
        values, inverse, counts = np.unique(
            x.astype(np.float32), False, True, True, axis=dim, equal_nan=False
        )
        return (values + np.float32(0)).astype(x.dtype), inverse, counts
    values, inverse, counts = np.unique(x, False, True, True, axis=dim, equal_nan=False)
    return values + values.dtype.type(0), inverse, counts  # -0.0 and 0.0 are one value: 0.0


def searchsorted(
    rows: np.ndarray, values: Any, out_int32: bool, right: bool, side: Any, sorter: Any
) -> Any:
    """Insertion points, row by row where the sequence has more than one dimension.

    What has to be sorted, converted or refused first is left to the decomposition.
    """
    if type(values) is not np.ndarray or values.dtype != rows.dtype or sorter is not None:
        return NotImplemented
    shape = rows.shape
    if not shape or (len(shape) > 1 and shape[:-1] != values.shape[:-1]) or rows.dtype.kind == "V":
        return NotImplemented
    if side not in (None, "left", "right") or (right and side == "left"):
        return NotImplemented
    where: Any = "right" if right or side == "right" else "left"
    if len(shape) == 1:
        out = np.asarray(rows.searchsorted(values, where))
    else:
        out = np.empty(values.shape, np.int64)
        for index in np.ndindex(*shape[:-1]):
            out[index] = rows[index].searchsorted(values[index], where)
    return out.astype(np.int32) if out_int32 else out


def bincount(x: np.ndarray, weights: Any, minlength: Any) -> Any:
    """How often each of 0, 1, ... occurs; float32 weights are summed in float64 and rounded once.

    What the definition refuses is left to it.
    """
    if x.ndim != 1 or x.dtype.kind not in "iu" or x.dtype == np.uint64:
        return NotImplemented
    if type(minlength) is not int or not 0 <= minlength <= sys.maxsize:
        return NotImplemented
    if weights is None:
        try:
            return np.bincount(x, None, minlength)
        except ValueError:  # a negative number
            return NotImplemented
    if weights.shape != x.shape or weights.dtype.kind not in "iuf":
        return NotImplemented
    try:
        sums = np.bincount(x, weights, minlength)
    except ValueError:
        return NotImplemented
    if weights.dtype == np.float32:
        return sums.astype(np.float32)
    return sums.astype(np.float64, copy=False)  # of nothing NumPy makes integers


def even_edges(x: np.ndarray, bins: int, low: Any, high: Any, op: str, place: int) -> Any:
    """Edges of ``bins`` cells over a range, or over that of the elements.

    What the definition refuses is left to it.
    """
    if bins < 1 or not x.size:
        return NotImplemented
    if low is None or high is None:
        low, high = float(x.min()), float(x.max())
    if not (isfinite(low) and isfinite(high) and low <= high):
        return NotImplemented
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1).astype(x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "sort": sort,
    "argsort": argsort,
    "topk": topk,
    "kthvalue": kthvalue,
    "median": median,
    "median_dim": median_dim,
    "unique_all": unique_all,
    "searchsorted": searchsorted,
    "bincount": bincount,
    "even_edges": even_edges,
}
