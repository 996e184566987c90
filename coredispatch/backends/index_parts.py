"""How an index falls into a basic part and a part of arrays, for any array library.

The meaning is PyTorch's, which differs from NumPy's in four places: an integer selects before
tensors are looked at (it never counts as an advanced index), a 0-dim integer tensor is an
integer, uint8 tensors are masks, and a slice may not step backwards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from coredispatch.registry.model.dtypes import DType, bool_, int64, uint8
from coredispatch.registry.model.errors import ArgumentError, DimError, IndexTypeError

__all__ = ["IndexParts", "Parts"]

_ALL = slice(None)
Parts = tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]


class IndexParts:
    """Splits indices over arrays of one library.

    Args:
        array_type: the library's array type.
        asarray: makes an array of a nested list of numbers.
        cast: ``cast(array, dtype)`` converts to a :class:`DType`.
    """

    def __init__(
        self,
        array_type: type,
        asarray: Callable[[Any], Any],
        cast: Callable[[Any, DType], Any],
    ) -> None:
        self.array_type = array_type
        self.asarray = asarray
        self.cast = cast

    def split(self, shape: tuple[int, ...], index: tuple[Any, ...]) -> Parts:
        """``(basic, advanced)``, to be applied to an array of ``shape`` one after the other.

        Either is None where there is nothing to do. ``advanced`` holds integer and boolean
        arrays and full slices, no trailing slices. Raises :class:`DimError` for what is out of
        range, is no index, or is a mask of another shape.
        """
        items = [self._plain(item) for item in index]
        if len(items) == 1 and isinstance(items[0], self.array_type):
            # The most frequent form; an embedding look-up passes here.
            self._check(items[0], shape, 0)
            return None, (items[0],)
        used = sum(map(self._consumed, items))
        if used > len(shape):
            raise DimError(
                f"there are {used} indices, too many for a tensor of shape {tuple(shape)}",
                fix="use fewer",
            )
        items = _without_ellipsis(items, len(shape) - used)
        basic: list[Any] = []
        advanced: list[Any] = []
        dim, last = 0, 0
        for item in items:
            if isinstance(item, self.array_type):
                self._check(item, shape, dim)
                basic += [_ALL] * self._consumed(item)
                advanced.append(item)
                last = len(advanced)
            elif type(item) is bool:
                basic.append(None)
                advanced.append(self.cast(self.asarray([0] if item else []), int64))
                last = len(advanced)
            else:
                basic.append(item)
                if type(item) is not int:
                    advanced.append(_ALL)
                elif not -shape[dim] <= item < shape[dim]:
                    raise DimError(
                        f"index {item} is out of bounds for dimension {dim} with size {shape[dim]}"
                    )
            dim += self._consumed(item)
        if not last:
            return tuple(basic), None
        plain = all(item is _ALL for item in basic)
        return None if plain else tuple(basic), tuple(advanced[:last])

    def slot_ndim(self, ndim: int, advanced: tuple[Any, ...]) -> int:
        """Number of dimensions of ``x[advanced]`` for an ``x`` of ``ndim`` dimensions."""
        common = 0
        for item in advanced:
            if isinstance(item, self.array_type):
                ndim -= self._consumed(item)
                common = max(common, 1 if self._is_mask(item) else item.ndim)
        return ndim + common

    def _plain(self, item: Any) -> Any:
        """An index item as int, bool, slice, None, Ellipsis or an array with dimensions."""
        kind = type(item)
        if kind is int or kind is bool or item is None or item is Ellipsis:
            return item
        if kind is slice:
            if item.step is not None and operator.index(item.step) < 1:
                raise ArgumentError("the step of a slice must be greater than zero", fix="use flip")
            return item
        if isinstance(item, (list, tuple)):
            item = self.asarray(item)
            if 0 in item.shape:
                item = self.cast(item, int64)
        elif not isinstance(item, self.array_type):
            try:
                return operator.index(item)
            except TypeError:
                raise IndexTypeError(
                    f"a {kind.__name__} is no index",
                    fix="index with integers, slices, None, ..., lists or tensors of them",
                ) from None
        dtype = DType.of(item.dtype)
        if dtype is uint8:
            item, dtype = self.cast(item, bool_), bool_
        if dtype is not bool_ and not (dtype.is_integral and dtype.is_signed):
            raise DimError(f"tensors used as indices must be int64, int32 or bool, not {dtype}")
        if item.ndim:
            return item
        return bool(item) if dtype is bool_ else int(item)

    def _consumed(self, item: Any) -> int:
        """How many dimensions of the tensor an index item speaks of."""
        if item is None or item is Ellipsis or type(item) is bool:
            return 0
        return item.ndim if self._is_mask(item) else 1

    def _is_mask(self, item: Any) -> bool:
        return isinstance(item, self.array_type) and DType.of(item.dtype) is bool_

    def _check(self, item: Any, shape: tuple[int, ...], dim: int) -> None:
        if self._is_mask(item):
            if tuple(item.shape) != tuple(shape[dim : dim + item.ndim]):
                raise DimError(
                    f"the mask of shape {tuple(item.shape)} at dimension {dim} does not fit the "
                    f"indexed tensor of shape {tuple(shape)}"
                )
        elif dim >= len(shape):
            raise DimError("a 0-dim tensor takes no index", fix="use x[()] or x.item()")


def _without_ellipsis(items: list[Any], missing: int) -> list[Any]:
    """The first ellipsis stands for all ``missing`` dimensions, a second one for none."""
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    for i in reversed(places[1:]):
        del items[i]
    if places:
        items[places[0] : places[0] + 1] = [_ALL] * missing
    return items
