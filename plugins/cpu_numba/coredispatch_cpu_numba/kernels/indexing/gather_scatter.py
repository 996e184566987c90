"""gather, index_select and embeddings, by int64 indices.

Where an index is out of range, and for everything unusual, NumPy's kernel serves: it says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, POINTWISE
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.indexing.indices import (
    is_index,
    rowwise,
    spans,
    spare,
    spared,
)

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 16384
_gather = Loop("indexing.gather_scatter", "gather", _SPLIT)
_take_rows = Loop("indexing.gather_scatter", "take_rows", 2 * _SPLIT)
_gather_few, _take_few = _gather.compiled, _take_rows.compiled


def gather(self: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """``out[i][j] = self[index[i][j]][j]`` for dim 0 of two, and so on."""
    own = self.dtype
    if type(self) is not np.ndarray or own not in FLOATS or not self.flags.c_contiguous:
        return NotImplemented
    wide = index.shape
    sizes = spans(self.shape, dim, wide)
    if sizes is None:
        return NotImplemented
    outer, n, m, inner = sizes
    if not is_index(index):
        rows = rowwise(index, dim)
        if rows is None or not self.size:
            return NotImplemented
        return _rows_taken(self, *rows, outer, n, m, inner, wide)
    bad = spared()
    out, size = np.empty(wide, own), index.size
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _gather_few[own]
        launch(self, index, n, m, inner, out, bad, outer, outer, task, 0)
    else:
        _gather(own, size, outer, self, index, n, m, inner, out, bad, weight=m * inner)
    if bad[0]:
        return NotImplemented
    spare(bad)
    return out


def take_along_dim(self: np.ndarray, indices: np.ndarray, dim: int | None) -> Any:
    """As ``gather``, where nothing is broadcast or counted from the end."""
    return NotImplemented if dim is None or not indices.ndim else gather(self, dim, indices)


@lru_cache(maxsize=1024)
def _selection(shape: tuple[int, ...], dim: int, index: tuple[int, ...]) -> Any:
    """``(outer, n, m, width)`` and the result's shape."""
    before, behind = shape[:dim], shape[dim + 1 :]
    outer, width, m = prod(before), prod(behind), prod(index)
    return outer, shape[dim], m, width, (*before, *index, *behind)


def _taken(x: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """The slices of ``x`` along ``dim`` (0 or more) that ``index``, of any shape, names."""
    own = x.dtype
    if type(x) is not np.ndarray or own not in POINTWISE or not x.flags.c_contiguous:
        return NotImplemented
    if not is_index(index) or not x.size:
        return NotImplemented
    outer, n, m, width, shape = _selection(x.shape, dim, index.shape)
    return _rows_taken(x, index, 0, outer, n, m, width, shape)


def _rows_taken(
    x: np.ndarray,
    index: np.ndarray,
    own: int,
    outer: int,
    n: int,
    m: int,
    width: int,
    shape: tuple[int, ...],
) -> Any:
    """``m`` rows of each of ``outer`` matrices of ``n`` rows; ``own``: each by an own index."""
    bad = spared()
    out, count, dtype = np.empty(shape, x.dtype), outer * m, x.dtype
    if count * width < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _take_few[dtype]
        launch(x, index, own, n, m, width, out, bad, count, count, task, 0)
    else:
        arguments = (x, index, own, n, m, width, out, bad)
        _take_rows(dtype, count * width, count, *arguments, weight=width)
    if bad[0]:
        return NotImplemented
    spare(bad)
    return out


def index_select(self: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """The slices along ``dim`` that ``index`` names."""
    ndim = self.ndim
    if index.ndim != 1 or not -ndim <= dim < ndim:
        return NotImplemented
    return _taken(self, dim % ndim, index)


def embedding_lookup(
    input: np.ndarray,
    weight: np.ndarray,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    """The rows of ``weight`` that ``input`` names."""
    return _taken(weight, 0, input) if weight.ndim == 2 else NotImplemented


def embedding(
    input: np.ndarray,
    weight: np.ndarray,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    """As ``embedding_lookup``, where nothing is asked for that the operator's rule must see to."""
    if padding_idx is not None or max_norm is not None or sparse:
        return NotImplemented
    return _taken(weight, 0, input) if weight.ndim == 2 else NotImplemented


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding": embedding,
    "embedding_lookup": embedding_lookup,
    "gather": gather,
    "index_select": index_select,
    "take_along_dim": take_along_dim,
}
LEAST: dict[str, int] = {**dict.fromkeys(KERNELS, _LEAST), "embedding": 1, "embedding_lookup": 1}
