"""What goes through a branch or a loop: which results are operands, and which may share memory."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.passes.aliasing import Aliases

__all__ = ["Flow", "lift_attributes", "operands_of", "places_of"]


def operands_of(node: Node) -> tuple[Any, ...]:
    """What a control node gives its graphs: all but the condition and the number of turns."""
    return node.args[1 if node.op == "if" else 2 :]


def places_of(node: Node, graph: Graph) -> list[Node]:
    """The inputs of one of its graphs that stand for the operands."""
    return graph.placeholders[0 if node.op == "if" else 1 :]


class Flow:
    """The results of a control node, one by one.

    Attributes:
        several: whether the node's value is a tuple.
        results: for each graph what it gives for each result.
        aliased: for each result the numbers of the operands that it may share memory with.
        shared: whether two results may share memory with each other.
    """

    def __init__(self, node: Node) -> None:
        found = [_result(node, graph) for graph in node.graphs]
        self.several = node.op == "loop" or all(isinstance(result, tuple) for result in found)
        self.results: list[tuple[Any, ...]] = [
            result if self.several else (result,) for result in found
        ]
        self.aliased: list[set[int]] = [set() for _ in self.results[0]]
        self.shared = False
        for graph, results in zip(node.graphs, self.results):
            classes = Aliases(graph)
            places = [classes.of(place) for place in places_of(node, graph)]
            seen: set[Node] = set()
            for number, result in enumerate(results):
                nodes: list[Node] = []
                map_arg(result, nodes.append)
                own = {classes.of(used) for used in nodes}
                self.shared |= bool(own & seen)
                seen |= own
                self.aliased[number] |= {n for n, place in enumerate(places) if place in own}


def _result(node: Node, graph: Graph) -> Any:
    last = graph.output_node()
    assert last is not None  # a graph without one does not run
    return last.args[0][1:] if node.op == "loop" else last.args[0]


def lift_attributes(graph: Graph) -> None:
    """Make the attributes that are written operands of the branches and loops that use them.

    A branch then has the value that the attribute has by then, and gives back a new one. Of a loop
    ``meta["results"]`` is the number of results that it had before.
    """
    written = _written_attributes(graph)
    if written:
        _lift(graph, written)


def _written_attributes(graph: Graph) -> set[str]:
    classes = Aliases(graph)
    reads = graph.find_nodes(op="get_attr")
    found = {str(node.target) for node in reads if classes.of(node) in classes.written}
    return found.union(*(_written_attributes(g) for node in graph.nodes for g in node.graphs))


def _lift(graph: Graph, written: set[str]) -> None:
    for node in [node for node in graph.nodes if node.graphs]:
        for inner in node.graphs:
            _lift(inner, written)
        reads = [n for inner in node.graphs for n in inner.find_nodes(op="get_attr")]
        for target in dict.fromkeys(n.target for n in reads if n.target in written):
            _lift_one(graph, node, target)


def _lift_one(graph: Graph, node: Node, target: str) -> None:
    if node.op == "loop":
        node.meta.setdefault("results", len(_result(node, node.graphs[0])))
    with graph.inserting_before(node):
        outer = graph.get_attr(target)
    outer.meta["type"] = "Tensor"
    node.args = (*node.args, outer)
    for inner in node.graphs:
        places = inner.placeholders
        with inner.inserting_after(places[-1]) if places else inner.inserting_before():
            place = inner.placeholder(target.replace(".", "_"))
        place.meta["type"] = "Tensor"
        for read in inner.find_nodes(op="get_attr", target=target):
            read.replace_all_uses_with(place)
            inner.erase_node(read)
        last = inner.output_node()
        if node.op == "loop" and last is not None:
            last.args = ((*last.args[0], place),)
