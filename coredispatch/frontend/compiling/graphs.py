"""Graphs cut out of what was recorded, and how they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import Graph, Node
from coredispatch.plugin import key_bit
from coredispatch.registry.dispatch.masks import call_masked

__all__ = ["OFF", "extracted", "made_by", "masked_call", "run_below"]

#: the layers that a graph runs below
OFF = AUTOGRAD | key_bit("autocast") | key_bit("compile")


def extracted(steps: list[Node], outputs: list[Node]) -> tuple[Graph, list[Node]]:
    """A graph of its own with these steps; its inputs are the nodes they use of elsewhere."""
    own = set(steps)
    graph = Graph()
    mapping: dict[Node, Any] = {}
    inputs: list[Node] = []
    for used in (*(n for step in steps for n in step.all_input_nodes), *outputs):
        if used not in own and used not in mapping:
            mapping[used] = place = graph.placeholder(used.name)
            place.meta = dict(used.meta)
            inputs.append(used)
    for step in steps:
        mapping[step] = graph.node_copy(step, lambda n: mapping[n])
    graph.output(tuple(mapping[node] for node in outputs))
    graph.eliminate_dead_code(_stays)
    graph.lint()
    return graph, inputs


def _stays(node: Node) -> bool:
    """Random numbers are drawn also where nobody looks at them: the stream goes on as in eager."""
    return node.is_impure()


def made_by(node: Node) -> set[Node]:
    """A node and what it is computed from."""
    found: set[Node] = set()
    open_ = [node]
    while open_:
        at = open_.pop()
        if at not in found:
            found.add(at)
            open_ += at.all_input_nodes
    return found


def masked_call(run: Callable[..., Any], values: list[Any]) -> Any:
    """``run(*values)`` below autograd and autocast."""
    return call_masked(run, values, OFF)


def run_below(run: Callable[..., Any], values: list[Any]) -> Any:
    """:func:`masked_call` of a compiled graph; what calls no operator needs no masks."""
    direct = getattr(run, "direct", None)
    made = NotImplemented if direct is None else direct(*values)
    return call_masked(run, values, OFF) if made is NotImplemented else made
