"""Subscripts, and reads and writes by index tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Length, Tensor, onnx_dtype
from coredispatch.plugin import dtypes

__all__ = ["TRANSLATIONS"]

_END = np.iinfo(np.int64).max
_BEGIN = np.iinfo(np.int64).min


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def _getitem(b: Builder, x: Any, index: Any) -> Any:
    """Slices first, then index tensors, then the dimensions that appear and vanish."""
    items = list(index) if isinstance(index, (tuple, list)) else [index]
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if Ellipsis in [i for i in items if not isinstance(i, (Tensor, Length))]:
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (x.rank - used)
    items += [slice(None)] * (x.rank - sum(1 for item in items if item is not None))
    value, removed, tensors = x.name, [], []
    starts, ends, axes, steps = [], [], [], []
    dim = 0
    for item in items:
        if item is None:
            continue
        if isinstance(item, slice):
            if item != slice(None):
                starts.append(0 if item.start is None else item.start)
                ends.append(_END if item.stop is None else item.stop)
                axes.append(dim)
                steps.append(1 if item.step is None else item.step)
        elif isinstance(item, (Tensor, list, np.ndarray)):
            tensors.append((dim, item))
        else:
            last = isinstance(item, int) and item == -1
            after = _END if last else b_next(b, item)
            starts, ends = [*starts, item], [*ends, after]
            axes, steps = [*axes, dim], [*steps, 1]
            removed.append(dim)
        dim += 1
    if axes:
        value = b.op("Slice", value, b.sizes(starts), b.sizes(ends), _ints(axes), _ints(steps))
    if tensors:
        value = _by_tensors(b, value, x.rank, tensors, removed, items)
        removed = []
    elif removed:
        value = b.op("Squeeze", value, _ints(removed))
    new = [i for i, item in enumerate(_shown(items)) if item is None] if not tensors else []
    return b.op("Unsqueeze", value, _ints(new)) if new else value


def b_next(b: Builder, item: Any) -> Any:
    """The place behind ``item``."""
    if isinstance(item, Length):
        return Length(b.op("Add", item, _ints([1])))
    return item + 1


def _shown(items: list[Any]) -> list[Any]:
    """The items that have a dimension in the result."""
    return [item for item in items if item is None or isinstance(item, slice)]


def _by_tensors(
    b: Builder, value: str, rank: int, tensors: list[Any], removed: list[int], items: list[Any]
) -> str:
    """Index tensors: one is a ``Gather``, several side by side a ``GatherND``."""
    if removed or any(item is None for item in items):
        return str(b.refuse("index tensors beside integers or None: index in two steps"))
    arrays = [b.cast(t, dtypes.int64) if isinstance(t, Tensor) else _ints(t) for _, t in tensors]
    for _, t in tensors:
        if isinstance(t, Tensor) and t.dtype is dtypes.bool_:
            b.refuse("a mask as an index: the size of the result depends on values; use where()")
    dims = [dim for dim, _ in tensors]
    if len(dims) == 1:
        return str(b.op("Gather", value, arrays[0], axis=dims[0]))
    if dims != list(range(dims[0], dims[0] + len(dims))):
        return str(b.refuse("index tensors that do not stand side by side: index in two steps"))
    count, first = len(dims), dims[0]
    shape = None
    for array in arrays:  # index tensors broadcast
        zero = b.op("Mul", array, np.array(0, dtype=np.int64))
        shape = zero if shape is None else b.op("Add", shape, zero)
    joined = [b.op("Unsqueeze", b.op("Add", a, shape), _ints([-1])) for a in arrays]
    places = b.op("Concat", *joined, axis=-1)
    front = [*dims, *[d for d in range(rank) if d not in dims]]
    turned = value if first == 0 else b.op("Transpose", value, perm=front)
    made = b.op("GatherND", turned, places)
    if first == 0:
        return str(made)
    spread = max(t.rank if isinstance(t, Tensor) else np.ndim(t) for _, t in tensors)
    total = spread + rank - count
    order = [*range(spread, spread + first), *range(spread), *range(spread + first, total)]
    return str(b.op("Transpose", made, perm=order))


def _index_select(b: Builder, x: Any, dim: int, index: Any) -> Any:
    flat = b.op("Reshape", index, _ints([-1]))
    return b.op("Gather", x, flat, axis=x.axis(dim))


def _gather(b: Builder, x: Any, dim: int, index: Any, *rest: Any) -> Any:
    return b.op("GatherElements", x, index, axis=x.axis(dim))


def _scatter(b: Builder, x: Any, dim: int, index: Any, src: Any, *rest: Any) -> Any:
    source = b.cast(src, x.dtype)
    if not isinstance(src, Tensor):
        source = b.op("Expand", source, b.op("Shape", index))
    return b.op("ScatterElements", x, index, source, axis=x.axis(dim))


def _scatter_add(b: Builder, x: Any, dim: int, index: Any, src: Any) -> Any:
    return b.op("ScatterElements", x, index, src, axis=x.axis(dim), reduction="add")


def _embedding(b: Builder, index: Any, weight: Any, padding: Any = None, *rest: Any) -> Any:
    if rest and rest[0] is not None:
        return b.refuse("embedding(max_norm=...), which writes to its weight")
    return b.op("Gather", weight, index, axis=0)


def _embedding_lookup(b: Builder, *args: Any) -> Any:
    index, weight = args[0], args[1]
    if index.dtype.is_floating_point:
        index, weight = weight, index
    return b.op("Gather", weight, index, axis=0)


def _one_hot(b: Builder, x: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        return b.refuse("one_hot without num_classes, which depends on values")
    places = b.op("Unsqueeze", b.cast(x, dtypes.int64), _ints([-1]))
    same = b.op("Equal", places, np.arange(num_classes, dtype=np.int64))
    return b.op("Cast", same, to=onnx_dtype(dtypes.int64))


def _select(b: Builder, x: Any, dim: int, index: Any) -> Any:
    if isinstance(index, Length):
        index = b.op("Squeeze", index, _ints([0]))
        return b.op("Gather", x, index, axis=x.axis(dim))
    return b.op("Gather", x, np.array(index, dtype=np.int64), axis=x.axis(dim))


TRANSLATIONS: dict[str, Any] = {
    "getitem": _getitem,
    "select": _select,
    "index_select": _index_select,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "one_hot": _one_hot,
    "embedding": _embedding,
    "embedding_lookup": _embedding_lookup,
}
