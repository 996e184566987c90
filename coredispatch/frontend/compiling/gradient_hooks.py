"""Hooks that a backward pass calls for a tensor: a program that runs one depends on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from coredispatch.frontend.nn.calling import BackwardHookFunction
from coredispatch.plugin import Value
from coredispatch.registry.wiring import GRAPH

__all__ = ["any_hooks", "any_leaf_hooks", "hooks_of", "leaves_of", "without_history"]


def any_leaf_hooks() -> bool:
    """Whether a leaf ever had hooks in this process."""
    return bool(GRAPH.leaf_hooks)


def hooks_of(tensor: Any) -> tuple[Any, ...]:
    """The functions that see the gradient of a leaf, in order."""
    node = tensor._accumulator
    if node is None or tensor._node is not None:
        return ()
    kinds = [*(node.tensor_hooks or {}).values(), node.pre_hooks, node.post_hooks]
    return tuple([hook for kind in (*kinds, node.post_accumulate_hooks) for hook in kind or ()])


def behind(outs: Iterable[Any], inputs: Iterable[Any] = ()) -> Iterator[Any]:
    """The nodes and leaves that gradients of ``outs`` reach before those of ``inputs``."""
    seen = {id(node) for node in (t._node or t._accumulator for t in inputs) if node is not None}
    open_ = [tensor._node for tensor in outs]
    while open_:
        found = open_.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        open_ += getattr(found, "next_edges", ())


def any_hooks(outs: Iterable[Any], inputs: Iterable[Any]) -> bool:
    """Whether hooks see gradients on the way from ``outs`` back to ``inputs``."""
    return any(
        node.tensor_hooks
        or node.pre_hooks
        or node.post_hooks
        or node.name().startswith(BackwardHookFunction.__name__)  # of a module
        for node in behind(outs, inputs)
        if hasattr(node, "next_edges")
    )


def leaves_of(outs: Iterable[Any]) -> list[Any]:
    """The leaves that gradients of ``outs`` go to."""
    return [found for found in behind(outs) if isinstance(found, Value)]


@contextlib.contextmanager
def without_history(tensors: Iterable[Any]) -> Iterator[None]:
    """Inside, gradients end at these tensors, and no hook sees them there."""
    nodes = {id(n): n for n in (t._node or t._accumulator for t in tensors) if n is not None}
    known = [(node, node.tensor_hooks, node.next_edges) for node in nodes.values()]
    for node, _, edges in known:
        node.tensor_hooks, node.next_edges = None, [None] * len(edges)
    try:
        yield
    finally:
        for node, hooks, edges in known:
            node.tensor_hooks, node.next_edges = hooks, edges
