"""Subscripts, and reads and writes by index tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Length, Tensor, onnx_dtype
from coredispatch.plugin import dtypes

__all__ = ["TRANSLATIONS", "complete", "read"]

_END = np.iinfo(np.int64).max


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def _getitem(b: Builder, x: Any, index: Any) -> Any:
    return read(b, x.name, x.rank, index)[0]


def read(b: Builder, value: str, rank: int, index: Any) -> tuple[str, int]:
    """``value[index]`` and its number of dimensions.

    Slices and integers first, then new dimensions, then index tensors, as PyTorch does it.
    """
    starts: list[Any] = []
    ends: list[Any] = []
    axes: list[int] = []
    steps: list[Any] = []
    removed: list[int] = []
    new: list[int] = []
    tensors: list[tuple[int, Any]] = []
    dim = shown = 0
    for item in complete(b, index, rank):
        if item is None:
            new.append(shown)
            shown += 1
            continue
        if isinstance(item, slice):
            if item != slice(None):
                starts.append(0 if item.start is None else item.start)
                ends.append(_END if item.stop is None else item.stop)
                axes.append(dim)
                steps.append(1 if item.step is None else item.step)
        elif isinstance(item, Tensor) and item.rank == 0:  # an integer that the model computes
            place = b.op("Reshape", b.cast(item, dtypes.int64), _ints([1]))
            value = b.op("Gather", value, place, axis=dim)
            removed.append(dim)
        elif isinstance(item, (Tensor, np.ndarray)):
            tensors.append((shown, item))
        else:
            last = isinstance(item, int) and item == -1
            starts, ends = [*starts, item], [*ends, _END if last else _next(b, item)]
            axes, steps = [*axes, dim], [*steps, 1]
            removed.append(dim)
        shown += not removed or removed[-1] != dim
        dim += 1
    if axes:
        value = b.op("Slice", value, b.sizes(starts), b.sizes(ends), _ints(axes), b.sizes(steps))
    if removed:
        value = b.op("Squeeze", value, _ints(removed))
    if new:
        value = b.op("Unsqueeze", value, _ints(new))
    return _by_tensors(b, value, shown, tensors) if tensors else (value, shown)


def complete(b: Builder, index: Any, rank: int) -> list[Any]:
    """The items of an index, one for each dimension; masks that are known are places."""
    items: list[Any] = []
    for item in index if isinstance(index, (tuple, list)) else [index]:
        if isinstance(item, (list, np.ndarray)):
            array = np.asarray(item)
            items += np.nonzero(array) if array.dtype == np.bool_ else [array.astype(np.int64)]
        elif isinstance(item, bool):
            b.refuse("a bool as an index: write where()")
        else:
            if isinstance(item, Tensor) and item.dtype in (dtypes.bool_, dtypes.uint8):
                b.refuse(
                    "a mask as an index: the size of the result depends on values; use where()"
                )
            items.append(item)
    missing = rank - sum(1 for item in items if item is not None and item is not Ellipsis)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * missing
    return items


def _next(b: Builder, item: Any) -> Any:
    """The place behind ``item``."""
    if isinstance(item, Length):
        return Length(b.op("Add", item, _ints([1])))
    return item + 1


def _by_tensors(
    b: Builder, value: str, rank: int, tensors: list[tuple[int, Any]]
) -> tuple[str, int]:
    """Index tensors: one is a ``Gather``, several a ``GatherND``.

    The dimensions of several stand where the indexed ones stood, or in front where those do not
    lie side by side.
    """
    arrays = [b.cast(t, dtypes.int64) if isinstance(t, Tensor) else t for _, t in tensors]
    dims = [dim for dim, _ in tensors]
    spread = max(t.rank if isinstance(t, Tensor) else t.ndim for _, t in tensors)
    total = spread + rank - len(dims)
    if len(dims) == 1:
        return b.op("Gather", value, arrays[0], axis=dims[0]), total
    shape = None
    for array in arrays:  # index tensors broadcast
        zero = b.op("Mul", array, np.array(0, dtype=np.int64))
        shape = zero if shape is None else b.op("Add", shape, zero)
    joined = [b.op("Unsqueeze", b.op("Add", a, shape), _ints([-1])) for a in arrays]
    places = b.op("Concat", *joined, axis=-1)
    front = [*dims, *[d for d in range(rank) if d not in dims]]
    turned = value if front == list(range(rank)) else b.op("Transpose", value, perm=front)
    made = b.op("GatherND", turned, places)
    first = dims[0]
    if first == 0 or dims != list(range(first, first + len(dims))):
        return made, total
    order = [*range(spread, spread + first), *range(spread), *range(spread + first, total)]
    return b.op("Transpose", made, perm=order), total


def _index_select(b: Builder, x: Any, dim: int, index: Any) -> Any:
    flat = b.op("Reshape", index, _ints([-1]))
    return b.op("Gather", x, flat, axis=x.axis(dim))


def _gather(b: Builder, x: Any, dim: int, index: Any, *rest: Any) -> Any:
    if x.rank and index.rank:
        return b.op("GatherElements", x, index, axis=x.axis(dim))
    vectors = [b.op("Reshape", value, _ints([-1])) for value in (x, index)]
    made = b.op("GatherElements", *vectors, axis=0)
    return b.op("Reshape", made, b.op("Shape", index), allowzero=1)


def _scatter(b: Builder, x: Any, dim: int, index: Any, src: Any, *rest: Any) -> Any:
    source = b.cast(src, x.dtype)
    if not isinstance(src, Tensor):
        source = b.op("Expand", source, b.op("Shape", index))
    return _scattered(b, x, dim, index, src, source)


def _scattered(
    b: Builder, x: Any, dim: int, index: Any, src: Any, source: str, **options: Any
) -> Any:
    if isinstance(src, Tensor) and src.shape != index.shape:  # its rest is not used
        axes = _ints(range(index.rank))
        source = b.op("Slice", source, _ints([0] * index.rank), b.op("Shape", index), axes)
    if x.rank:
        return b.op("ScatterElements", x, index, source, axis=x.axis(dim), **options)
    vectors = [b.op("Reshape", value, _ints([1])) for value in (x, index, source)]
    return b.op("Reshape", b.op("ScatterElements", *vectors, **options), _ints([]))


def _scatter_add(b: Builder, x: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(b, x, dim, index, src, b.cast(src, x.dtype), reduction="add")


def _embedding(b: Builder, index: Any, weight: Any, padding: Any = None, *rest: Any) -> Any:
    if rest and rest[0] is not None:
        return b.refuse("embedding(max_norm=...), which writes to its weight")
    return b.op("Gather", weight, index, axis=0)


def _embedding_lookup(b: Builder, *args: Any) -> Any:
    index, weight = args[0], args[1]
    if index.dtype.is_floating_point:
        index, weight = weight, index
    return b.op("Gather", weight, index, axis=0)


def _one_hot(b: Builder, x: Any, num_classes: Any = -1) -> Any:
    if isinstance(num_classes, Length):
        ends = np.array(0, np.int64), b.cast(num_classes, dtypes.int64), np.array(1, np.int64)
        classes = b.op("Range", *ends)
    elif num_classes < 0:
        return b.refuse("one_hot without num_classes, which depends on values")
    else:
        classes = np.arange(num_classes, dtype=np.int64)
    places = b.op("Unsqueeze", b.cast(x, dtypes.int64), _ints([-1]))
    same = b.op("Equal", places, classes)
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
