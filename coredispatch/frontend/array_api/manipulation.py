"""Shapes, indices and sets in the array API standard."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.array_api.promotion import call, dtype_of_all, operands
from coredispatch.frontend.functions import broadcast_shapes
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import ArgumentError, DimError
from coredispatch.registry.model.sizes import normalize_dim

__all__ = [
    "argmax", "argmin", "argsort", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat",
    "count_nonzero", "expand_dims", "flip", "isin", "matrix_transpose", "moveaxis", "nonzero",
    "permute_dims", "repeat", "reshape", "roll", "searchsorted", "sort", "squeeze", "stack", "take",
    "take_along_axis", "tile", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unstack", "where",
]  # fmt: skip

UniqueAll = namedtuple("UniqueAll", ("values", "indices", "inverse_indices", "counts"))
UniqueCounts = namedtuple("UniqueCounts", ("values", "counts"))
UniqueInverse = namedtuple("UniqueInverse", ("values", "inverse_indices"))


def _axes(axis: Any) -> tuple[int, ...]:
    return (axis,) if isinstance(axis, int) else tuple(axis)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All arrays in their common shape."""
    return list(call("broadcast_tensors", list(arrays)))


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """``x`` repeated to ``shape``, without a copy."""
    return call("broadcast_to", x, tuple(shape))  # type: ignore[no-any-return]


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after the other; None flattens them first."""
    dtype = dtype_of_all(arrays)
    parts = [x.to(dtype) for x in arrays]
    if axis is None:
        parts, axis = [x.reshape(-1) for x in parts], 0
    return call("cat", parts, axis)  # type: ignore[no-any-return]


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays along a new dimension."""
    dtype = dtype_of_all(arrays)
    return call("stack", [x.to(dtype) for x in arrays], axis)  # type: ignore[no-any-return]


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension."""
    return tuple(call("unbind", x, axis))


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """``x`` with a dimension of size 1 at each place ``axis`` of the result."""
    axes = _axes(axis)
    ndim = x.ndim + len(axes)
    places = sorted(normalize_dim(a, ndim) for a in axes)
    if len({*places}) != len(places):
        raise ArgumentError(f"axis {axes} names a place twice", fix="name each once")
    for place in places:
        x = x.unsqueeze(place)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """``x`` without the dimensions ``axis``, which must have size 1."""
    for a in _axes(axis):
        if x.shape[normalize_dim(a, x.ndim)] != 1:
            raise ArgumentError(f"axis {a} has size {x.shape[a]}, not 1", fix="use another axis")
    return call("squeeze", x, _axes(axis))  # type: ignore[no-any-return]


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """The elements in reverse order along ``axis`` (all)."""
    return call("flip", x, tuple(range(x.ndim)) if axis is None else _axes(axis))  # type: ignore[no-any-return]


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """``x`` with dimensions moved to other places."""
    return call("movedim", x, source, destination)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """``x`` with its dimensions in another order."""
    return call("permute", x, tuple(axes))  # type: ignore[no-any-return]


def matrix_transpose(x: Tensor, /) -> Tensor:
    """``x`` with its last two dimensions exchanged."""
    return x.mT


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element (or slice along ``axis``) as often as ``repeats`` says."""
    if isinstance(repeats, Tensor) and repeats.ndim == 1 and repeats.shape[0] == 1:
        repeats = int(repeats)
    return call("repeat_interleave", x, repeats, axis)  # type: ignore[no-any-return]


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """``x`` in another shape; ``copy=False`` refuses where that needs one."""
    if copy:
        x = x.clone()
    elif copy is False:
        return x.view(tuple(shape))
    return x.reshape(tuple(shape))


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """The elements moved round by ``shift`` places along ``axis`` (None: of the flat array)."""
    if axis is None:
        return call("roll", x, shift)  # type: ignore[no-any-return]
    axes = _axes(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    for s, a in zip(shifts, axes, strict=True):
        x = call("roll", x, s, a)
    return x


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """``x`` repeated as a whole."""
    return call("tile", x, tuple(repetitions))  # type: ignore[no-any-return]


# ---- indices ----------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices of ``x`` along ``axis``, which only 1-d arrays may leave away."""
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"take of a {x.ndim}-d array needs axis=", fix="axis=0")
        axis = 0
    indices = indices.long()
    indices = call("where", indices < 0, indices + x.shape[axis], indices)
    return call("index_select", x, axis, indices)  # type: ignore[no-any-return]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at ``indices`` along ``axis``; the other dimensions broadcast."""
    return call("take_along_dim", x, indices.long(), axis)  # type: ignore[no-any-return]


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one array for each dimension."""
    if x.ndim == 0:
        raise DimError("nonzero of a 0-dim array", fix="use x.reshape((1,))")
    return tuple(call("nonzero", x, as_tuple=True))


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """``x1`` where the condition holds, else ``x2``; shapes broadcast, dtypes are promoted."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        return call("where", condition, x1, x2)  # type: ignore[no-any-return]
    return call("where", condition, *operands(x1, x2))  # type: ignore[no-any-return]


def _extreme(op: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    out: Tensor = call(op, x, axis)
    if not keepdims:
        return out
    sizes = [1] * x.ndim if axis is None else list(x.shape)
    if axis is not None and x.ndim:
        sizes[axis] = 1
    return out.reshape(sizes)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the greatest element (of the first of them)."""
    return _extreme("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the least element (of the first of them)."""
    return _extreme("argmin", x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero, int64."""
    return call("sum", x != 0, None if axis is None else axis, keepdims)  # type: ignore[no-any-return]


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort ``x``; always stable."""
    return call("sort", x, stable=True, dim=axis, descending=descending)[1]  # type: ignore[no-any-return]


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """``x`` in order; always stable."""
    return call("sort", x, stable=True, dim=axis, descending=descending)[0]  # type: ignore[no-any-return]


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where the elements of ``x2`` belong in the sorted ``x1``, int64."""
    x1, x2 = operands(x1, x2)
    return call("searchsorted", x1 if sorter is None else x1[sorter], x2, side=side)  # type: ignore[no-any-return]


# ---- sets -------------------------------------------------------------------------------------


def _sorted_groups(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The elements in order, where they were, and whether each differs from the one before.

    NaN differs from everything, itself included, as the standard asks.
    """
    flat = x.reshape(-1)
    if flat.dtype.is_complex:
        order = call("sort", flat.imag, stable=True)[1]
        order = order[call("sort", flat.real[order], stable=True)[1]]
    else:
        order = call("sort", flat, stable=True)[1]
    values = flat[order]
    new = call("ones", values.shape, dtype=call("ne", values, values).dtype, device=x.device)
    if values.shape[0] > 1:
        new = call("cat", [new[:1], values[1:] != values[:-1]])
    return values, order, new


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in order, their first indices, the way back, and how often each is."""
    values, order, new = _sorted_groups(x)
    group = call("cumsum", new.long(), 0) - 1
    inverse = call("scatter", call("zeros_like", group), 0, order, group)
    first = order[new]
    counts = call("bincount", group, minlength=first.shape[0])
    return UniqueAll(values[new], first, inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements, and how often each is there."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, and for each element which of them it is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements."""
    return unique_all(x).values  # type: ignore[no-any-return]


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of ``x1`` is in ``x2``."""
    x1, x2 = operands(x1, x2)
    return call("isin", x1, x2, invert=invert)  # type: ignore[no-any-return]
