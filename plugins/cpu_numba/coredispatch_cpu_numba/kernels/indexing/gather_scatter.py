"""gather, scatter_add, index_add and the gradient of embeddings, by int64 indices.

Where an index is out of range, and for everything unusual, NumPy's kernel serves: it says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 16384
_TILE = 32  # columns that a thread takes at least
_gather = Loop("indexing.gather_scatter", "gather", _SPLIT)
_scatter_add = Loop("indexing.gather_scatter", "scatter_add", _SPLIT)
_add_rows = Loop("indexing.gather_scatter", "add_rows", _SPLIT)


def _is_index(index: Any) -> bool:
    return (
        type(index) is np.ndarray
        and index.dtype == INT64
        and bool(index.flags.c_contiguous)
        and index.size > 0
    )


def _spans(shape: tuple[int, ...], dim: int, index: Any) -> tuple[int, int, int, int] | None:
    """``(outer, n, m, inner)`` of ``shape`` and an index that differs in ``dim`` only."""
    ndim = len(shape)
    if not _is_index(index) or index.ndim != ndim or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    other = index.shape
    if other[:dim] != shape[:dim] or other[dim + 1 :] != shape[dim + 1 :]:
        return None
    return prod(shape[:dim]), shape[dim], other[dim], prod(shape[dim + 1 :])


def gather(self: np.ndarray, dim: int, index: np.ndarray) -> Any:
    """``out[i][j] = self[index[i][j]][j]`` for dim 0 of two, and so on."""
    spans = _spans(self.shape, dim, index) if is_dense(self, 1) else None
    if spans is None:
        return NotImplemented
    outer, n, m, inner = spans
    own = self.dtype
    out, bad = np.empty(index.shape, own), np.zeros(1, INT64)
    _gather(own, out.size, outer, self, index, n, m, inner, out, bad, weight=m * inner)
    return NotImplemented if bad[0] else out


def scatter_add(self: np.ndarray, dim: int, index: np.ndarray, src: Any) -> Any:
    """A copy of ``self`` with ``src`` added where :func:`gather` would read."""
    spans = _spans(self.shape, dim, index) if is_dense(self, 1) else None
    if spans is None or not is_dense(src, 1) or src.dtype != self.dtype or src.shape != index.shape:
        return NotImplemented
    outer, n, m, inner = spans
    own = self.dtype
    out, bad = self.copy(), np.zeros(1, INT64)
    tiles = (inner + _TILE - 1) // _TILE
    arguments = (out, index, src, n, m, inner, _TILE, tiles, bad)
    weight = m * min(inner, _TILE)
    _scatter_add(own, index.size, outer * tiles, *arguments, weight=weight)
    return NotImplemented if bad[0] else out


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
    "embedding_backward": embedding_backward,
    "gather": gather,
    "index_add": index_add,
    "scatter_add": scatter_add,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
