"""gather, scatter_add, index_add, index_select, embeddings and their gradient, by int64 indices.

Where an index is out of range, and for everything unusual, NumPy's kernel serves: it says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, INT64, POINTWISE, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 16384
_TILE = 32  # columns that a thread takes at least
_gather = Loop("indexing.gather_scatter", "gather", _SPLIT)
_scatter_add = Loop("indexing.gather_scatter", "scatter_add", _SPLIT)
_take_rows = Loop("indexing.gather_scatter", "take_rows", 2 * _SPLIT)
_add_rows = Loop("indexing.gather_scatter", "add_rows", _SPLIT)
_gather_few, _take_few, _scatter_few = _gather.compiled, _take_rows.compiled, _scatter_add.compiled

#: arrays of one 0 that no call uses, for loops to set where an index is out of range: making one
#: takes a tenth of a call of 1,000 elements
_spare: list[np.ndarray] = []
_spared = _spare.pop


def _is_index(index: Any) -> bool:
    if type(index) is not np.ndarray or not index.size:
        return False
    dtype = index.dtype  # mostly the one object that NumPy has for it, which is quicker to see
    return (dtype is INT64 or dtype == INT64) and bool(index.flags.c_contiguous)


@lru_cache(maxsize=1024)
def _spans(
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


def gather(self: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """``out[i][j] = self[index[i][j]][j]`` for dim 0 of two, and so on."""
    own = self.dtype
    if type(self) is not np.ndarray or own not in FLOATS or not self.flags.c_contiguous:
        return NotImplemented
    if not _is_index(index):
        return NotImplemented
    wide = index.shape
    spans = _spans(self.shape, dim, wide)
    if spans is None:
        return NotImplemented
    outer, n, m, inner = spans
    try:
        bad = _spared()
    except IndexError:
        bad = np.zeros(1, INT64)
    out, size = np.empty(wide, own), index.size
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _gather_few[own]
        launch(self, index, n, m, inner, out, bad, outer, outer, task, 0)
    else:
        _gather(own, size, outer, self, index, n, m, inner, out, bad, weight=m * inner)
    if bad[0]:
        return NotImplemented
    _spare.append(bad)
    return out


def scatter_add(self: np.ndarray, dim: int, index: np.ndarray, src: Any) -> Any:
    """A copy of ``self`` with ``src`` added where :func:`gather` would read."""
    own = self.dtype
    if type(self) is not np.ndarray or own not in FLOATS or not self.flags.c_contiguous:
        return NotImplemented
    if not _is_index(index) or not self.size:
        return NotImplemented
    wide = index.shape
    spans = _spans(self.shape, dim, wide)
    if spans is None or not is_dense(src, 1) or src.dtype != own or src.shape != wide:
        return NotImplemented
    outer, n, m, inner = spans
    try:
        bad = _spared()
    except IndexError:
        bad = np.zeros(1, INT64)
    out, size, tiles = self.copy(), index.size, (inner + _TILE - 1) // _TILE
    count = outer * tiles
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _scatter_few[own]
        launch(out, index, src, n, m, inner, _TILE, tiles, bad, count, count, task, 0)
    else:
        arguments = (out, index, src, n, m, inner, _TILE, tiles, bad)
        _scatter_add(own, size, count, *arguments, weight=m * min(inner, _TILE))
    if bad[0]:
        return NotImplemented
    _spare.append(bad)
    return out


@lru_cache(maxsize=1024)
def _selection(shape: tuple[int, ...], dim: int, index: tuple[int, ...]) -> Any:
    """``(outer, n, m, width)`` and the result's shape and size."""
    before, behind = shape[:dim], shape[dim + 1 :]
    outer, width, m = prod(before), prod(behind), prod(index)
    return outer, shape[dim], m, width, (*before, *index, *behind), outer * m * width


def _taken(x: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """The slices of ``x`` along ``dim`` (0 or more) that ``index``, of any shape, names."""
    own = x.dtype
    if type(x) is not np.ndarray or own not in POINTWISE or not x.flags.c_contiguous:
        return NotImplemented
    if not _is_index(index) or not x.size:
        return NotImplemented
    outer, n, m, width, shape, size = _selection(x.shape, dim, index.shape)
    try:
        bad = _spared()
    except IndexError:
        bad = np.zeros(1, INT64)
    out, count = np.empty(shape, own), outer * m
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _take_few[own]
        launch(x, index, n, m, width, out, bad, count, count, task, 0)
    else:
        _take_rows(own, size, count, x, index, n, m, width, out, bad, weight=width)
    if bad[0]:
        return NotImplemented
    _spare.append(bad)
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


def _added(out: np.ndarray, index: np.ndarray, rows: np.ndarray, skipped: int) -> Any:
    """``out`` with each of the ``rows`` added to the row its index names."""
    width, bad = out.size // len(out), np.zeros(1, INT64)
    tiles = (width + _TILE - 1) // _TILE
    arguments = (out, index, rows, len(out), width, _TILE, skipped, bad)
    _add_rows(out.dtype, rows.size, tiles, *arguments, weight=_TILE * index.size)
    return NotImplemented if bad[0] else out


def index_add(self: np.ndarray, dim: int, index: np.ndarray, source: Any, alpha: Any) -> Any:
    """A copy of ``self`` with the slices of ``source`` added to those ``index`` names."""
    if not (
        dim == 0
        and alpha == 1
        and is_dense(self, 1)
        and is_dense(source, 1)
        and _is_index(index)
        and index.ndim == 1
        and source.dtype == self.dtype
        and source.shape == (len(index), *self.shape[1:])
    ):
        return NotImplemented
    return _added(self.copy(), index, source, -1)


def embedding_backward(
    grad: np.ndarray,
    indices: np.ndarray,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
) -> Any:
    """The rows of ``grad`` added up by index."""
    if scale_grad_by_freq or not is_dense(grad, 1) or not _is_index(indices) or num_weights < 1:
        return NotImplemented
    width = grad.shape[-1] if grad.ndim else 0
    if indices.size * width != grad.size:
        return NotImplemented
    skipped = -1 if padding_idx is None else padding_idx % num_weights
    return _added(np.zeros((num_weights, width), grad.dtype), indices, grad, skipped)


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "embedding_lookup": embedding_lookup,
    "gather": gather,
    "index_add": index_add,
    "index_select": index_select,
    "scatter_add": scatter_add,
}
LEAST: dict[str, int] = {**dict.fromkeys(KERNELS, _LEAST), "embedding": 1, "embedding_lookup": 1}
