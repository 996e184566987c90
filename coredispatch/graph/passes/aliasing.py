"""Which values of a graph may share memory, and which of them are written."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.calls import bound_arguments, operator_of
from coredispatch.graph.graph import Graph
from coredispatch.graph.kinds import is_number
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.targets import expect_parts, function_name, library_name

__all__ = ["Aliases"]


#: functions of the library that write to buffers, or to their weight, beside what they return
_WRITERS = frozenset(["batch_norm", "embedding", "embedding_bag", "instance_norm"])


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
                for used in aliased_by(node):
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


def may_alias(node: Node) -> bool:
    """Whether a result of the node may share memory with an argument."""
    op = operator_of(node)
    if op is None:
        return node.target is not expect_parts and not is_number(node)
    if op.view == "maybe" and not op.mutates:
        return bool(node.meta.get("aliases", True))
    return bool(op.view) or bool(op.mutates)


def aliased_by(node: Node) -> list[Node]:
    """The arguments that a result of the node may share memory with."""
    if node.graphs:
        return _through_graphs(node)[0]
    if not may_alias(node):
        return []
    op = operator_of(node)
    if op is None:
        return node.all_input_nodes
    found = written_by(node)
    names = [p.name for p in op.schema.params]
    viewed = list(op.view.values()) if isinstance(op.view, dict) else names[: bool(op.view)]
    for name in viewed:
        position = names.index(name)
        given = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        map_arg(given, found.append)
    return found


def _through_graphs(node: Node) -> tuple[list[Node], list[Node]]:
    """Of a control node: the arguments that its results may alias, and those that it writes to."""
    aliased: list[Node] = []
    written: list[Node] = []
    for inner in node.graphs:
        classes = Aliases(inner)
        last = inner.output_node()
        results = {classes.of(n) for n in last.all_input_nodes} if last is not None else set()
        places = inner.placeholders[1:] if node.op == "loop" else inner.placeholders
        for place, argument in zip(reversed(places), reversed(node.args)):
            if isinstance(argument, Node):
                aliased += [argument] if classes.of(place) in results else []
                written += [argument] if classes.of(place) in classes.written else []
    if node.op == "loop" and (aliased or written):  # a turn gets what the last one returned
        return node.all_input_nodes, written and node.all_input_nodes
    return aliased, written


def written_by(node: Node) -> list[Node]:
    """The arguments that the node may write to."""
    op = operator_of(node)
    if op is not None:
        if not op.mutates:
            return []
        args = bound_arguments(op, node)
        if args is None:
            return node.all_input_nodes
        found: list[Any] = []
        for mutation in op.schema.mutations:
            if mutation.happens(args):
                map_arg(args[mutation.position], found.append)
        return found
    if node.op == "call_function" and function_name(node.target) is not None:
        writes = node.is_impure() and node.target is not expect_parts  # which raises, or nothing
        return node.all_input_nodes[:1] if writes else []
    if node.graphs:
        return _through_graphs(node)[1]
    if node.op == "call_method":
        return node.all_input_nodes if node.is_impure() else []
    if node.op == "call_function" and _only_computes(library_name(node.target)):
        return node.all_input_nodes if node.is_impure() else []
    return node.all_input_nodes


def _only_computes(path: str | None) -> bool:
    """Whether this function of the library writes to what it is told to write to only."""
    name = "_" if path is None else path.rpartition(".")[2]
    return name not in _WRITERS and not name.endswith("_")
