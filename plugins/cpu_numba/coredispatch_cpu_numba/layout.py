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
    "runs",
    "spread",
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
def runs(ndim: int, dims: Any) -> tuple[tuple[int, ...], ...] | None:
    """``dims`` in runs of neighbours, the last ones first; None if there is one run, or none."""
    if type(dims) is not tuple or not all(-ndim <= dim < ndim for dim in dims):
        return None
    places = sorted({dim % ndim for dim in dims})
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][-1] == place - 1:
            found[-1].append(place)
        else:
            found.append([place])
    if len(places) != len(dims) or len(found) < 2:
        return None
    return tuple(map(tuple, reversed(found)))


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


def spread(shape: Shape, strides: Shape, itemsize: int, dims: Any) -> Any:
    """The memory of an array with gaps, or in another order, as spans to go along or to sum over.

    Spans are ``(kind, count, step, dimensions)`` from the outermost to the innermost one: ``"+"``
    of ``dims``, ``" "`` of others, with steps in elements. Dimensions of one kind are one span
    where they lie without a gap. None where dims are no dimensions, where the innermost step is not
    1, or where the others are not in order: the result would not be contiguous.
    """
    ndim = len(shape)
    if dims is None or dims == ():
        dims = tuple(range(ndim))
    dims = (dims,) if type(dims) is int else dims
    if not all(-ndim <= dim < ndim for dim in dims) or len({d % ndim for d in dims}) != len(dims):
        return None
    places = {dim % ndim for dim in dims}
    order = sorted((d for d in range(ndim) if shape[d] > 1), key=lambda d: -strides[d])
    others = [d for d in order if d not in places]
    if others != sorted(others) or any(strides[d] <= 0 or strides[d] % itemsize for d in order):
        return None
    spans: list[tuple[str, int, int, tuple[int, ...]]] = []
    for d in order:
        kind, step = "+" if d in places else " ", strides[d] // itemsize
        if spans and spans[-1][0] == kind and spans[-1][2] == shape[d] * step:
            _, count, _, before = spans.pop()
            spans.append((kind, count * shape[d], step, (*before, d)))
        else:
            spans.append((kind, shape[d], step, (d,)))
    return spans if spans and spans[-1][2] == 1 else None


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
