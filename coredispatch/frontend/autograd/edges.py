"""Gradient edges: a node and one of its outputs, in the place of the tensor that it made."""

from __future__ import annotations

from typing import Any, NamedTuple

from coredispatch.frontend.autograd.accumulate import AccumulateGrad
from coredispatch.frontend.autograd.node import Node
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError

__all__ = ["GradientEdge", "stands_for"]


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor goes: a node, and which of its outputs the tensor is.

    ``backward`` and ``grad`` take one wherever they take the tensor.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


class _Absent:
    """The data of a tensor that is known by its edge alone."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


def stands_for(edge: Any) -> Any:
    """The leaf that a gradient edge leads to, or a tensor without data in the place of its output.

    Anything else comes back as it is.
    """
    if not isinstance(edge, GradientEdge):
        return edge
    if isinstance(edge.node, AccumulateGrad):
        leaf = edge.node.variable
        if leaf is None:
            raise AutogradError("the leaf of this gradient edge is gone", fix="keep the tensor")
        return leaf
    made = edge.node.output(edge.output_nr)
    tensor = TensorBase(_Absent(tuple(made.shape), made.dtype), made.keys | AUTOGRAD)
    tensor._dtype = made.dtype
    tensor._node, tensor._output_nr = edge.node, edge.output_nr
    return tensor


def implicit_gradient(edge: Any) -> Any:
    """The gradient 1 for the output of an edge."""
    made = edge.node.output(edge.output_nr)
    order = TABLE.snapshot.order
    backend = next(key.name for key in order.members(made.keys & order.backend_bits))
    return TABLE.operator("ones")(tuple(made.shape), dtype=made.dtype, device=backend)
