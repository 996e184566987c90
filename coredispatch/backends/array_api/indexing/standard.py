"""Reading and writing at arrays of indices with nothing but functions of the standard.

The standard reads rows (``take``) and knows no way to write. A write is therefore a search: what
is written is sorted by place, and each element of the result asks who writes to it. Nothing is
changed in place, so that immutable arrays are served as well.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.registry.model.dtypes import DType, bool_

__all__ = ["add_at", "opened", "put_at", "read", "whole"]


def opened(xp: Any, shape: tuple[int, ...], advanced: tuple[Any, ...]) -> list[Any]:
    """``advanced`` with an entry per dimension: masks as integers, no negative index, None: all."""
    entries: list[Any] = []
    for item in advanced:
        if not hasattr(item, "dtype"):
            entries.append(None)
        elif DType.of(item.dtype) is bool_:
            entries += [xp.astype(part, xp.int64) for part in xp.nonzero(item)]
        else:
            item = xp.astype(item, xp.int64)
            entries.append(xp.where(item < 0, item + shape[len(entries)], item))
    return entries + [None] * (len(shape) - len(entries))


def whole(xp: Any, shape: tuple[int, ...]) -> Any:
    """The place of each element of an array of ``shape`` in its row-major order."""
    return xp.reshape(xp.arange(prod(shape), dtype=xp.int64), shape)


def read(xp: Any, x: Any, entries: list[Any]) -> Any:
    """``x`` at ``entries``, an array of indices or None per dimension.

    The dimensions of the indices stand where the first of them was, or in front where others
    stand between them, as in NumPy.
    """
    chosen = [d for d, entry in enumerate(entries) if entry is not None]
    rest = [d for d in range(x.ndim) if d not in chosen]
    arrays = xp.broadcast_arrays(*[entries[d] for d in chosen])
    common = tuple(arrays[0].shape)
    places, sizes = xp.zeros(common, dtype=xp.int64), [x.shape[d] for d in chosen]
    for size, array in zip(sizes, arrays, strict=True):
        places = places * size + array
    rows = xp.reshape(
        xp.permute_dims(x, (*chosen, *rest)), (prod(sizes), *(x.shape[d] for d in rest))
    )
    kept = tuple(x.shape[d] for d in rest)
    taken = xp.reshape(xp.take(rows, xp.reshape(places, (-1,)), axis=0), (*common, *kept))
    first = chosen[0]
    if first == 0 or chosen != list(range(first, first + len(chosen))):
        return taken
    order = [*range(len(common), len(common) + first), *range(len(common))]
    return xp.permute_dims(taken, (*order, *range(len(order), taken.ndim)))


def put_at(xp: Any, flat: Any, places: Any, values: Any) -> Any:
    """``flat`` with ``values`` at ``places``; the last of several for one place counts."""
    order, found, hit = _writers(xp, flat, places)
    return xp.where(hit, xp.take(xp.take(values, order, axis=0), found, axis=0), flat)


def add_at(xp: Any, flat: Any, places: Any, values: Any) -> Any:
    """``flat`` with ``values`` added at ``places``; all of several for one place count.

    They are added in pairs, pairs of pairs, and so on (Hillis and Steele, Data parallel
    algorithms, 1986): as many steps as the count has binary digits.
    """
    order, found, hit = _writers(xp, flat, places)
    ordered, sums = xp.take(places, order, axis=0), xp.take(values, order, axis=0)
    count, step = sums.shape[0], 1
    while step < count:
        same = ordered[step:] == ordered[:-step]
        if xp.jit is None and not bool(xp.any(same)):
            break
        earlier = xp.where(same, sums[:-step], xp.zeros_like(sums[:-step]))
        sums = xp.concat([sums[:step], sums[step:] + earlier], axis=0)
        step *= 2
    return xp.where(hit, flat + xp.take(sums, found, axis=0), flat)


def _writers(xp: Any, flat: Any, places: Any) -> tuple[Any, Any, Any]:
    """The order of ``places``, and for each element its last writer in it, and if there is one."""
    order = xp.argsort(places, stable=True)
    ordered = xp.take(places, order, axis=0)
    own = xp.arange(flat.shape[0], dtype=xp.int64)
    after = xp.astype(xp.searchsorted(ordered, own, side="right"), xp.int64)
    found = xp.where(after > 0, after - 1, xp.zeros_like(after))
    return order, found, (after > 0) & (xp.take(ordered, found, axis=0) == own)
