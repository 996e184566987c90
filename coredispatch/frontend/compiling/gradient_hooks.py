"""Hooks that a backward pass calls for a tensor: a program that runs one depends on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from coredispatch.frontend.nn.calling import BackwardHookFunction
from coredispatch.registry.wiring import GRAPH

__all__ = ["any_hooks", "any_leaf_hooks", "hooks_of", "without_history"]


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


def any_hooks(outs: Iterable[Any], inputs: Iterable[Any]) -> bool:
    """Whether hooks see gradients on the way from ``outs`` back to ``inputs``."""
    seen = {id(node) for node in (t._node or t._accumulator for t in inputs) if node is not None}
    open_ = [tensor._node for tensor in outs]
    while open_:
        node = open_.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.tensor_hooks or node.pre_hooks or node.post_hooks:
            return True
        if node.name().startswith(BackwardHookFunction.__name__):  # of a module
            return True
        open_ += [edge for edge in node.next_edges if hasattr(edge, "next_edges")]
    return False


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
