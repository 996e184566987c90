"""Which indices the loops take, and how the arrays they index are seen."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import INT64

__all__ = ["is_index", "rowwise", "spans", "spare", "spared"]

#: arrays of one 0 that no call uses, for loops to set where an index is out of range: making one
#: takes a tenth of a call of 1,000 elements
_spare: list[np.ndarray] = []
spare = _spare.append


def spared() -> np.ndarray:
    """An array of one 0, to be given back to ``spare`` while it holds 0."""
    try:
        return _spare.pop()
    except IndexError:  # asking first would leave time for another thread
        return np.zeros(1, INT64)


def is_index(index: Any) -> bool:
    """Whether a loop can read ``index``: whole numbers of 64 bits in order."""
    if type(index) is not np.ndarray or not index.size:
        return False
    dtype = index.dtype  # mostly the one object that NumPy has for it, which is quicker to see
    return (dtype is INT64 or dtype == INT64) and bool(index.flags.c_contiguous)


@lru_cache(maxsize=1024)
def spans(
    shape: tuple[int, ...], dim: int, other: tuple[int, ...]
) -> tuple[int, int, int, int] | None:
    """``(outer, n, m, inner)`` of two shapes that differ in ``dim`` only."""
    ndim = len(shape)
    if len(other) != ndim or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    if other[:dim] != shape[:dim] or other[dim + 1 :] != shape[dim + 1 :]:
        return None
    return prod(shape[:dim]), shape[dim], other[dim], prod(shape[dim + 1 :])


def rowwise(index: Any, dim: int) -> tuple[np.ndarray, int] | None:
    """What an index that was expanded along all dimensions behind ``dim`` was made of.

    The index of rows, and whether each matrix has its own: where the dimensions before were
    expanded as well, there is one for all. None for another index.
    """
    if type(index) is not np.ndarray or index.dtype != INT64 or not index.size:
        return None
    strides, ndim = index.strides, index.ndim
    dim %= ndim
    if dim == ndim - 1 or any(strides[dim + 1 :]):
        return None
    own = any(strides[:dim])
    base = index[(*((slice(None) if own else 0,) * dim), slice(None), *(0,) * (ndim - dim - 1))]
    return (base, int(own)) if base.flags.c_contiguous else None
