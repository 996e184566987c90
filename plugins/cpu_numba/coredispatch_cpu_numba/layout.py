"""How arrays are cut for the loops: an array as ``(outer, n, inner)``, and the sizes of pieces.

The pieces are fixed by the shape alone, never by the number of threads, so that the order of
additions is, too. Importing this does not import Numba.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

__all__ = [
    "BLOCK",
    "CHAINS",
    "COLUMNS",
    "NARROW",
    "TILE",
    "along",
    "around",
    "reduced",
    "strips",
    "tiles",
]

Shape = tuple[int, ...]

#: elements of a row that are added up before the sum is carried on in float64
BLOCK = 4096
#: cumulative sums that run side by side
CHAINS = 8
#: columns that a reduction over rows keeps running results for
TILE = 1024
#: columns that softmax over rows works on at a time; it passes over them three times
COLUMNS = 128
#: below this many columns, a sum over rows takes several rows for one
NARROW = 128


@lru_cache(maxsize=1024)
def along(shape: Shape, dims: Any) -> tuple[int, int, int] | None:
    """``shape`` as ``(outer, n, inner)`` with ``n`` counting what ``dims`` span.

    ``dims`` is an int, or a tuple of ints that are neighbours in any order; None or empty means
    all. The result is None if they are not neighbours, or not dimensions of the shape.
    """
    ndim = len(shape)
    if dims is None or dims == ():
        return 1, prod(shape), 1
    if type(dims) is int:
        dims = (dims,)
    if not all(-ndim <= dim < ndim for dim in dims):
        return None
    places = {dim % ndim for dim in dims}
    first, last = min(places), max(places)
    if not len(places) == len(dims) == last - first + 1:
        return None
    return prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])


@lru_cache(maxsize=1024)
def around(shape: Shape, dims: Any) -> tuple[int, int, int] | None:
    """``shape`` as ``(outer, n, inner)`` with ``n`` counting the one dimension not in ``dims``.

    None unless ``dims`` are all dimensions but one, which is neither the first nor the last.
    """
    ndim = len(shape)
    if type(dims) is not tuple or len(dims) != ndim - 1:
        return None
    places = {dim % ndim for dim in dims if -ndim <= dim < ndim}
    if len(places) != ndim - 1 or 0 not in places or ndim - 1 not in places:
        return None
    (kept,) = set(range(ndim)) - places
    return prod(shape[:kept]), shape[kept], prod(shape[kept + 1 :])


@lru_cache(maxsize=1024)
def reduced(shape: Shape, dims: Any, keepdim: bool) -> Shape:
    """``shape`` without ``dims``, or with size 1 in their places."""
    ndim = len(shape)
    if dims is None or dims == ():
        dims = tuple(range(ndim))
    places = {dim % ndim for dim in ((dims,) if type(dims) is int else dims)}
    if keepdim:
        return tuple(1 if place in places else size for place, size in enumerate(shape))
    return tuple(size for place, size in enumerate(shape) if place not in places)


def tiles(outer: int, inner: int, threads: int) -> tuple[int, int]:
    """``(tile, count)``: the width of a tile of columns, and how many cover ``inner``.

    A single matrix is cut into as many as there are threads to share it. Columns do not depend on
    each other, so neither do results on the width.
    """
    tile = min(TILE, inner)
    if threads > 1 and outer == 1:
        tile = min(tile, max(128, ((inner + threads - 1) // threads + 15) & ~15))
    return tile, (inner + tile - 1) // tile


def strips(n: int, least: int) -> tuple[int, int]:
    """``(height, count)``: ``n`` rows cut into at most 16 strips of at least ``least`` rows."""
    height = max(least, (n + 15) // 16)
    return height, (n + height - 1) // height
