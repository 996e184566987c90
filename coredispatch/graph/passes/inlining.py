"""Graphs of submodules in place of the calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node, map_arg

__all__ = ["inline_modules", "replace_node"]


def inline_modules(graph: Graph, graph_of: Callable[[Any], Graph | None] | None = None) -> Graph:
    """A copy in which every call of a submodule that has a graph is spelled out.

    Calls inside branches and loops are spelled out too. Paths of attributes and modules become
    those from the root. A submodule without a graph stays a call. ``graph_of`` says which graph a
    module has, by default the one that it runs.
    """
    made = graph.copy()
    _inline(made, "", graph.owning_module, graph_of or _own_graph)
    made.eliminate_dead_code()
    made.lint()
    return made


def _own_graph(module: Any) -> Graph | None:
    found: Graph | None = getattr(module, "_graph", None)
    return found


def _inline(graph: Graph, prefix: str, owner: Any, graph_of: Any) -> None:
    for node in list(graph.nodes):
        for inner in node.graphs:
            _inline(inner, prefix, owner, graph_of)
        if node.op not in ("get_attr", "set_attr", "call_module"):
            continue
        path = str(node.target)
        child = _module(owner, path) if node.op == "call_module" else None
        inner_graph = None if child is None else graph_of(child)
        node.target = f"{prefix}{path}"
        if inner_graph is not None:
            body = inner_graph.copy()
            _inline(body, f"{prefix}{path}.", child, graph_of)
            with graph.inserting_before(node):
                result = graph.graph_copy(body, _bound(body, node))
            replace_node(node, result)


def _bound(body: Graph, node: Node) -> dict[Node, Any]:
    """The inputs of ``body`` and what a call gives for them."""
    values: dict[Node, Any] = {}
    given = dict(node.kwargs)
    for number, place in enumerate(body.placeholders):
        if number < len(node.args):
            values[place] = node.args[number]
        elif place.target in given:
            values[place] = given.pop(str(place.target))
        elif place.args:
            values[place] = place.args[0]
        else:
            raise GraphError(f"{node.name!r} gives no value for {place.target!r}")
    return values


def replace_node(node: Node, result: Any) -> None:
    """Put ``result``, nodes and constants in any structure, wherever ``node`` is used."""
    for user in list(node.users):
        index = user.args[1] if len(user.args) == 2 else None
        picks = user.target is operator.getitem and user.args[0] is node
        if (
            picks
            and isinstance(result, (tuple, list, dict))
            and not isinstance(index, (Node, slice))
        ):
            replace_node(user, result[index])
            continue
        put = lambda used: result if used is node else used  # noqa: E731
        user._set(map_arg(user.args, put), map_arg(user.kwargs, put))
    node.graph.erase_node(node)


def _module(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner
