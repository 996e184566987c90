"""Elements and rows written, added and reduced by int64 indices, and gradients of what takes them.

Where an index is out of range, and for everything unusual, NumPy's kernel serves: it says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, constant, is_dense, overlap
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.indexing.indices import (
    is_index,
    rowwise,
    spans,
    spare,
    spared,
)
from coredispatch_cpu_numba.kernels.shape.copies import LEAST_SHARED, clone

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 16384
_TILE = 32  # columns that a thread takes at least
#: what the loops do where several elements go to one place
SET, ADD, MULTIPLY, LARGEST, SMALLEST = range(5)
_HOW = {"sum": ADD, "mean": ADD, "prod": MULTIPLY, "amax": LARGEST, "amin": SMALLEST}
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0}
_ALL = slice(None)
_COUNTED = 1 << 24  # up to here float32 counts one by one
_elements = Loop("indexing.writes", "elements", _SPLIT)
_rows = Loop("indexing.writes", "rows", _SPLIT)
_few_elements, _few_rows = _elements.compiled, _rows.compiled

Sizes = tuple[int, int, int, int]


def _write_elements(
    out: np.ndarray, index: np.ndarray, source: np.ndarray, sizes: Sizes, how: int, whole: int
) -> bool:
    """Whether ``source``, of the size of ``index`` or of one element, went to its places."""
    outer, n, m, inner = sizes
    bad, step, size = spared(), int(source.size != 1 or index.size == 1), index.size
    tiles = (inner + _TILE - 1) // _TILE
    arguments = (out, index, source, step, n, m, inner, _TILE, tiles, how, whole, bad)
    count = outer * tiles
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _few_elements[out.dtype]
        launch(*arguments, count, count, task, 0)
    else:
        _elements(out.dtype, size, count, *arguments, weight=m * min(inner, _TILE))
    if bad[0]:
        return False
    spare(bad)
    return True


def _write_rows(
    out: np.ndarray,
    index: np.ndarray,
    own: int,
    source: np.ndarray,
    sizes: Sizes,
    how: int,
    step: int = 1,
    skipped: int = -1,
) -> bool:
    """Whether the rows of ``source``, or with a ``step`` of 0 its one row, went to their places."""
    outer, n, m, width = sizes
    bad, size, tiles = spared(), outer * m * width, (width + _TILE - 1) // _TILE
    arguments = (out, index, own, source, step, n, m, width, _TILE, tiles, how, skipped, bad)
    count = outer * tiles
    if size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _few_rows[out.dtype]
        launch(*arguments, count, count, task, 0)
    else:
        _rows(out.dtype, size, count, *arguments, weight=m * min(width, _TILE))
    if bad[0]:
        return False
    spare(bad)
    return True


def _written(
    out: np.ndarray, dim: int, index: Any, source: Any, sizes: Sizes, how: int, whole: int = 0
) -> bool:
    """Whether ``source`` went where ``index``, in order or expanded from one of rows, says.

    ``whole`` is 1 where nothing may be written if an index is out of range.
    """
    if is_index(index):
        return _write_elements(out, index, source, sizes, how, whole)
    rows = rowwise(index, dim)
    if rows is None:
        return False
    if source.size == 1 < index.size:
        row = constant(sizes[3], out.dtype, float(source.reshape(-1)[0]))
        return _write_rows(out, *rows, row, sizes, how, 0)
    return _write_rows(out, *rows, source, sizes, how)


def _sizes(self: Any, dim: int, index: Any) -> Sizes | None:
    """How the loops see ``self``; None where they do not take it."""
    if not is_dense(self, 1) or type(index) is not np.ndarray or not index.size:
        return None
    return spans(self.shape, dim, index.shape)


def _copied(self: np.ndarray) -> np.ndarray:
    """A copy, made by several threads where it is large."""
    if self.size < LEAST_SHARED or not self.flags.c_contiguous:
        return self.copy()
    return clone(self, None)


def _start(self: np.ndarray, out: Any, index: np.ndarray, *sources: Any) -> Any:
    """Where to write: a copy of ``self``, or ``self`` itself for ``out``; else None.

    What is written in place must not be refused halfway. One thread looks at all of a short index
    before it writes; with a long one a copy is as quick.
    """
    if out is None:
        return _copied(self)
    if out is not self or not out.flags.writeable:
        return None
    if index.size >= _SPLIT or not is_index(index):
        return None
    return None if any(overlap(x, out) for x in (index, *sources)) else out


def scatter(self: np.ndarray, dim: int, index: np.ndarray, src: Any, out: Any = None) -> Any:
    """A copy of ``self`` with ``src`` written where ``gather`` would read."""
    sizes = _sizes(self, dim, index)
    if sizes is None:
        return NotImplemented
    if type(src) in (float, int):
        src = constant(1, self.dtype, float(src))
    elif not is_dense(src, 1) or src.dtype != self.dtype or src.shape != index.shape:
        return NotImplemented
    out = _start(self, out, index, src)
    if out is None or not _written(out, dim, index, src, sizes, SET, int(out is self)):
        return NotImplemented
    return out


def scatter_add(self: np.ndarray, dim: int, index: np.ndarray, src: Any, out: Any = None) -> Any:
    """A copy of ``self`` with ``src`` added where ``gather`` would read."""
    sizes = _sizes(self, dim, index)
    if sizes is None:
        return NotImplemented
    if not is_dense(src, 1) or src.dtype != self.dtype or src.shape != index.shape:
        return NotImplemented
    out = _start(self, out, index, src)
    if out is None or not _written(out, dim, index, src, sizes, ADD, int(out is self)):
        return NotImplemented
    return out


def scatter_reduce(
    self: np.ndarray, dim: int, index: np.ndarray, src: Any, reduce: str, include_self: bool
) -> Any:
    """A copy of ``self`` where all of ``src`` that go to one place are reduced into it."""
    sizes = _sizes(self, dim, index)
    if sizes is None or reduce not in _HOW or sizes[2] >= _COUNTED:
        return NotImplemented
    if not is_dense(src, 1) or src.dtype != self.dtype or src.shape != index.shape:
        return NotImplemented
    return _reduced(
        self,
        src,
        reduce,
        include_self,
        lambda out, source, how: _written(out, dim, index, source, sizes, how),
    )


def _reduced(
    self: np.ndarray,
    src: np.ndarray,
    reduce: str,
    include_self: bool,
    write: Callable[[np.ndarray, np.ndarray, int], bool],
) -> Any:
    own, out = self.dtype, _copied(self)
    if not include_self:  # an extremum starts from any of its own elements
        first = constant(1, own, _NEUTRAL[reduce]) if reduce in _NEUTRAL else src
        if not write(out, first, SET):
            return NotImplemented
    if not write(out, src, _HOW[reduce]):
        return NotImplemented
    if reduce == "mean":
        times = np.full(self.shape, float(include_self), own)
        write(times, constant(1, own, 1.0), ADD)
        if not include_self:
            np.maximum(times, own.type(1), out=times)
        np.divide(out, times, out=out)
    return out


def index_reduce(
    self: np.ndarray, dim: int, index: np.ndarray, source: Any, reduce: str, include_self: bool
) -> Any:
    """As ``scatter_reduce``, with one index for each slice of ``source``."""
    sizes = _row_sizes(self, dim, index, source)
    if sizes is None or reduce not in _HOW or reduce == "sum" or sizes[2] >= _COUNTED:
        return NotImplemented

    def write(out: np.ndarray, given: np.ndarray, how: int) -> bool:
        if given is source:
            return _write_rows(out, index, 0, source, sizes, how)
        row = constant(sizes[3], out.dtype, float(given[0]))
        return _write_rows(out, index, 0, row, sizes, how, 0)

    return _reduced(self, source, reduce, include_self, write)


def _row_sizes(self: Any, dim: int, index: Any, source: Any) -> Sizes | None:
    """How the loops see ``self`` and the slices of ``source``; None where they do not take them."""
    if not is_dense(self, 1) or not is_index(index) or index.ndim != 1:
        return None
    if not is_dense(source, 1) or source.dtype != self.dtype:
        return None
    sizes = spans(self.shape, dim, source.shape)
    return sizes if sizes is not None and sizes[2] == len(index) else None


def _start_rows(self: np.ndarray, out: Any, source: np.ndarray) -> Any:
    """As ``_start``: the loop looks at an index of rows before it writes."""
    if out is None:
        return _copied(self)
    if out is not self or not out.flags.writeable or overlap(source, out):
        return None
    return out


def index_add(
    self: np.ndarray, dim: int, index: np.ndarray, source: Any, alpha: Any, out: Any = None
) -> Any:
    """A copy of ``self`` with the slices of ``source`` added to those ``index`` names."""
    if type(self) is not np.ndarray or self.dtype not in FLOATS or alpha != 1:
        return NotImplemented
    if out is None and not self.flags.c_contiguous:  # such as the middle of an array
        self = out = self.copy()
    sizes = _row_sizes(self, dim, index, source)
    if sizes is None:
        return NotImplemented
    out = _start_rows(self, out, source)
    if out is None or not _write_rows(out, index, 0, source, sizes, ADD):
        return NotImplemented
    return out


def index_copy(self: np.ndarray, dim: int, index: np.ndarray, source: Any, out: Any = None) -> Any:
    """A copy of ``self`` with the slices ``index`` names taken from ``source``."""
    sizes = _row_sizes(self, dim, index, source)
    if sizes is None:
        return NotImplemented
    out = _start_rows(self, out, source)
    if out is None or not _write_rows(out, index, 0, source, sizes, SET):
        return NotImplemented
    return out


def index_fill(self: np.ndarray, dim: int, index: np.ndarray, value: Any, out: Any = None) -> Any:
    """A copy of ``self`` with the slices ``index`` names filled with ``value``."""
    if type(value) not in (float, int) or not is_dense(self, 1):
        return NotImplemented
    if not is_index(index) or index.ndim != 1 or not -self.ndim <= dim < self.ndim:
        return NotImplemented
    shape, dim = self.shape, dim % self.ndim
    width = prod(shape[dim + 1 :])
    sizes = prod(shape[:dim]), shape[dim], len(index), width
    out, row = _start_rows(self, out, index), constant(width, self.dtype, float(value))
    if out is None or not _write_rows(out, index, 0, row, sizes, SET, 0):
        return NotImplemented
    return out


def _one_index(shape: tuple[int, ...], index: tuple[Any, ...]) -> int | None:
    """The dimension that an index of one array speaks of, behind whole slices; else None."""
    dim = len(index) - 1
    if not 0 <= dim < len(shape) or not is_index(index[dim]):
        return None
    for piece in index[:dim]:
        if type(piece) is not slice or piece != _ALL:
            return None
    return dim


def _put(out: np.ndarray, index: tuple[Any, ...], values: Any, how: int) -> bool:
    """Whether ``values`` were written, or added, to ``out`` at ``index``."""
    shape = out.shape
    dim = _one_index(shape, index)
    if dim is None or not is_dense(values, 1) or values.dtype != out.dtype:
        return False
    places = index[dim]
    before, behind = shape[:dim], shape[dim + 1 :]
    if values.shape != (*before, *places.shape, *behind):
        return False
    sizes = prod(before), shape[dim], places.size, prod(behind)
    return _write_rows(out, places, 0, values, sizes, how)


def index_put(self: np.ndarray, index: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
    """A copy of ``self`` with ``values`` written (or added) at ``index``."""
    if not is_dense(self, 1) or _one_index(self.shape, index) is None:
        return NotImplemented
    out = _copied(self)
    return out if _put(out, index, values, ADD if accumulate else SET) else NotImplemented


def index_put_(self: np.ndarray, index: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
    """``values`` written (or added) at ``index`` of ``self``: all of them, or none."""
    if not is_dense(self, 1) or not self.flags.writeable or type(values) is not np.ndarray:
        return NotImplemented
    if overlap(self, values):
        return NotImplemented
    return None if _put(self, index, values, ADD if accumulate else SET) else NotImplemented


def getitem_backward(grad: np.ndarray, index: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Zeros of ``shape`` with ``grad`` added at ``index``."""
    if grad.dtype not in FLOATS or _one_index(shape, index) is None:
        return NotImplemented
    out = np.zeros(shape, grad.dtype)
    return out if _put(out, index, grad, ADD) else NotImplemented


def embedding_backward(
    grad: np.ndarray,
    indices: np.ndarray,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
) -> Any:
    """The rows of ``grad`` added up by index."""
    if scale_grad_by_freq or not is_dense(grad, 1) or not is_index(indices) or num_weights < 1:
        return NotImplemented
    width = grad.shape[-1] if grad.ndim else 0
    if indices.size * width != grad.size:
        return NotImplemented
    skipped = -1 if padding_idx is None else padding_idx % num_weights
    sizes = 1, num_weights, indices.size, width
    out = np.zeros((num_weights, width), grad.dtype)
    done = _write_rows(out, indices, 0, grad, sizes, ADD, skipped=skipped)
    return out if done else NotImplemented


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding_backward": embedding_backward,
    "getitem_backward": getitem_backward,
    "index_add": index_add,
    "index_copy": index_copy,
    "index_fill": index_fill,
    "index_put": index_put,
    "index_put_": index_put_,
    "index_reduce": index_reduce,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
