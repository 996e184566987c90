"""What an index selects: the result's shape, for every kind of index PyTorch takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.rules import broadcast_shapes, normalize_dim
from coredispatch.registry import TABLE, Value
from coredispatch.registry.model.dtypes import DType, bool_, uint8
from coredispatch.registry.model.errors import (
    ArgumentError,
    DataDependentError,
    DimError,
    DTypeError,
    IndexTypeError,
    ShapeError,
)
from coredispatch.registry.model.sizes import Symbol, as_int

__all__ = ["count_true", "gathered", "index_selected", "indexed", "rows_fit", "scattered"]

Shape = tuple[int, ...]


class _Array:
    """An index tensor: how many dimensions it speaks of, and the shape it stands for."""

    def __init__(self, consumed: Shape, shape: Shape) -> None:
        self.consumed = consumed
        self.shape = shape


def _item(item: Any, count: Callable[[Any], int]) -> Any:
    """An index item as int, slice, None, Ellipsis or :class:`_Array`; ``count`` reads a mask."""
    if item is None or item is Ellipsis:
        return item
    if isinstance(item, bool):
        return _Array((), (int(item),))
    if isinstance(item, slice):
        if item.step is not None and as_int(item.step) < 1:
            raise ArgumentError("the step of a slice must be greater than zero", fix="use flip")
        return item
    if isinstance(item, (list, tuple)):
        return _list(item)
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        return _tensor(item, count)
    try:
        return as_int(item)
    except TypeError:
        raise IndexTypeError(
            f"a {type(item).__name__} is no index",
            fix="index with integers, slices, None, ..., lists or tensors of them",
        ) from None


def count_true(mask: Any) -> int:
    """How many elements are not zero; raises :class:`DataDependentError` for a meta tensor."""
    if getattr(mask, "is_meta", False):
        raise DataDependentError(
            "the size of the result depends on values, which a meta tensor does not have",
            fix="use a form whose size is known, such as where(mask, x, 0)",
        )
    if isinstance(mask, Value):
        tensor: Any = mask
        return int((tensor != 0).sum())
    return int(np.count_nonzero(_on_host(mask)))


def _on_host(raw: Any) -> Any:
    """The elements of a raw array of any backend; a backend that computes later waits for them."""
    if hasattr(raw, "__array__"):
        return np.asarray(raw)
    for backend, _ in TABLE.snapshot.backends.values():
        array_type: Any = backend.array_type
        if array_type is not object and isinstance(raw, array_type):
            return backend.to_numpy(raw)
    return np.asarray(raw)


def _tensor(item: Any, count: Callable[[Any], int]) -> Any:
    dtype = DType.of(item.dtype)
    if dtype is bool_ or dtype is uint8:
        return _Array(tuple(item.shape), (count(item),))
    if not (dtype.is_integral and dtype.is_signed):
        raise DimError(
            f"tensors used as indices must be int64, int32 or bool, not {dtype}",
            fix="convert the index with .long(), or compare to get a bool mask",
        )
    if len(item.shape) == 0:
        if getattr(item, "is_meta", False):
            return 0  # every place is as good for the shape
        return int(item.item() if hasattr(item, "item") else _on_host(item))
    return _Array((-1,), tuple(item.shape))


def _list(item: Sequence[Any]) -> _Array:
    shape: list[int] = []
    level: Any = item
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        level = level[0] if level else None
    if isinstance(level, bool):
        return _Array(tuple(shape), (sum(map(bool, _flat(item))),))
    return _Array((-1,), tuple(shape))


def _flat(items: Any) -> list[Any]:
    if not isinstance(items, (list, tuple)):
        return [items]
    return [leaf for item in items for leaf in _flat(item)]


def _used(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return len(item.consumed) if isinstance(item, _Array) else 1


def indexed(shape: Shape, index: Sequence[Any], count: Callable[[Any], int] = count_true) -> Shape:
    """The shape of ``x[index]`` for a tensor of ``shape``; ``count`` says what a mask selects.

    Dimensions that index tensors speak of are replaced by the broadcast shape of those tensors:
    in place where they stand side by side, else in front. Raises :class:`DimError`.
    """
    items = [_item(item, count) for item in index]
    used = sum(map(_used, items))
    if used > len(shape):
        raise DimError(
            f"there are {used} indices, too many for a tensor of shape {shape}", fix="use fewer"
        )
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    missing = [slice(None)] * (len(shape) - used)
    if places:
        items[places[0] : places[0] + 1] = missing
        items = [item for item in items if item is not Ellipsis]
    else:
        items += missing
    result: list[int] = []
    arrays: list[tuple[int, Shape]] = []
    dim = 0
    for item in items:
        if item is None:
            result.append(1)
        elif isinstance(item, _Array):
            _check_mask(item, shape, dim)
            arrays.append((len(result), item.shape))
        elif isinstance(item, slice):
            result.append(_length(item, shape[dim]))
        elif not -shape[dim] <= item < shape[dim]:
            raise DimError(
                f"index {item} is out of bounds for dimension {dim} with size {shape[dim]}",
                fix=f"use indices from {-shape[dim]} to {shape[dim] - 1}",
            )
        dim += _used(item)
    if not arrays:
        return tuple(result)
    try:
        common = broadcast_shapes(s for _, s in arrays)
    except ShapeError as error:
        raise DimError(
            f"index tensors do not broadcast: {error.message}",
            fix="give index tensors shapes that broadcast together",
        ) from None
    side_by_side = all(place == arrays[0][0] for place, _ in arrays)
    start = arrays[0][0] if side_by_side else 0
    return (*result[:start], *common, *result[start:])


def _length(part: slice, length: Any) -> Any:
    """How many places of a dimension a slice takes; both may have symbols."""
    if not any(isinstance(n, Symbol) for n in (part.start, part.stop, length)):
        return len(range(*part.indices(length)))
    step = 1 if part.step is None else part.step
    start, stop = _place(part.start, 0, length), _place(part.stop, length, length)
    return (stop - start + (step - 1)) // step if start < stop else 0


def _place(place: Any, default: Any, length: Any) -> Any:
    """A bound of a slice, counted from the front and inside the dimension."""
    if place is None:
        return default
    if place < 0:
        place = place + length
    if place < 0:
        return 0
    return length if place > length else place


def _check_mask(item: _Array, shape: Shape, dim: int) -> None:
    if item.consumed == (-1,):
        return
    if item.consumed != tuple(shape[dim : dim + len(item.consumed)]):
        raise DimError(
            f"the mask of shape {item.consumed} at dimension {dim} does not fit the indexed "
            f"tensor of shape {shape}",
            fix="give the mask the lengths of the dimensions it selects from",
        )


# ---- gather, scatter, index_select --------------------------------------------------------------


def require_index(index: Any) -> None:
    """Raise :class:`DTypeError` unless ``index`` holds int64 or int32."""
    dtype = DType.of(index.dtype)
    if not (dtype.is_integral and dtype.is_signed):
        raise DTypeError(f"index must be int64 or int32, got {dtype}", fix="use index.long()")


def gathered(self: Any, dim: int, index: Any, *_: Any) -> Shape:
    """Shape rule of ``gather``: that of ``index``, which fits ``self`` outside ``dim``."""
    require_index(index)
    _fits_outside(index, self, dim, "self")
    return tuple(index.shape)


def scattered(self: Any, dim: int, index: Any, src: Any = None, *_: Any) -> Shape:
    """Shape rule of the scatter family: that of ``self``; ``index`` fits it and ``src``."""
    require_index(index)
    _fits_outside(index, self, dim, "self")
    if 0 not in index.shape and hasattr(src, "shape"):
        if len(src.shape) != len(index.shape) or any(a > b for a, b in zip(index.shape, src.shape)):
            raise ShapeError(
                f"index {tuple(index.shape)} exceeds src {tuple(src.shape)}",
                fix="use an index that is nowhere larger than src",
            )
    return tuple(self.shape)


def within_bounds(index: Any, size: Any) -> Any:
    """``index``, all of which must lie in [0, size): else :class:`DimError`."""
    return lazy.checked(index, index, 0, size - 1, "index")


def _fits_outside(index: Any, self: Any, dim: int, name: str) -> None:
    own, other = tuple(self.shape) or (1,), tuple(index.shape) or (1,)
    d = normalize_dim(dim, len(own))
    if 0 in other:
        return
    if len(own) != len(other):
        raise ShapeError(
            f"index has {len(other)} dimensions, {name} has {len(own)}",
            fix="both need the same number of dimensions",
        )
    if any(n > m for i, (n, m) in enumerate(zip(other, own)) if i != d):
        raise ShapeError(
            f"index {other} exceeds {name} {own} outside dim {dim}",
            fix="use an index that is nowhere larger, or narrow it",
        )


def index_selected(self: Any, dim: int, index: Any, *_: Any) -> Shape:
    """Shape rule of ``index_select``."""
    require_index(index)
    if len(index.shape) > 1:
        raise DimError(
            f"index is supposed to be a vector, got shape {tuple(index.shape)}", fix="use gather"
        )
    shape = tuple(self.shape)
    d = normalize_dim(dim, len(shape))
    count = index.shape[0] if len(index.shape) else 1
    if not shape and count != 1:
        raise ShapeError(
            f"a 0-dim tensor has one slice, and index has {count} elements",
            fix="reshape the tensor to (1,) first",
        )
    return (*shape[:d], count, *shape[d + 1 :]) if shape else ()


def rows_fit(self: Any, dim: int, index: Any, source: Any = None, *_: Any) -> Shape:
    """Shape rule of ``index_add`` and its siblings: that of ``self``."""
    shape = index_selected(self, dim, index)
    # A source without dimensions is one slice of a vector.
    if hasattr(source, "shape") and (tuple(source.shape) or (1,)) != (shape or (1,)):
        raise ShapeError(
            f"source has shape {tuple(source.shape)}, {shape} is needed",
            fix="source has one slice for each index and the shape of self otherwise",
        )
    return tuple(self.shape)
