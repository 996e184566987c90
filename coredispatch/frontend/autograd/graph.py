"""The graph itself: its nodes, the edges to tensors, and what may be done at the end of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd.edges import GradientEdge
from coredispatch.frontend.autograd.engine import gradient_node
from coredispatch.frontend.autograd.multi_grad_hooks import register_multi_grad_hook
from coredispatch.frontend.autograd.mutation import (
    allow_mutation_on_saved_tensors,
    increment_version,
)
from coredispatch.frontend.autograd.node import GraphTask, Node
from coredispatch.frontend.autograd.saved_tensors import (
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.dispatch.masks import current_pass
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.wiring import GRAPH

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of ``tensor``, whose node is ``grad_fn``, or AccumulateGrad for a leaf.

    Raises :class:`AutogradError` for a tensor that requires no grad.
    """
    if not tensor.keys & AUTOGRAD:
        raise AutogradError(
            "it is not possible to get the gradient edge of a tensor that requires no grad",
            fix="set requires_grad=True on it before the computation",
        )
    return GradientEdge(GRAPH.as_named(gradient_node(tensor)), tensor.output_nr)


def queue_callback(callback: Callable[[], None]) -> None:
    """Call ``callback()`` at the end of the backward pass that runs in this thread.

    Then all gradients are accumulated. To be called from a hook or the backward of a Function;
    raises :class:`AutogradError` elsewhere. Callbacks run in the order they were queued, once.
    """
    task = current_pass()
    if task is None:
        raise AutogradError(
            "callbacks can only be queued during a backward pass",
            fix="call queue_callback from a hook",
        )
    task.callbacks.append(callback)


def _called(self: Node, *grads: Any) -> Any:
    """The gradients of the inputs for those of the outputs, outside of any pass."""
    results = tuple(self.backward(list(grads), None, GraphTask(True, False)))
    return results[0] if len(results) == 1 else results


# Not in the class itself: mypyc gives a class with __call__ a slot that only its own constructor
# fills, and nodes are made on shorter ways (the first recorded call would crash).
setattr(Node, "__call__", _called)  # noqa: B010
