"""Reductions over neighbouring dimensions of a contiguous array.

Sums and means also take dimensions with others between them, and arrays of another order or with
gaps, as slices are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS, INT64, is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import (
    BLOCK,
    NARROW,
    along,
    around,
    reduced,
    runs,
    spread,
    strips,
    tiles,
)

__all__ = ["KERNELS", "LEAST", "WHEN"]

Kernel = Callable[..., Any]

_LEAST = 2048
_LEAST_TOTAL = 512  # sums, means and extrema
_FEW = 8192  # elements below which the detour over strips costs more than the additions
_TALL = 2048  # elements of a matrix of few columns whose rows are taken several at a time
_SPLIT = 65536
_FEW_RESULTS = 1024
_NOTHING = (0, 0, 0)  # never seen: the predicates reject what cannot be laid out


def _tiles(outer: int, inner: int, size: int) -> tuple[int, int]:
    return tiles(outer, inner, thread_count.wanted if size >= _SPLIT else 1)


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """``(outer, n, inner)`` and the result's shape; None where ``dim`` are no neighbours."""
    spans = along(shape, dim)
    return spans and (*spans, reduced(shape, dim, keepdim))


@lru_cache(maxsize=1024)
def _apart(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, dim: Any, keepdim: bool
) -> Any:
    """Where what is summed lies in an array that is not contiguous.

    ``(outer, n, inner)``, how far one matrix and one row are from the next, and the result's shape.
    Or a tuple of one: the dimensions to sum over first. None for what is left to others.
    """
    spans = spread(shape, strides, itemsize, dim)
    if spans is None:
        return None
    kinds = "".join(kind for kind, *_ in spans)
    if kinds.endswith("++"):
        return (spans[-1][3],)
    if kinds not in ("+", " +", "+ ", " + "):
        return None
    outer, across = spans[0][1:3] if kinds[0] == " " else (1, 0)
    _, n, down, _ = spans[kinds.index("+")]
    inner = spans[-1][1] if kinds[-1] == " " else 1
    return outer, n, inner, across, down, reduced(shape, dim, keepdim)


def _sum(mean: bool) -> Kernel:
    name = "mean" if mean else "sum"
    rows = Loop("reduction.sums", f"{name}_rows", _SPLIT)
    columns = Loop("reduction.sums", f"{name}_columns", _SPLIT)
    blocks = Loop("reduction.sums", "sum_blocks", _SPLIT)
    fold = Loop("reduction.sums", f"{name}_fold", _SPLIT)
    narrow = Loop("reduction.sums", "sum_strips", _SPLIT)
    beside = Loop("reduction.sums", "sum_around", _SPLIT)

    few_rows, few_columns = rows.compiled, columns.compiled

    def kernel(self: np.ndarray, dim: Any, keepdim: bool, dtype: Any = None) -> Any:
        if dtype is not None or self.dtype not in FLOATS:
            return NotImplemented
        size, own = self.size, self.dtype
        if self.flags.c_contiguous:
            plan = _plan(self.shape, dim, keepdim)
            if plan is None:
                found = sum_around(self, dim, keepdim)
                return sum_apart(self, dim, keepdim) if found is NotImplemented else found
            outer, n, inner, shape = plan
            across, down = n * inner, inner
        else:
            plan = _apart(self.shape, self.strides, self.itemsize, dim, keepdim)
            if plan is None:
                return NotImplemented
            if len(plan) == 1:
                some = kernel(self, plan[0], True)
                return some if some is NotImplemented else kernel(some, dim, keepdim)
            outer, n, inner, across, down, shape = plan
        flat = down == inner and across == n * inner
        if 1 < inner < NARROW and size >= _FEW and flat and n * inner >= _TALL:
            height, count = strips(n, 4096) if outer == 1 else (n, outer)
            parts, every = np.empty((count, inner)), outer * n
            narrow(own, size, count, self, every, inner, height, parts, weight=height * inner)
            total = np.add.reduce(parts, 0) if outer == 1 else parts
            return (total / n if mean else total).astype(own).reshape(shape)
        out = np.empty(shape, own)
        if inner > 1:
            tile, count = _tiles(outer, inner, size)
            arguments = (self, n, inner, across, down, tile, count, out)
            if size < _SPLIT or thread_count.wanted == 1:  # Loop.__call__ written out
                launch, task, _ = few_columns[own]
                launch(*arguments, outer * count, outer * count, task, 0)
            else:
                columns(own, size, outer * count, *arguments, weight=tile * n)
        elif size < _SPLIT or thread_count.wanted == 1:
            launch, task, _ = few_rows[own]
            launch(self, n, across, out, outer, outer, task, 0)
        elif outer > 1:
            rows(own, size, outer, self, n, across, out, weight=n)
        else:  # the same additions in the same order, block by block
            count = (n + BLOCK - 1) // BLOCK
            parts = np.empty(count)
            blocks(own, size, count, self, parts, weight=BLOCK)
            fold(own, count, 1, parts, n, out)
        return out

    def sum_around(self: np.ndarray, dim: Any, keepdim: bool) -> Any:
        """All dimensions but one in the middle; shorter rows are no work for vectors."""
        spans = around(self.shape, dim)
        if spans is None or spans[2] < 16:
            return NotImplemented
        outer, n, inner = spans
        out = np.empty(reduced(self.shape, dim, keepdim), self.dtype)
        beside(self.dtype, self.size, n, self, n, inner, int(mean), out, weight=outer * inner)
        return out

    def sum_apart(self: np.ndarray, dim: Any, keepdim: bool) -> Any:
        """Dimensions with others between them: one run of neighbours after the other."""
        found = runs(self.ndim, dim)
        if found is None:
            return NotImplemented
        out: Any = self
        for neighbours in found:
            out = kernel(out, neighbours, True)
        return out if keepdim else out.reshape(reduced(self.shape, dim, False))

    kernel.__name__ = name
    return kernel


def prod(self: np.ndarray, dim: Any, keepdim: bool, dtype: Any = None) -> np.ndarray:
    """Products of rows."""
    outer, n, _ = along(self.shape, dim) or _NOTHING
    out = np.empty(reduced(self.shape, dim, keepdim), self.dtype)
    _prod_rows(self.dtype, self.size, outer, self, n, out, weight=n)
    return out


_prod_rows = Loop("reduction.sums", "prod_rows", _SPLIT)


def _extreme(name: str) -> Kernel:
    rows = Loop("reduction.sums", f"{name}_rows", _SPLIT)
    columns = Loop("reduction.sums", f"{name}_columns", _SPLIT)
    blocks = Loop("reduction.sums", f"{name}_blocks", _SPLIT)
    few_rows, few_columns = rows.compiled, columns.compiled

    def kernel(self: np.ndarray, dim: Any, keepdim: bool) -> Any:
        if not is_dense(self, 1):
            return NotImplemented
        plan = _plan(self.shape, dim, keepdim)
        if plan is None:
            return NotImplemented
        outer, n, inner, shape = plan
        size, own = self.size, self.dtype
        out = np.empty(shape, own)
        if size < _SPLIT:  # Loop.__call__ written out: 0.15 us of the 1.5 for 1,000 elements
            if inner > 1:
                launch, task, _ = few_columns[own]
                launch(self, n, inner, inner, 1, out, outer, outer, task, 0)
            else:
                launch, task, _ = few_rows[own]
                launch(self, n, out, outer, outer, task, 0)
        elif inner > 1:
            tile, count = _tiles(outer, inner, size)
            columns(own, size, outer * count, self, n, inner, tile, count, out, weight=tile * n)
        elif outer > 1 or thread_count.wanted == 1:
            rows(own, size, outer, self, n, out, weight=n)
        else:
            count = (n + BLOCK - 1) // BLOCK
            parts = np.empty(count, own)
            blocks(own, size, count, self, parts, weight=BLOCK)
            rows(own, count, 1, parts, count, out)
        return out

    kernel.__name__ = name
    return kernel


def _arg(name: str) -> tuple[Kernel, Kernel]:
    """Where the extremes are, and the extremes along one dimension with that."""
    rows = Loop("reduction.sums", f"{name}_rows", _SPLIT)
    columns = Loop("reduction.sums", f"{name}_columns", _SPLIT)
    few_rows, few_columns = rows.compiled, columns.compiled

    def found(self: np.ndarray, dim: int | None, keepdim: bool, both: int) -> Any:
        outer, n, inner = along(self.shape, dim) or _NOTHING
        size, own = self.size, self.dtype
        shape = reduced(self.shape, dim, keepdim)
        out, values = np.empty(shape, INT64), np.empty(shape, own) if both else self
        if inner > 1:
            tile, count = _tiles(outer, inner, size)
            arguments = (self, n, inner, tile, count, out, both, values)
            if size < _SPLIT:  # Loop.__call__ written out
                launch, task, _ = few_columns[own]
                launch(*arguments, outer * count, outer * count, task, 0)
            else:
                columns(own, size, outer * count, *arguments, weight=tile * n)
        elif size < _SPLIT:
            launch, task, _ = few_rows[own]
            launch(self, n, out, both, values, outer, outer, task, 0)
        else:
            rows(own, size, outer, self, n, out, both, values, weight=n)
        return (values, out) if both else out

    def kernel(self: np.ndarray, dim: int | None, keepdim: bool) -> Any:
        return found(self, dim, keepdim, 0)

    def pair(self: np.ndarray, dim: int, keepdim: bool) -> Any:
        if not is_dense(self, 1) or not self.ndim or not along(self.shape, dim):
            return NotImplemented
        return found(self, dim, keepdim, 1)

    kernel.__name__, pair.__name__ = name, f"{name[3:]}_dim"
    return kernel, pair


def _without_nan(name: str, added: Kernel) -> Kernel:
    """The sum or mean is that of all elements unless it is NaN: then some may be."""

    def kernel(self: np.ndarray, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if dtype is not None or not is_dense(self, 1):
            return NotImplemented
        out = added(self, dim or (), keepdim)
        if out is NotImplemented:
            return out
        # What adds up squares warns of nothing, and takes half of the time.
        few = out.size <= _FEW_RESULTS
        none = not np.isnan(np.vdot(out, out)) if few else not np.isnan(out).any()
        return out if none else NotImplemented

    kernel.__name__ = f"nan{name}"
    return kernel


def _accepts_rows(self: Any, dim: Any, keepdim: bool, dtype: Any = None) -> bool:
    if dtype is not None or not is_dense(self, _LEAST):
        return False
    spans = along(self.shape, dim)
    return spans is not None and spans[2] == 1


def _accepts_arg(self: Any, dim: int | None, keepdim: bool) -> bool:
    """NumPy's search along long rows is vectorized; short rows and columns are not."""
    if not is_dense(self, _LEAST):
        return False
    spans = along(self.shape, dim)
    if spans is None:
        return False
    outer, n, inner = spans
    if inner == 1:
        return n <= 64 or (outer > 1 and self.size >= 4 * _SPLIT)
    return inner >= 16


_added, _averaged = _sum(False), _sum(True)
_argmax, _max_dim = _arg("argmax")
_argmin, _min_dim = _arg("argmin")
KERNELS: dict[str, Kernel] = {
    "sum": _added,
    "mean": _averaged,
    "prod": prod,
    "amax": _extreme("amax"),
    "amin": _extreme("amin"),
    "argmax": _argmax,
    "argmin": _argmin,
    "max_dim": _max_dim,
    "min_dim": _min_dim,
    "nansum": _without_nan("sum", _added),
    "nanmean": _without_nan("mean", _averaged),
}
WHEN: dict[str, Callable[..., bool]] = {
    "prod": _accepts_rows,
    "argmax": _accepts_arg,
    "argmin": _accepts_arg,
}
LEAST: dict[str, int] = {
    **dict.fromkeys(KERNELS, _LEAST),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "nansum", "nanmean"), _LEAST_TOTAL),
    **dict.fromkeys(("max_dim", "min_dim"), 64),
}
