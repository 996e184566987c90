"""Hooks that wait for the gradients of several tensors of a backward pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.frontend.autograd.accumulate import accumulator
from coredispatch.frontend.autograd.engine import gradient_node
from coredispatch.frontend.autograd.node import Node
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.registry.dispatch.masks import current_pass

__all__ = ["register_multi_grad_hook"]


class _Handles:
    """Removes the hooks of all tensors; also at the end of a ``with``."""

    def __init__(self, handles: list[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Take the hooks out."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., None], *, mode: str = "all"
) -> _Handles:
    """Call ``fn`` in each backward pass once the gradients of ``tensors`` are there.

    With ``mode="all"`` after the last of those that the pass computes, with a list of gradients and
    None for tensors that it does not reach; with ``"any"`` after the first, with that gradient.
    Raises ValueError for another mode. Returns a handle with ``remove()``.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    waiting: dict[int, _Pass] = {}

    def hook_of(index: int) -> Callable[[Any], None]:
        def hook(gradient: Any) -> None:
            task = current_pass()
            with lock:
                found = waiting.get(id(task))
                if found is None:
                    found = waiting[id(task)] = _Pass(tensors, index, task)
                    task.callbacks.append(lambda: _end(id(task)))
                found.gradients[index] = gradient
                found.left.discard(index)
                ready = not found.called and (mode == "any" or not found.left)
                found.called = found.called or ready
            if ready:
                fn(gradient if mode == "any" else found.gradients)

        return hook

    def _end(key: int) -> None:
        found = waiting.pop(key)
        if not found.called:  # one of the gradients was undefined
            fn(found.gradients)

    return _Handles([tensor.register_hook(hook_of(i)) for i, tensor in enumerate(tensors)])


class _Pass:
    """What one backward pass has computed so far."""

    def __init__(self, tensors: Sequence[Any], first: int, task: Any) -> None:
        self.called = False
        self.gradients: list[Any] = [None] * len(tensors)
        nodes = [gradient_node(tensor) for tensor in tensors]
        reached = _reached([nodes[first], *task.pending.values()], task.exec_info)
        self.left = {i for i, node in enumerate(nodes) if node.sequence in reached}
        self.left.add(first)


def _reached(starts: list[Node], exec_info: set[int] | None) -> set[int]:
    """The nodes that a pass still comes to, leaves included, by their sequence numbers."""
    found: set[int] = set()
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node.sequence in found:
            continue
        found.add(node.sequence)
        for edge in node.next_edges:
            if edge is None:
                continue
            following = edge if isinstance(edge, Node) else accumulator(edge)
            if exec_info is None or following.sequence in exec_info:
                stack.append(following)
    return found
