"""Array-API kernels of basic and advanced indexing, for mutable and immutable arrays.

Reading ``x[index]`` with integer arrays is in the standard; writing is done as ``x[index] = v``
(NumPy, CuPy) or as ``x.at[index].set(v)`` (JAX).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.index_parts import IndexParts
from coredispatch.registry.model.dtypes import DType, bool_
from coredispatch.registry.model.errors import DimError

__all__ = ["Writer", "check_bounds", "kernels"]


class Writer:
    """Writes into a copy of an array, whatever the namespace's way of doing so."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.mutable = not hasattr(xp.zeros(1), "at")
        ufunc = getattr(getattr(xp, "add", None), "at", None)
        self.add_at: Callable[..., None] | None = ufunc

    def put(self, x: Any, index: tuple[Any, ...], values: Any) -> Any:
        """A copy of ``x`` with ``values`` at ``index``."""
        if not self.mutable:
            return x.at[index].set(values)
        out = x.copy()
        out[index] = values
        return out

    def add(self, x: Any, index: tuple[Any, ...], values: Any) -> Any:
        """A copy of ``x`` with ``values`` added at ``index``; repeated places add up."""
        if not self.mutable:
            return x.at[index].add(values)
        out = x.copy()
        assert self.add_at is not None
        self.add_at(out, index, values)
        return out


def check_bounds(xp: Any, index: Any, size: int, low: int = 0) -> None:
    """Raise :class:`DimError` unless all of ``index`` is in [low, size)."""
    if 0 in index.shape:
        return
    least, greatest = int(xp.min(index)), int(xp.max(index))
    if greatest >= size or least < low:
        wrong = greatest if greatest >= size else least
        raise DimError(
            f"index {wrong} is out of bounds for size {size}",
            fix=f"use indices from {low} to {size - 1}",
        )


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""

    def cast(x: Any, dtype: DType) -> Any:
        return xp.astype(x, numpy_dtype(dtype))

    array_type = type(xp.zeros(1))
    parts = IndexParts(array_type, xp.asarray, cast)
    writer = Writer(xp)

    def checked(shape: tuple[int, ...], advanced: tuple[Any, ...]) -> tuple[Any, ...]:
        # CuPy and JAX read past the end without a word.
        dim = 0
        for item in advanced:
            mask = isinstance(item, array_type) and DType.of(item.dtype) is bool_
            if isinstance(item, array_type) and not mask:
                check_bounds(xp, item, shape[dim], -shape[dim])
            dim += item.ndim if mask else 1
        return advanced

    def getitem(x: Any, index: tuple[Any, ...]) -> Any:
        basic, advanced = parts.split(x.shape, index)
        if basic is not None:
            x = x[(*basic, ...)]
        return x if advanced is None else x[checked(x.shape, advanced)]

    def index_put(x: Any, index: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
        basic, advanced = parts.split(x.shape, index)
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
