"""Steps of a graph: the class, of which there are none yet, and what handles nested arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from coredispatch.frontend.announced import announced_class

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any
Target = Callable[..., Any] | str
Node = announced_class("fx.Node", "call the module itself")

_F = TypeVar("_F", bound=Callable[..., Any])


def has_side_effect(fn: _F) -> _F:
    """A mark: calls of ``fn`` are not left out of a graph. Returns it."""
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``a`` with ``fn`` applied to what is in its tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(item, fn) for item in a]
    if isinstance(a, dict):
        return {key: map_aggregate(item, fn) for key, item in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(end, fn) for end in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``a`` with ``fn`` applied to the nodes in it. Raises TypeError for what cannot be called."""
    if not callable(fn):
        raise TypeError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)
