"""Lists of tensors as one kernel goes through them: a table of addresses, cut into parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy import capture
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS
from coredispatch_cuda_cupy.cuda.loading import FLOATS, is_float

__all__ = ["NUMBER_TYPES", "PART", "THREADS", "Table", "Tables", "are_alike"]

THREADS = 256
#: elements of a tensor that a block takes
PART = 8192
#: the types of numbers on the device, as in parts.cu
NUMBER_TYPES = {name: number for number, name in enumerate(FLOATS)}
#: tables that are kept: one for each group of tensors, while they lie where they lay
_KEPT = 32


class Table(NamedTuple):
    """A table on the device; ``arguments`` are what a kernel is told of it (see parts.cu)."""

    array: Any
    lists: int
    tensors: int
    parts: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The table, its lists, tensors and parts, and the length of a part."""
        return self.array, self.lists, self.tensors, self.parts, PART

    @property
    def grid(self) -> int:
        """Blocks for all parts; 0 where there are no elements."""
        return min(self.parts, MOST_BLOCKS)


class Tables:
    """Tables that are made anew where arrays lie elsewhere than before.

    A graph that is captured has tables of its own, which it keeps.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.known: dict[Any, Table] = {}

    def of(
        self, *lists: Any, written: tuple[int, ...] | None = None, numbers: Any = ()
    ) -> Table | None:
        """The table of lists, of which one that is empty is left out.

        ``written`` says which lists a kernel writes to; all, where it is not given. ``numbers`` are
        arrays without dimensions, one for each tensor, which it writes to as well.

        None where the arrays beside each other are not alike, not all are of one dtype, what is
        written shares memory with another array.
        """
        given = [members for members in lists if members]
        if not given:
            return None
        cuda = self.cupy.cuda
        where = int(cuda.runtime.getDevice()), cuda.get_current_stream().ptr
        own = [(x.data.ptr, x.shape, x.strides, x.dtype) for members in given for x in members]
        beside = tuple((x.data.ptr, x.dtype) for x in numbers)
        key = (where, written, tuple(map(len, given)), *own, beside)
        graph = capture.current()
        found = self.known.get(key) if graph is None else None
        if found is None:
            if len({len(members) for members in given}) > 1:
                return None
            if not all(_are_even(row) for row in zip(*given, strict=True)):
                return None
            if len({x.dtype for x in given[0]}) > 1:
                return None
            places = None if written is None else (*written, len(given))
            if not _are_apart([*given, numbers], places):
                return None
            if graph is not None:
                return self._made(given, numbers, graph.table)
            if len(self.known) >= _KEPT:
                self.known.clear()
            found = self.known[key] = self._made(given, numbers, self.cupy.asarray)
        return found

    def _made(self, lists: list[Any], beside: Any, put: Callable[[Any], Any]) -> Table:
        sizes = [x.size for x in lists[0]]
        counts = [-(-size // PART) for size in sizes]
        parts = [(k, j * PART) for k, count in enumerate(counts) for j in range(count)]
        numbers = [x.data.ptr for members in lists for x in members]
        numbers += [*sizes, *(k for k, _ in parts), *(start for _, start in parts)]
        numbers += np.cumsum([0, *counts[:-1]]).tolist()
        numbers += [*(x.data.ptr for x in beside), *(0 for _ in beside)]
        array = put(np.array(numbers, np.int64))
        return Table(array, len(lists), len(sizes), len(parts))


def are_alike(first: Any, *others: Any) -> bool:
    """Whether the arrays that are there are of one shape and dtype, dense, and apart in memory."""
    given = [first, *(x for x in others if x is not None)]
    return _are_even(given) and _are_apart([given], None)


def _are_even(given: Any) -> bool:
    """Whether arrays are dense, and of one shape and dtype."""
    first = given[0]
    for x in given:
        if x.shape != first.shape or x.dtype != first.dtype or not x.flags.c_contiguous:
            return False
    return is_float(first.dtype)


def _are_apart(lists: Any, written: tuple[int, ...] | None) -> bool:
    """Whether dense arrays that are written share no memory with each other and with the rest.

    Blocks run in no order, so a tensor that stands in a list twice is none for one kernel.
    """
    spans = sorted(
        (x.data.ptr, x.data.ptr + x.nbytes, written is None or number in written)
        for number, members in enumerate(lists)
        for x in members
        if x.size
    )
    end = written_end = 0
    for start, stop, is_written in spans:
        if start < (end if is_written else written_end):
            return False
        end = max(end, stop)
        written_end = max(written_end, stop) if is_written else written_end
    return True
