"""A node whose gradients one function computes, all of them at once.

It does what the node of a :class:`~coredispatch.autograd.Function` does, for results that are new
tensors, at a tenth of the cost.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from coredispatch.frontend.autograd.function import inference_saved, saved_was_written
from coredispatch.frontend.autograd.node import GraphTask, Node
from coredispatch.frontend.autograd.recording import (
    add_edge,
    alias_of,
    assign_sequence_number,
    attach,
)
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.masks import masked
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import version_of
from coredispatch.registry.wiring import GRAPH

_INFERENCE: Final = TABLE.bit("inference")


class GradientsNode(Node):
    """Its gradients are ``gradients(node, saved, grads)``, of which some may be None."""

    def __init__(self, name: str, gradients: Any) -> None:
        super().__init__(name, True)
        self.gradients: Any = gradients
        self.versions: list[int] = []

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        """The gradients of the inputs."""
        saved = self.kept
        if saved is None:
            raise GRAPH.freed_error(self)
        number = 0
        for version in self.versions:
            value = saved[number]
            if version >= 0 and version_of(value) != version:
                raise saved_was_written(self, value, version)
            number += 1
        return self.gradients(self, saved, grads)

    def release(self) -> None:
        """Free what was saved; where nothing was, another pass needs nothing."""
        if self.kept:
            self.kept = None

    def name(self) -> str:
        """Name of the node."""
        return f"{self.opname}Backward"


def joined(name: str, gradients: Any, outs: Any, saved: Any, inputs: Any) -> bool:
    """Make ``outs`` results of a new node, through which gradients go back to ``inputs``.

    False, and nothing done, where that takes more than such a node: where a result is an input, a
    view or given twice, where an input belongs to a transform, while somebody watches the graph.

    Args:
        name: what it is called.
        gradients: of a :class:`GradientsNode`.
        outs, saved, inputs: tensors; among what is saved, numbers too.
    """
    if GRAPH.watched:
        return False
    seen = 0
    for out in outs:
        if out.keys & AUTOGRAD or out._view is not None:
            return False
        for other in outs:
            if other is out:
                seen += 1
    if seen != len(outs):
        return False
    for value in inputs:
        if isinstance(value.raw, Wrapper):
            return False
    node = GradientsNode(name, gradients)
    for value in inputs:
        add_edge(node, value)
    assign_sequence_number(node)
    for out in outs:
        attach(node, out)
    kept: list[Any] = []
    versions = node.versions
    for value in saved:
        if not isinstance(value, TensorBase):
            kept.append(value)
            versions.append(-1)
            continue
        if masked(value.keys) & _INFERENCE:
            raise inference_saved(node)
        versions.append(version_of(value))
        # A node must not own its outputs: of those it keeps an alias.
        kept.append(alias_of(value) if value._node is node else value)
    node.kept = kept
    return True
