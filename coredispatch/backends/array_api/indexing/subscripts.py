"""Array-API kernels of basic and advanced indexing.

NumPy and what is made after it (CuPy) read and write ``x[index]``; for any other namespace see
:mod:`.standard`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch.backends.array_api.indexing.standard import add_at, opened, put_at, read, whole
from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.backends.index_parts import IndexParts
from coredispatch.registry.model.dtypes import DType, bool_
from coredispatch.registry.model.errors import DimError

__all__ = ["Writer", "check_bounds", "kernels"]


class Writer:
    """Writes into a copy of an array, in the namespace's way of doing so."""

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp
        self.put_by_standard = xp.program(functools.partial(_written, xp, put_at))
        self.add_by_standard = xp.program(functools.partial(_written, xp, add_at))

    def put(self, x: Any, index: tuple[Any, ...], values: Any) -> Any:
        """A copy of ``x`` with ``values`` at ``index``."""
        if not self.xp.strided:
            return self.put_by_standard(x, self._whole(index), values)
        out = x.copy()
        out[index] = values
        return out

    def add(self, x: Any, index: tuple[Any, ...], values: Any) -> Any:
        """A copy of ``x`` with ``values`` added at ``index``; repeated places add up."""
        if not self.xp.strided:
            return self.add_by_standard(x, self._whole(index), values)
        out = x.copy()
        self.xp.add.at(out, index, values)
        return out

    def _whole(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """``index`` with integers for masks: how many they choose depends on their elements."""
        return _without_masks(self.xp, index)


def _without_masks(xp: Any, index: tuple[Any, ...]) -> tuple[Any, ...]:
    opened: list[Any] = []
    for item in index:
        if hasattr(item, "dtype") and DType.of(item.dtype) is bool_:
            opened += xp.nonzero(item)
        else:
            opened.append(item)
    return tuple(opened)


def _read(xp: Any, x: Any, index: tuple[Any, ...]) -> Any:
    return read(xp, x, opened(xp, tuple(x.shape), index))


def _written(xp: Any, write: Any, x: Any, index: tuple[Any, ...], values: Any) -> Any:
    """A copy of ``x`` to which ``write`` has written ``values`` at ``index``."""
    shape = tuple(x.shape)
    places = whole(xp, shape)
    if any(hasattr(item, "dtype") for item in index):
        places = read(xp, places, opened(xp, shape, index))
    else:
        places = places[index]
    if not hasattr(values, "dtype"):
        values = xp.asarray(values, dtype=x.dtype)
    values = xp.broadcast_to(values, places.shape)
    if not prod(places.shape):
        return xp.copy(x)
    places = xp.reshape(places, (-1,))
    flat, values = xp.reshape(x, (-1,)), xp.reshape(values, (-1,))
    if write is add_at and DType.of(x.dtype) is bool_:  # of which the standard has no sums
        numbers = write(xp, xp.astype(flat, xp.int64), places, xp.astype(values, xp.int64))
        return xp.reshape(numbers != 0, shape)
    return xp.reshape(write(xp, flat, places, values), shape)


def _ends(xp: Any, index: Any) -> tuple[Any, Any]:
    return xp.min(index), xp.max(index)


def check_bounds(xp: Any, index: Any, size: int, low: int = 0) -> None:
    """Raise :class:`DimError` unless all of ``index`` is in [low, size)."""
    if 0 in index.shape:
        return
    least, greatest = map(int, xp.program(_ends)(xp, index))
    if greatest >= size or least < low:
        wrong = greatest if greatest >= size else least
        raise DimError(
            f"index {wrong} is out of bounds for size {size}",
            fix=f"use indices from {low} to {size - 1}",
        )


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)

    def cast(x: Any, dtype: DType) -> Any:
        return xp.astype(x, xp.native(dtype))

    array_type = type(xp.zeros(1))
    parts = IndexParts(array_type, xp.asarray, cast)
    writer = Writer(xp)
    read_at = xp.program(functools.partial(_read, xp))

    def checked(shape: tuple[int, ...], advanced: tuple[Any, ...]) -> tuple[Any, ...]:
        # CuPy and JAX read past the end without a word.
        dim = 0
        for item in advanced:
            mask = isinstance(item, array_type) and DType.of(item.dtype) is bool_
            if isinstance(item, array_type) and not mask:
                check_bounds(xp, item, shape[dim], -shape[dim])
            dim += item.ndim if mask else 1
        return advanced

    def split(x: Any, index: tuple[Any, ...]) -> Any:
        """The two parts of an index; the standard leaves slices beyond the end open."""
        basic, advanced = parts.split(x.shape, index)
        if basic is None or xp.strided:
            return basic, advanced
        inside: list[Any] = []
        dim = 0
        for item in basic:
            if type(item) is slice:
                start, stop, step = item.indices(x.shape[dim])
                item = slice(start, max(start, stop), step)
            inside.append(item)
            dim += item is not None
        return inside, advanced

    def getitem(x: Any, index: tuple[Any, ...]) -> Any:
        basic, advanced = split(x, index)
        if basic is not None:
            x = x[(*basic, ...)]
        if advanced is None:
            return x
        advanced = checked(x.shape, advanced)
        return x[advanced] if xp.strided else read_at(x, _without_masks(xp, advanced))

    def index_put(x: Any, index: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
        basic, advanced = split(x, index)
        write = writer.add if accumulate else writer.put
        if isinstance(values, array_type):
            values = cast(values, DType.of(x.dtype))
        if advanced is None:
            return write(x, (*(basic or ()), ...), values)
        target = x if basic is None else x[(*basic, ...)]
        slot = parts.slot_ndim(target.ndim, advanced)
        while getattr(values, "ndim", 0) > max(slot, 1) and values.shape[0] == 1:
            values = values[0, ...]
        part = write(target, checked(target.shape, advanced), values)
        return part if basic is None else writer.put(x, (*basic, ...), part)

    def getitem_backward(grad: Any, index: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        return index_put(xp.zeros(shape, dtype=grad.dtype), index, grad, True)

    def nonzero(x: Any) -> Any:
        if x.ndim == 0:
            return xp.zeros((int(bool(x)), 0), dtype=xp.int64)
        return xp.stack([cast(c, _INT64) for c in xp.nonzero(x)], axis=1)

    return {
        "getitem": getitem,
        "getitem_backward": getitem_backward,
        "index_put": index_put,
        "nonzero": nonzero,
    }


_INT64 = DType.of("int64")
