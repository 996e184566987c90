"""The calls of submodules in a flat trace as graphs of their own."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_arg

__all__ = ["ModuleCall", "outline"]


@dataclass
class ModuleCall:
    """One call of a module during a trace.

    Attributes:
        path: of the module, from the root.
        begin: the last node before the call.
        end: the last node of the call.
        given: the values it was called with, ``(name, node)``.
    """

    path: str
    begin: Node
    end: Node
    given: list[tuple[str, Node]] = field(default_factory=list)


def outline(graph: Graph, calls: list[ModuleCall]) -> dict[str, Graph]:
    """Move the nodes of each call into a graph, and put a ``call_module`` in their place.

    ``calls`` are in the order in which they ended, inner ones first. Paths inside a graph are
    relative to its module. A module that is called several times keeps one graph where the calls
    agree; the others stay as they are, spelled out. Returns path -> graph.
    """
    found: dict[str, Graph] = {}
    for number, call in enumerate(calls):
        inside = _between(call.begin, call.end)
        if not inside:
            continue
        made = _extracted(call, inside)
        if made is None:
            continue
        inner, arguments, results = made
        known = found.get(call.path)
        if known is not None and known.code != inner.code:
            continue
        found.setdefault(call.path, inner)
        last = inside[-1]
        with graph.inserting_after(last):
            node = graph.call_module(call.path, tuple(arguments))
        node.meta = {"source": inside[0].meta.get("source")}
        infos = tuple(result.meta["value"] for result in results if "value" in result.meta)
        if len(infos) == len(results):
            node.meta["value"] = infos[0] if len(infos) == 1 else infos
        new = [node]
        if len(results) == 1:
            results[0].replace_all_uses_with(node, lambda user, own=set(inside): user not in own)
        else:
            for i, result in enumerate(results):
                with graph.inserting_after(new[-1]):
                    new.append(graph.call_function(operator.getitem, (node, i)))
                new[-1].meta = {k: v for k, v in result.meta.items() if k in ("value", "source")}
                result.replace_all_uses_with(new[-1], lambda user, own=set(inside): user not in own)
        gone = set(inside)
        for later in calls[number + 1 :]:
            later.begin = new[-1] if later.begin in gone else later.begin
            later.end = new[-1] if later.end in gone else later.end
            later.given = [(name, _replaced(n, results, new)) for name, n in later.given]
        for old in reversed(inside):
            graph.erase_node(old)
    return found


def _replaced(node: Node, results: list[Node], new: list[Node]) -> Node:
    if node not in results:
        return node
    return new[0] if len(results) == 1 else new[1 + results.index(node)]


def _between(begin: Node, end: Node) -> list[Node]:
    """The nodes after ``begin`` up to ``end``."""
    if begin is end:
        return []
    found, at = [], begin.next
    while True:
        if at.op == "output" or at is at.graph._root:
            return []
        if at.op not in ("get_attr", "placeholder"):
            found.append(at)
        if at is end:
            return found
        at = at.next


def _standing(made: Node, node: Node) -> Node:
    """A node of the inner graph that stands for one around it: what is known is the same."""
    if "value" in node.meta:
        made.meta["value"] = node.meta["value"]
    return made


def _extracted(call: ModuleCall, inside: list[Node]) -> Any:
    """``(graph, arguments, results)`` of the nodes, None where they cannot be moved."""
    prefix, own = f"{call.path}.", set(inside)
    inner = Graph()
    mapping: dict[Node, Any] = {}
    arguments: list[Any] = []
    outside: dict[Node, None] = {}
    for node in inside:
        for used in node.all_input_nodes:
            if used not in own:
                outside.setdefault(used)
    for name, node in call.given:
        if node not in own and node not in mapping and node.op != "get_attr":
            mapping[node] = _standing(inner.placeholder(name), node)
            arguments.append(node)
    reads = []
    for node in outside:
        if node in mapping:
            continue
        if node.op == "get_attr" and node.target.startswith(prefix):
            reads.append(node)
        else:
            mapping[node] = _standing(inner.placeholder(node.name), node)
            arguments.append(node)
    for node in reads:
        mapping[node] = _standing(inner.get_attr(node.target[len(prefix) :]), node)
    for node in inside:
        if node.op == "call_module" and not node.target.startswith(prefix):
            return None
        mapping[node] = made = inner.node_copy(node, lambda n: mapping[n])
        if node.op == "call_module":
            made.target = node.target[len(prefix) :]
    results = [node for node in inside if any(user not in own for user in node.users)]
    if not results:
        return None
    values = tuple(mapping[node] for node in results)
    inner.output(values[0] if len(values) == 1 else values)
    inner.eliminate_dead_code()
    return inner, map_arg(arguments, lambda n: n), results
