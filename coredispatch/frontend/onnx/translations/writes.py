"""Writes into a part of a tensor, in their functional forms: a new tensor is the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Tensor
from coredispatch.frontend.onnx.translations.indexing import complete, read
from coredispatch.plugin import dtypes

__all__ = ["TRANSLATIONS"]

_MASKS = (dtypes.bool_, dtypes.uint8)


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def _index_put(b: Builder, x: Any, index: Any, values: Any, accumulate: bool = False) -> Any:
    """Every element has a number; the index reads those that are written."""
    items = list(index) if isinstance(index, (tuple, list)) else [index]
    if any(isinstance(item, Tensor) and item.dtype in _MASKS for item in items):
        return _where_masked(b, x, items, values, accumulate)
    count = b.op("Size", x)
    numbers = b.op("Range", np.array(0, np.int64), count, np.array(1, np.int64))
    shape = b.op("Shape", x)
    numbers = b.op("Reshape", numbers, shape, allowzero=1)
    places, rank = read(b, numbers, x.rank, items)
    updates = b.op("Expand", _fitting(b, x, values, rank), b.op("Shape", places))
    if all(map(_is_whole, complete(b, items, x.rank))):  # all of them
        return _added(b, x, updates) if accumulate else updates
    made = b.op(
        "ScatterND",
        b.op("Reshape", x, _ints([-1])),
        b.op("Unsqueeze", places, _ints([-1])),
        updates,
        reduction="add" if accumulate else None,
    )
    return b.op("Reshape", made, shape, allowzero=1)


def _fitting(b: Builder, x: Tensor, values: Any, rank: int) -> str:
    """``values`` in the dtype of ``x``, without the leading dimensions beyond ``rank``."""
    found = b.cast(values, x.dtype)
    extra = values.rank - rank if isinstance(values, Tensor) else 0
    return b.op("Squeeze", found, _ints(range(extra))) if extra > 0 else found


def _is_whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _added(b: Builder, x: Tensor, values: str) -> str:
    return str(b.op("Add", x, values))


def _where_masked(b: Builder, x: Any, items: list[Any], values: Any, accumulate: bool) -> Any:
    """Writes where a mask is true; it may lie over some of the dimensions."""
    used = [item.rank if isinstance(item, Tensor) else 1 for item in items if item is not Ellipsis]
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * (x.rank - sum(used))
    masks = [i for i, item in enumerate(items) if isinstance(item, Tensor)]
    if len(masks) != 1 or not all(_is_whole(i) for i in items if i is not items[masks[0]]):
        return b.refuse("a mask beside other indices: write where()")
    (lead,) = masks
    mask = items[lead]
    rest = x.rank - lead - mask.rank
    flags = b.cast(mask, dtypes.bool_)
    found = _fitting(b, x, values, lead + 1 + rest)
    rank = min(values.rank if isinstance(values, Tensor) else 0, lead + 1 + rest)
    if rank > rest:  # the values have a dimension for what the mask selects
        size = values.shape[values.rank - rest - 1]
        place = rank - rest - 1
        if size == 1:
            more = _ints(range(place, place + mask.rank - 1))
            found = b.op("Unsqueeze", found, more) if mask.rank > 1 else found
            found = b.op("Squeeze", found, _ints([place])) if mask.rank == 0 else found
        elif place:
            return b.refuse("a value for each place of a mask that stands behind other dimensions")
        else:
            found = _dealt(b, flags, found)
    where = b.op("Unsqueeze", flags, _ints(range(mask.rank, mask.rank + rest))) if rest else flags
    written = _added(b, x, found) if accumulate else found
    return b.op("Where", where, written, x)


def _dealt(b: Builder, flags: str, rows: str) -> str:
    """Row number n of ``rows`` at the n-th place that is true; anything at the others."""
    shape = b.op("Shape", rows, start=1)
    spare = b.op("Expand", b.op("CastLike", np.array(0, np.int64), rows), _one_more(b, shape))
    turns = b.op("Cast", b.op("Reshape", flags, _ints([-1])), to=7)
    number = b.op("Sub", b.op("CumSum", turns, np.array(0, np.int64)), _ints([1]))
    dealt = b.op("Gather", b.op("Concat", rows, spare, axis=0), number, axis=0)
    return str(b.op("Reshape", dealt, b.op("Concat", b.op("Shape", flags), shape, axis=0)))


def _one_more(b: Builder, shape: str) -> Any:
    return b.op("Concat", _ints([1]), shape, axis=0)


def _along(x: Tensor, dim: int, index: Any) -> list[Any]:
    return [*[slice(None)] * (x.axis(dim)), index]


def _rows(accumulate: bool) -> Any:
    """``index_add``, ``index_copy`` and ``index_fill``."""

    def translate(
        b: Builder, x: Any, dim: int, index: Any, source: Any, alpha: Any = 1, *rest: Any
    ) -> Any:
        if x.rank == 0 or index.rank != 1:
            return b.refuse("index tensors and tensors of one dimension or more are written")
        if alpha != 1:
            scaled = b.op("Mul", b.cast(source, x.dtype), b.cast(alpha, x.dtype))
            source = Tensor(scaled, _like(source, x))
        return _index_put(b, x, _along(x, dim, index), source, accumulate)

    return translate


def _like(source: Tensor, x: Tensor) -> Any:
    import dataclasses

    return dataclasses.replace(source.info, dtype=x.dtype)


TRANSLATIONS: dict[str, Any] = {
    "index_put": _index_put,
    "index_add": _rows(True),
    "index_copy": _rows(False),
    "index_fill": _rows(False),
}
