"""What the indexing operators are given, as the kernels for rows take it."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy.cuda.layout import dense

__all__ = [
    "Selection",
    "as_index",
    "fronted",
    "is_index",
    "selected",
    "selection",
    "spans",
    "word_of",
]

_ALL = slice(None)
_INT64 = np.dtype(np.int64)


class Selection(NamedTuple):
    """``x[:, ..., index, index, ...]``: index arrays side by side behind whole dimensions.

    Attributes:
        dim: the dimension of the first index.
        arrays: the index arrays.
    """

    dim: int
    arrays: list[Any]


def selection(cupy: Any, index: Any, ndim: int) -> Selection | None:
    """The selection that the item of a subscript is; None for any other subscript."""
    arrays: list[Any] = []
    dim, closed = 0, False
    for item in index:
        if type(item) is slice and item == _ALL:
            closed = bool(arrays)
            dim += not arrays
        elif type(item) is not cupy.ndarray or not is_index(item) or not item.ndim or closed:
            return None
        else:
            arrays.append(item)
    if not arrays or dim + len(arrays) > ndim:
        return None
    return Selection(dim, arrays)


def fronted(index: tuple[Any, ...], ndim: int) -> tuple[list[int], tuple[Any, ...]]:
    """Axes, and the subscript behind them, for an ``index`` of arrays and whole dimensions.

    Arrays that stand apart are then side by side in front, which is where the result has theirs;
    those that are side by side stay where they are.
    """
    places = [dim for dim, item in enumerate(index) if type(item) is not slice]
    if places[-1] - places[0] == len(places) - 1:
        return list(range(ndim)), index
    rest = [dim for dim in range(ndim) if dim not in places]
    return [*places, *rest], tuple(index[dim] for dim in places)


def is_index(array: Any) -> bool:
    """Whether an array has a dtype for indices: signed integers."""
    return bool(array.dtype.kind == "i")


def as_index(cupy: Any, array: Any) -> Any:
    """An index array as kernels read it: int64, elements in order."""
    return dense(cupy, array.astype(_INT64, copy=False))


def selected(shape: tuple[int, ...], found: Selection, common: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what is selected, where the index arrays broadcast to ``common``."""
    return (*shape[: found.dim], *common, *shape[found.dim + len(found.arrays) :])


@lru_cache(maxsize=4096)
def spans(
    shape: tuple[int, ...], dim: int, other: tuple[int, ...]
) -> tuple[int, int, int, int] | None:
    """``(outer, n, m, inner)`` of two shapes that differ in ``dim`` only; None for others."""
    ndim = len(shape)
    if len(other) != ndim or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    if other[:dim] != shape[:dim] or other[dim + 1 :] != shape[dim + 1 :]:
        return None
    return prod(shape[:dim]), shape[dim], other[dim], prod(shape[dim + 1 :])


def word_of(nbytes: int, *arrays: Any) -> int:
    """The largest word that rows of ``nbytes`` in these arrays are made of."""
    places = nbytes
    for array in arrays:
        places |= array.data.ptr
    return min(16, places & -places)
