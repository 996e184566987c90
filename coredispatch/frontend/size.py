"""``Size``: the tuple that ``Tensor.shape`` is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

from coredispatch.registry.model.errors import DimError
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["Size"]


class Size(tuple[int, ...]):
    """Lengths of a tensor's dimensions: a tuple of int with ``numel()``."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements of a tensor of this size."""
        count = 1
        for length in self:
            count *= length
        return count

    def __repr__(self) -> str:
        return f"{SPELLING.package}.Size([{', '.join(map(str, self))}])"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: Any) -> Any:
        try:
            found = tuple.__getitem__(self, index)
        except IndexError:
            raise DimError(f"dim {index} of a tensor with {len(self)} dimensions") from None
        return Size(found) if isinstance(index, slice) else found

    # A sum of sizes is a Size, whatever the other one's elements are annotated as.
    def __add__(self, other: Iterable[int]) -> Size:  # type: ignore[override]
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[type[Size], tuple[tuple[int, ...]]]:
        return (Size, (tuple(self),))
