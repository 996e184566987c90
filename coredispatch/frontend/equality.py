"""Comparisons of whole tensors that answer with a Python bool, and ``Tensor.where``.

They are no operators: an operator's result is a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.support.rules import broadcast_shapes as _broadcast_shapes
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["allclose", "broadcast_shapes", "equal", "is_same_size"]


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether every element of ``input`` is close to that of ``other``.

    Close means ``abs(input - other) <= atol + rtol * abs(other)``; shapes broadcast. With
    ``equal_nan`` NaN is close to NaN.
    """
    return bool(TABLE.operator("all_close")(input, other, rtol, atol, equal_nan))


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one size and equal elements. NaN equals nothing."""
    if tuple(input.shape) != tuple(other.shape):
        return False
    return bool(TABLE.operator("all")(TABLE.operator("eq")(input, other)))


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one size."""
    return tuple(input.shape) == tuple(other.shape)


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that tensors of these shapes broadcast to; raises ``ShapeError`` if they do not."""
    return _broadcast_shapes([(s,) if isinstance(s, int) else tuple(s) for s in shapes])


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """``self`` where ``condition`` holds, else ``other``: ``cd.where(condition, self, other)``."""
    result: Tensor = TABLE.operator("where")(condition, self, other)
    return result


def install() -> None:
    """Set the methods on :class:`Tensor`."""
    _where.__name__ = "where"
    for method in (allclose, equal, is_same_size, _where):
        setattr(Tensor, method.__name__, method)


install()
