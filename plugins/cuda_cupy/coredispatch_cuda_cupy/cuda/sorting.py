"""Sorting along any dimension, the first k of an order, and runs of equal elements.

Short lines are sorted by a warp or a block. A long one is cut into tiles: of each byte, from the
lowest to the highest, the digits are counted, the counts summed up, and the elements moved (radix
sort). The first k of a long line are found by their bound, digit by digit from the highest, moved
to the front in their order, and sorted. Slices are merged in runs that become twice as long each
time. Everything is stable and nothing waits, but for the number of distinct elements or slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, along, blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family
from coredispatch_cuda_cupy.cuda.scans import scan_rows

__all__ = ["kernels"]

#: as in sorting.cu: elements of a line that a warp sorts, threads of a block, digits of a byte
_SHORT, _THREADS, _DIGITS = 128, 256, 256
_WARPS = _THREADS // 32
#: numbers of elements within a line are kept in 32 bits
_LONGEST = 2**31 - 1
#: so many times as long as what is wanted of it is a line at least that is not sorted whole
_SELECTED = 4
_INFINITIES = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}


def _order(dtype: Any) -> tuple[int, int] | None:
    """How elements of a dtype are compared, for the kernels; None for what has no order."""
    if dtype.name in _INFINITIES:
        return 2, _INFINITIES[dtype.name]
    kind = {"b": 0, "u": 0, "i": 1}.get(dtype.kind)
    return None if kind is None else (kind, 0)


class _Lines(NamedTuple):
    """Lines of ``n`` elements that lie ``inner`` apart, ``tiles`` tiles each."""

    lines: int
    n: int
    inner: int
    tiles: int

    @property
    def grid(self) -> int:
        """A block for each tile."""
        return min(self.lines * self.tiles, MOST_BLOCKS)


def _tile(itemsize: int) -> int:
    return _THREADS * (8 if itemsize == 8 else 16)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    sorter = _Sorter(cupy)
    runs = _Runs(cupy, sorter)

    def sort(self: Any, dim: int, descending: bool, stable: bool) -> Any:
        around = _around(self, dim)
        if around is None:
            return NotImplemented
        values, indices = cupy.empty(self.shape, self.dtype), cupy.empty(self.shape, "int64")
        if self.size:
            whole = around[1]
            sorter.sort(dense(cupy, self), 0, values, indices, around, whole, bool(descending))
        return values, indices

    def topk(self: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        around = _around(self, dim)
        if around is None or not 0 <= k <= around[1]:
            return NotImplemented
        dim %= self.ndim
        shape = (*self.shape[:dim], k, *self.shape[dim + 1 :])
        values, indices = cupy.empty(shape, self.dtype), cupy.empty(shape, "int64")
        if values.size:
            first = sorter.select if around[1] >= _SELECTED * k else sorter.sort_first
            first(dense(cupy, self), values, indices, around, k, bool(largest))
        return values, indices

    def slices(self: Any, dim: int, distinct: bool) -> Any:
        around = along(self.shape, dim)
        if around is None:
            return NotImplemented
        return runs.of_slices(dense(cupy, self), dim % self.ndim, around, distinct)

    def unique_all(self: Any, dim: int | None) -> Any:
        if not self.size or _order(self.dtype) is None:
            return NotImplemented
        if dim is not None:
            return slices(self, dim, True)
        if self.size > _LONGEST:
            return NotImplemented
        return runs.distinct(dense(cupy, self).reshape(-1), self.shape)

    def unique_runs(self: Any, dim: int | None) -> Any:
        if not self.size or _order(self.dtype) is None:
            return NotImplemented
        if dim is not None:
            return slices(self, dim, False)
        return runs.of(dense(cupy, self).reshape(-1), 0, self.shape)

    return {"sort": sort, "topk": topk, "unique_all": unique_all, "unique_runs": unique_runs}


def _around(x: Any, dim: int) -> tuple[int, int, int] | None:
    """``(outer, n, inner)`` around a dimension, where kernels take the array."""
    around = along(x.shape, dim) if _order(x.dtype) is not None else None
    return None if around is None or around[1] > _LONGEST else around


class _Sorter:
    """The launches that make up a sort."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.launch = Family(cupy, "sorting")

    def sort(
        self,
        x: Any,
        numbers: Any,
        values: Any,
        indices: Any,
        around: tuple[int, int, int],
        keep: int,
        descending: bool,
    ) -> None:
        """The first ``keep`` of each sorted line; ``numbers`` (int32) or 0 say where ``x`` was."""
        outer, n, inner = around
        lines, size = outer * inner, x.dtype.itemsize
        order = (*_required(x.dtype), int(descending))
        if n > _tile(size):
            self._by_bytes(x, numbers, values, indices, around, keep, order)
            return
        name, of_a_block = ("sort_short", _WARPS) if n <= _SHORT else ("sort_tile", 1)
        grid = min(-(-lines // of_a_block), MOST_BLOCKS)
        given = (x, numbers, values, indices, lines, n, inner, keep, *order)
        self.launch(name, size, grid, _THREADS, given)

    def sort_first(
        self,
        x: Any,
        values: Any,
        indices: Any,
        around: tuple[int, int, int],
        keep: int,
        descending: bool,
    ) -> None:
        """The first ``keep`` of each line, which is sorted whole."""
        self.sort(x, 0, values, indices, around, keep, descending)

    def _by_bytes(
        self,
        x: Any,
        numbers: Any,
        values: Any,
        indices: Any,
        around: tuple[int, int, int],
        keep: int,
        order: tuple[int, int, int],
    ) -> None:
        cupy, size, (outer, n, inner) = self.cupy, x.dtype.itemsize, around
        lines = outer * inner
        at = _Lines(lines, n, inner, -(-n // _tile(size)))
        counts = cupy.empty(lines * _DIGITS * at.tiles, "int32")
        totals = cupy.empty(lines * _DIGITS, "int32")
        # Between the passes lines lie one after the other, in two places by turns.
        spare = [(cupy.empty(x.size, x.dtype), cupy.empty(x.size, "int32")) for _ in range(2)]
        for k in range(size):
            last = k == size - 1
            shift, here = 8 * k, at if k == 0 else at._replace(inner=1)
            self.launch("count_bytes", size, at.grid, _THREADS, (x, counts, *here, shift, *order))
            self._sum(size, counts, totals, lines, at.tiles)
            put = (values, 0, indices) if last else (*spare[k % 2], 0)
            apart = inner if last else 1
            places = (*here[:3], apart, keep if last else n, at.tiles)
            given = (x, numbers, *put, counts, totals, *places, shift, *order)
            self.launch("move_by_bytes", size, at.grid, _THREADS, given)
            x, numbers = spare[k % 2]

    def _sum(self, size: int, counts: Any, totals: Any, lines: int, tiles: int) -> None:
        rows = lines * _DIGITS
        grid = min(rows // _WARPS, MOST_BLOCKS)
        self.launch("sum_counts", size, grid, _THREADS, (counts, totals, rows, tiles))

    def select(
        self,
        x: Any,
        values: Any,
        indices: Any,
        around: tuple[int, int, int],
        keep: int,
        descending: bool,
    ) -> None:
        """The first ``keep`` of each line, of which only these are sorted where it is long."""
        cupy, size, (outer, n, inner) = self.cupy, x.dtype.itemsize, around
        if n <= _tile(size):
            self.sort_first(x, values, indices, around, keep, descending)
            return
        lines = outer * inner
        at = _Lines(lines, n, inner, -(-n // _tile(size)))
        order = (*_required(x.dtype), int(descending))
        bounds, left = cupy.empty(lines, "int64"), cupy.empty(lines, "int64")
        found = cupy.zeros(lines * _DIGITS, "int32")
        for shift in range(8 * size - 8, -8, -8):
            given = (x, bounds, found, *at, shift, *order)
            self.launch("count_candidates", size, at.grid, _THREADS, given)
            chosen = (bounds, left, found, lines, keep, shift)
            self.launch("choose_digit", size, min(lines, MOST_BLOCKS), _THREADS, chosen)
        counts = cupy.empty(lines * _DIGITS * at.tiles, "int32")
        totals = cupy.empty(lines * _DIGITS, "int32")
        self.launch("count_sides", size, at.grid, _THREADS, (x, counts, *at, bounds, *order))
        self._sum(size, counts, totals, lines, at.tiles)
        front = cupy.empty(values.shape, x.dtype), cupy.empty(values.shape, "int32")
        places = (lines, n, inner, inner, keep, at.tiles, bounds)
        moving = (x, *front, counts, totals, *places, *order)
        self.launch("move_by_sides", size, at.grid, _THREADS, moving)
        self.sort(*front, values, indices, (outer, keep, inner), keep, descending)


class _Runs:
    """Distinct elements, or slices along a dimension, as the runs of a sorted list."""

    def __init__(self, cupy: Any, sorter: _Sorter) -> None:
        self.cupy, self.sorter = cupy, sorter
        self.scans = Family(cupy, "scans")

    def distinct(self, x: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
        """The distinct elements in order, the number of each element's, how often they occur."""
        values, order = self.cupy.empty(x.shape, x.dtype), self.cupy.empty(x.shape, "int64")
        self.sorter.sort(x, 0, values, order, (1, x.size, 1), x.size, False)
        return self.of(values, order, shape)

    def of(self, x: Any, order: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
        """Values, numbers and lengths of the runs of ``x``, which was at ``order`` (or 0)."""
        cupy, launch, n, size = self.cupy, self.sorter.launch, x.size, x.dtype.itemsize
        kind, infinity = _required(x.dtype)
        grid, numbers = blocks(n), cupy.empty(n, "int64")
        launch("mark_runs", size, grid, 256, (x, numbers, n, kind, infinity))
        numbers = scan_rows(cupy, self.scans, "cumsum", numbers, (1, n, 1))[0]
        count = int(numbers[-1])  # waits: the sizes of the results are for the host to know
        values, starts = cupy.empty(count, x.dtype), cupy.empty(count, "int64")
        inverse, lengths = cupy.empty(shape, "int64"), cupy.empty(count, "int64")
        launch("write_runs", size, grid, 256, (x, order, numbers, values, starts, inverse, n, kind))
        launch("run_lengths", size, blocks(count), 256, (starts, lengths, count, n))
        return values, inverse, lengths

    def of_slices(
        self, x: Any, dim: int, around: tuple[int, int, int], distinct: bool
    ) -> tuple[Any, Any, Any]:
        """Slices, numbers and lengths of the runs of equal slices along a dimension.

        With ``distinct`` they are sorted first.
        """
        cupy, launch, size = self.cupy, self.sorter.launch, x.dtype.itemsize
        n, how = around[1], _required(x.dtype)
        order = self._sorted_slices(x, around) if distinct else 0
        numbers = cupy.empty(n, "int64")
        grid = min(-(-n // _WARPS), MOST_BLOCKS)
        launch("mark_slices", size, grid, _THREADS, (x, order, numbers, *around, *how))
        numbers = scan_rows(cupy, self.scans, "cumsum", numbers, (1, n, 1))[0]
        count = int(numbers[-1])  # waits: the sizes of the results are for the host to know
        chosen, starts, lengths = (cupy.empty(count, "int64") for _ in range(3))
        inverse = cupy.empty(n, "int64")
        launch("number_slices", size, blocks(n), 256, (order, numbers, chosen, starts, inverse, n))
        launch("run_lengths", size, blocks(count), 256, (starts, lengths, count, n))
        values = cupy.empty((*x.shape[:dim], count, *x.shape[dim + 1 :]), x.dtype)
        given = (x, chosen, values, *around, count, how[0], int(distinct))
        launch("take_slices", size, blocks(values.size), 256, given)
        return values, inverse, lengths

    def _sorted_slices(self, x: Any, around: tuple[int, int, int]) -> Any:
        """The order of slices, of which equal ones stay as they are."""
        n, width = around[1], 1
        order, other = self.cupy.arange(n, dtype="int64"), self.cupy.empty(n, "int64")
        while width < n:
            given = (x, order, other, *around, *_required(x.dtype), width)
            self.sorter.launch("merge_slices", x.dtype.itemsize, blocks(n), 256, given)
            order, other, width = other, order, 2 * width
        return order


def _required(dtype: Any) -> tuple[int, int]:
    found = _order(dtype)
    assert found is not None  # looked at by whoever takes the call
    return found
