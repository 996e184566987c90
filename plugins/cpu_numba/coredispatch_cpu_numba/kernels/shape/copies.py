"""cat, clone, contiguous and pad of large arrays, whose memory several threads bring over."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64, POINTWISE, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = [
    "ACCEPTS",
    "KERNELS",
    "LEAST",
    "LEAST_SHARED",
    "WHEN",
    "accepts_border",
    "clone",
    "constant_pad_nd",
]

LEAST_SHARED = 65536  # elements: one thread fills the caches of a core
_BYTES = np.dtype(np.uint8)
_UNIT, _LINE = 4096, 64
_FEW = 2048  # rows
_JOINED = 32768  # elements of all arrays to be joined, by the first or last of them
_SHORT = 64  # bytes: calls of memcpy for runs as short cost NumPy most of its time
_SHARED = 1 << 18  # bytes of each array, on average, from which threads share the work
_WORDS = {4: np.dtype(np.float32), 8: np.dtype(np.float64)}  # what moves elements of so many bytes
_copied = Loop("shape.copies", "copied", 2 * LEAST_SHARED)
_transposed = Loop("shape.copies", "transposed", 2 * LEAST_SHARED)
_paired = Loop("shape.copies", "paired", 2 * LEAST_SHARED)
_beside = Loop("shape.copies", "beside", 2 * LEAST_SHARED)
_strung = Loop("shape.copies", "strung", 2 * LEAST_SHARED)
_joined = Loop("shape.copies", "joined", 2 * LEAST_SHARED)
_exchanged = Loop("shape.copies", "exchanged", 2 * LEAST_SHARED)
_bordered = Loop("shape.copies", "bordered", 4 * LEAST_SHARED)


def clone(self: np.ndarray, memory_format: Any) -> np.ndarray:
    """The elements in memory of their own."""
    out = np.empty(self.shape, self.dtype)
    size = self.nbytes
    _copied(_BYTES, size, -(-size // _UNIT), self, out, size, weight=_UNIT, grain=_UNIT // 64)
    return out


def cat(tensors: Any, dim: int) -> Any:
    """The arrays one after the other along ``dim``, where that is work for two threads.

    On one thread NumPy is as fast but for many short runs.
    """
    many = len(tensors)
    if many < 2 or max(tensors[0].size, tensors[-1].size) * many < _JOINED:
        return NotImplemented
    first, size = tensors[0], 0
    dtype, ndim = first.dtype, first.ndim
    if dim < 0:
        dim += ndim
    if not 0 <= dim < ndim or dtype.hasobject:
        return NotImplemented
    before, after = first.shape[:dim], first.shape[dim + 1 :]
    for x in tensors:
        shape = x.shape
        if len(shape) != ndim or shape[:dim] != before or shape[dim + 1 :] != after:
            return NotImplemented
        if x.dtype != dtype or not x.flags.c_contiguous:
            return NotImplemented
        size += x.nbytes
    rows = prod(before)
    width = size // max(rows, 1)
    if width > _SHORT * many and (thread_count.wanted == 1 or size < _SHARED * many):
        return NotImplemented
    out = np.empty((*before, sum(x.shape[dim] for x in tensors), *after), dtype)
    units = -(-size // _UNIT)
    if many == 2:  # the commonest: a table takes as long to write as 100 kB
        if rows == 1:
            pair = *tensors, out, first.nbytes, size
            _paired(_BYTES, size, units, *pair, weight=_UNIT, grain=_UNIT // 64)
        else:
            pair = *tensors, out, first.nbytes // rows, width
            _beside(_BYTES, size, rows, *pair, weight=width)
        return out
    runs = np.array([(x.ctypes.data, x.nbytes // rows) for x in tensors], INT64).reshape(-1)
    if rows == 1:
        strung = runs, many, out, size
        _strung(_BYTES, size, units, *strung, weight=_UNIT, grain=_UNIT // 64)
    else:
        _joined(_BYTES, size, rows, runs, many, out, width, weight=width)
    return out


def contiguous(self: np.ndarray, memory_format: Any) -> Any:
    """Two groups of neighbouring dimensions change places: matrices of elements, or of runs."""
    found = _exchanges(self.shape, self.strides, self.itemsize)
    return NotImplemented if found is None else _exchange(self, self.transpose(found[0]), *found[1])


@lru_cache(maxsize=1024)
def _exchanges(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Any:
    """The dimensions from the outermost on; rows, columns and runs of the matrices. Or None."""
    ndim = len(shape)
    for first in range(ndim - 1):
        for end in range(first + 2, ndim + 1):
            for middle in range(first + 1, end):
                before, after = range(first), range(end, ndim)
                order = *before, *range(middle, end), *range(first, middle), *after
                if _is_packed([shape[d] for d in order], [strides[d] for d in order], itemsize):
                    n, m = prod(shape[first:middle]), prod(shape[middle:end])
                    return order, (m, n, prod(shape[end:]))
    return None


def _is_packed(lengths: list[int], strides: list[int], itemsize: int) -> bool:
    for n, step in zip(reversed(lengths), reversed(strides), strict=True):
        if n != 1 and step != itemsize:
            return False
        itemsize *= n
    return True


def _exchange(self: np.ndarray, given: np.ndarray, m: int, n: int, run: int) -> Any:
    """``self``, whose memory is that of ``given``: matrices of ``m`` rows and ``n`` columns."""
    line = _LINE // self.itemsize
    if run == 1 and min(m, n) < line or 1 < run < line:
        return NotImplemented  # no whole blocks, or too much around each run
    out = np.empty(self.shape, self.dtype)
    if run > 1:
        size = run * self.itemsize
        _exchanged(
            _BYTES, self.nbytes, out.size // (m * run), given, out, m, n, size, weight=m * size
        )
        return out
    dtype = _WORDS[self.itemsize]
    strips = -(-n // line)
    count = out.size // (m * n) * strips
    arguments = given.view(dtype), out.view(dtype), m, n, strips
    _transposed(dtype, out.size, count, *arguments, weight=m * line)
    return out


def _accepts_cat(tensors: Any, dim: int) -> bool:
    return cat(tensors, dim) is not NotImplemented


def _accepts_contiguous(self: Any, memory_format: Any) -> bool:
    return (
        not self.flags.c_contiguous
        and self.itemsize in _WORDS
        and not self.dtype.hasobject
        and (memory_format is None or str(memory_format).endswith("contiguous_format"))
    )


def _accepts_clone(self: Any, memory_format: Any) -> bool:
    return (
        self.flags.c_contiguous
        and (memory_format is None or str(memory_format).endswith(("preserve", "preserve_format")))
        and not self.dtype.hasobject
    )


def _bordered_rows(shape: tuple[int, ...], pad: tuple[int, ...]) -> Any:
    """Shape, rows of the source for those of the result, and where in them their elements go.

    None where NumPy's kernel has to say what is wrong.
    """
    if len(pad) % 2 or not 0 < len(pad) <= 2 * len(shape):
        return None
    # (length, elements that go at its begin, those that stay, border before, border behind)
    sides = []
    for length, before, after in zip(reversed(shape), pad[::2], pad[1::2]):
        kept = length + min(before, 0) + min(after, 0)
        if kept <= 0:
            return None
        sides.append((length, max(-before, 0), kept, max(before, 0), max(after, 0)))
    lead = shape[: len(shape) - len(sides)]
    rows = np.arange(prod(lead), dtype=INT64)
    for length, first, kept, before, after in reversed(sides[1:]):
        inner = np.full((rows.size, before + kept + after), -1, INT64)
        taken = rows[:, None] * length + np.arange(first, first + kept)
        inner[:, before : before + kept] = np.where(rows[:, None] < 0, -1, taken)
        rows = inner.reshape(-1)
    whole = *lead, *(b + k + a for _, _, k, b, a in reversed(sides))
    length, first, kept, before, _ = sides[0]
    return whole, rows, (length, whole[-1], first, before, kept)


_few_bordered_rows = lru_cache(maxsize=64)(_bordered_rows)


def constant_pad_nd(self: np.ndarray, pad: tuple[int, ...], value: Any) -> Any:
    """Rows of the result, one after the other: borders, and what lies between them."""
    few = self.size <= _FEW * self.shape[-1]  # they are kept: to number them takes long
    found = (_few_bordered_rows if few else _bordered_rows)(self.shape, pad)
    if found is None:
        return NotImplemented
    shape, rows, places = found
    out = np.empty(shape, self.dtype)
    _bordered(
        self.dtype, out.size, rows.size, self, out, rows, *places, float(value), weight=places[1]
    )
    return out


def accepts_border(self: Any, pad: Any, value: Any) -> bool:
    return is_dense(self, 64, POINTWISE) and type(value) in (int, float)


KERNELS: dict[str, Callable[..., Any]] = {
    "cat": cat,
    "clone": clone,
    "constant_pad_nd": constant_pad_nd,
    "contiguous": contiguous,
}
ACCEPTS: dict[str, Callable[..., bool]] = {"cat": _accepts_cat}
WHEN: dict[str, Callable[..., bool]] = {
    "clone": _accepts_clone,
    "constant_pad_nd": accepts_border,
    "contiguous": _accepts_contiguous,
}
LEAST: dict[str, int] = {"clone": LEAST_SHARED, "constant_pad_nd": 64, "contiguous": 16384}
