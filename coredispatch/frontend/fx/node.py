"""PyTorch's path of ``Node`` and what belongs to it."""

from collections.abc import Callable
from typing import Any, TypeVar

from coredispatch.graph.node import Node, map_aggregate, map_arg

F = TypeVar("F", bound=Callable[..., Any])

#: what annotations of programs name
Argument = Any
Target = Any
BaseArgumentTypes = (str, int, float, bool, complex)
base_types = BaseArgumentTypes


def has_side_effect(fn: F) -> F:
    """Mark a function whose calls stay in a graph though nobody uses their results."""
    fn._is_impure = True  # type: ignore[attr-defined]
    return fn


__all__ = ["Argument", "BaseArgumentTypes", "Node", "Target", "base_types", "has_side_effect"]
__all__ += ["map_aggregate"]
__all__ += ["map_arg"]
