"""One way to write a call: ``x.tanh()``, ``x * 2`` and ``x += 1`` as calls of operators."""

from __future__ import annotations

from coredispatch.graph.calls import bound_arguments, operator_of
from coredispatch.graph.graph import Graph
from coredispatch.graph.kinds import INPLACE, is_tensor
from coredispatch.graph.node import Node
from coredispatch.graph.targets import spelled
from coredispatch.plugin import Operator
from coredispatch.registry import TABLE

__all__ = ["name_operators"]


def name_operators(graph: Graph) -> Graph:
    """A copy in which whatever calls an operator of the table is a ``call_function`` of it.

    Graphs of ``fx`` and ``script`` keep calls as they are written: methods, and Python's operators.
    Where one of them has a tensor it is that of the table, with its arguments as a trace has them.
    What has no tensor, or of which that is not known, stays.
    """
    made = graph.copy()
    _name(made)
    made.lint()
    return made


def _name(graph: Graph) -> None:
    found = {node: _meant(node) for node in graph.nodes}  # asked first: it follows from the users
    for node, op in found.items():
        for inner in node.graphs:
            _name(inner)
        args = None if op is None else bound_arguments(op, node)
        if op is not None and args is not None:
            given, named = spelled(op, args)
            node.op, node.target = "call_function", op
            node._set(given, named)


def _meant(node: Node) -> Operator | None:
    if isinstance(node.target, Operator) or not node.args:
        return None
    if node.op == "call_method" and not is_tensor(node.args[0]):
        return None
    if node.op == "call_function" and node.target in INPLACE and is_tensor(node.args[0]):
        return TABLE.operator(INPLACE[node.target])
    return operator_of(node)
