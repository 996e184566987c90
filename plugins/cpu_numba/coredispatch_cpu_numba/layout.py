"""How arrays are cut for the loops: an array as ``(outer, n, inner)``, and the sizes of pieces.

The pieces are fixed by the shape alone, never by the number of threads, so that the order of
additions is, too. Importing this does not import Numba.
"""

from __future__ import annotations

from math import prod
from typing import Any

__all__ = ["BLOCK", "COLUMNS", "NARROW", "TILE", "along", "strips", "tiles"]

#: elements of a row that are added up before the sum is carried on in float64
BLOCK = 4096
#: columns that a reduction over rows keeps running results for
TILE = 1024
#: columns that softmax over rows works on at a time; it passes over them three times
COLUMNS = 128
#: below this many columns, a sum over rows takes several rows for one
NARROW = 128


def along(shape: tuple[int, ...], dims: Any) -> tuple[int, int, int] | None:
    """``shape`` as ``(outer, n, inner)`` with ``n`` counting what ``dims`` span.

    ``dims`` is an int, or a sequence of ints that are neighbours in any order; None or empty
    means all. None if they are not neighbours, or not dimensions of the shape.
    """
    ndim = len(shape)
    if dims is None or dims == ():
        return 1, prod(shape), 1
    if type(dims) is int:
        dims = (dims,)
    first, last = ndim, -1
    for dim in dims:
        if not -ndim <= dim < ndim:
            return None
        dim %= ndim
        first, last = min(first, dim), max(last, dim)
    if last - first + 1 != len(dims) or len({dim % ndim for dim in dims}) != len(dims):
        return None
    return prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])


def tiles(outer: int, inner: int) -> tuple[int, int]:
    """``(tile, count)``: the width of a tile of columns, and how many cover ``inner``.

    A single matrix of few columns is cut finer, so that threads can share it.
    """
    tile = min(TILE, inner) if outer > 1 else min(TILE, max(64, (inner + 7) // 8))
    return tile, (inner + tile - 1) // tile


def strips(n: int, least: int) -> tuple[int, int]:
    """``(height, count)``: ``n`` rows cut into at most 16 strips of at least ``least`` rows."""
    height = max(least, (n + 15) // 16)
    return height, (n + height - 1) // height
