"""How arrays are cut into the blocks of a grid."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

__all__ = [
    "COLUMNS",
    "COLUMN_THREADS",
    "MOST_BLOCKS",
    "along",
    "blocks",
    "dense",
    "has_channels_last",
    "line_grid",
    "row_threads",
]

#: neighbouring lines that a block shares where lines do not lie along memory, and its threads then
COLUMNS, COLUMN_THREADS = 32, 256
#: blocks of a grid, at most: kernels go through the rest in steps of the grid
MOST_BLOCKS = 2**31 - 1
_POINTWISE_BLOCKS = 1 << 16


def dense(cupy: Any, x: Any) -> Any:
    """``x``, or a copy whose elements lie in order."""
    return x if x.flags.c_contiguous else cupy.ascontiguousarray(x)


@lru_cache(maxsize=4096)
def along(shape: tuple[int, ...], dim: int) -> tuple[int, int, int] | None:
    """``(outer, n, inner)`` around a dimension; None where there is no such dimension."""
    if not -len(shape) <= dim < len(shape):
        return None
    dim %= len(shape)
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


def row_threads(n: int) -> int:
    """Threads that share a row of ``n`` elements: some elements each, a power of two."""
    return min(1024, max(32, 1 << (max(n, 4) // 4 - 1).bit_length()))


def line_grid(outer: int, n: int, inner: int) -> tuple[int, int]:
    """Blocks and threads for lines along the middle of ``(outer, n, inner)``."""
    if inner == 1:
        return min(outer, MOST_BLOCKS), row_threads(n)
    return min(outer * -(-inner // COLUMNS), MOST_BLOCKS), COLUMN_THREADS


def blocks(size: int, threads: int = 256) -> int:
    """Blocks of so many threads for ``size`` elements, one or more for each thread."""
    return max(1, min(-(-size // threads), _POINTWISE_BLOCKS))


def has_channels_last(x: Any) -> bool:
    """Whether channels lie next to each other, and the array is not contiguous as it is."""
    if x.flags.c_contiguous or x.shape[1] == 1:
        return False
    expected, strides = x.itemsize, x.strides
    for axis in (1, *range(x.ndim - 1, 1, -1), 0):
        if x.shape[axis] > 1 and strides[axis] != expected:
            return False
        expected *= x.shape[axis]
    return True
