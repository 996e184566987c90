"""Which values of a graph may share memory, and which of them are written."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.targets import function_name
from coredispatch.plugin import Operator

__all__ = ["Aliases"]


class Aliases:
    """Classes of values that may share memory.

    A result of an operator that views, and of anything that is not known (a module, a method that
    is no operator, a function of the user's), may share memory with all its arguments.

    Attributes:
        written: the classes that something writes to.
        returned: the classes that the graph returns, or that come from outside.
    """

    def __init__(self, graph: Graph) -> None:
        self._parent: dict[Node, Node] = {}
        writes: list[Node] = []
        outside: list[Node] = []
        for node in graph.nodes:
            self._parent[node] = node
            if node.op in ("placeholder", "get_attr"):
                outside.append(node)
            elif node.op == "output":
                outside += node.all_input_nodes
            else:
                if may_alias(node):
                    for used in node.all_input_nodes:
                        self._join(node, used)
                writes += written_by(node)
        self.written = {self.of(node) for node in writes}
        self.returned = {self.of(node) for node in outside}

    def of(self, node: Node) -> Node:
        """The representative of the class that ``node`` is in."""
        while self._parent[node] is not node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def _join(self, a: Node, b: Node) -> None:
        self._parent[self.of(a)] = self.of(b)

    def private(self, node: Node) -> bool:
        """Whether nobody writes to the value, and it neither comes from outside nor goes there."""
        return self.of(node) not in self.written and self.of(node) not in self.returned


def operator_of(node: Node) -> Operator | None:
    """The operator that a node calls, as a function or as a method."""
    if isinstance(node.target, Operator):
        return node.target
    if node.op == "call_method":
        from coredispatch.registry import TABLE

        return TABLE.snapshot.ops.get(node.target)
    return None


def may_alias(node: Node) -> bool:
    """Whether a result of the node may share memory with an argument."""
    op = operator_of(node)
    if op is not None:
        return bool(op.view) or bool(op.mutates)
    return True


def written_by(node: Node) -> list[Node]:
    """The arguments that the node may write to."""
    op = operator_of(node)
    if op is not None:
        if not op.mutates:
            return []
        names = {p.name: i for i, p in enumerate(op.schema.params)}
        found: list[Any] = []
        for name in op.mutates:
            position = names[name]
            given = node.args[position] if position < len(node.args) else node.kwargs.get(name)
            map_arg(given, found.append)
        return found
    if node.op == "call_function" and function_name(node.target) is not None:
        return node.all_input_nodes[:1] if node.is_impure() else []
    return node.all_input_nodes
