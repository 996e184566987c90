"""Graphs of submodules in place of the calls."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node, map_arg

__all__ = ["inline_modules"]


def inline_modules(graph: Graph, prefix: str = "") -> Graph:
    """A copy in which every call of a submodule that has a graph is spelled out.

    Paths of attributes and modules become those from the root. A submodule without a graph stays
    a call.
    """
    made = Graph(graph.owning_module)
    mapping: dict[Node, Any] = {}
    result = _copied(graph, made, mapping, prefix, graph.owning_module)
    made.output(result)
    made.eliminate_dead_code()
    return made


def _copied(graph: Graph, into: Graph, mapping: Any, prefix: str, owner: Any) -> Any:
    for node in graph.nodes:
        if node in mapping:
            continue
        if node.op == "output":
            return map_arg(node.args[0], lambda n: mapping[n])
        inner = _module(owner, node.target) if node.op == "call_module" else None
        if getattr(inner, "_graph", None) is None:
            mapping[node] = new = into.node_copy(node, lambda n: mapping[n])
            if node.op in ("get_attr", "set_attr", "call_module"):
                new.target = f"{prefix}{node.target}"
            continue
        own: dict[Node, Any] = {}
        given = map_arg(node.args, lambda n: mapping[n])
        for place, value in zip(inner._graph.placeholders, given, strict=True):
            own[place] = value
        below = f"{prefix}{node.target}."
        mapping[node] = _copied(inner._graph, into, own, below, inner)
    raise GraphError("the graph has no output", fix="call graph.output(...)")


def _module(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner
