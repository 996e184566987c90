"""``Size``: the tuple that ``Tensor.shape`` is."""

from __future__ import annotations

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
        return f"cd.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other):  # type: ignore[no-untyped-def, override]
        return Size(tuple.__add__(self, tuple(other)))

    def __reduce__(self) -> tuple[type[Size], tuple[tuple[int, ...]]]:
        return (Size, (tuple(self),))
