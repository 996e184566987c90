"""The same value computed once."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.calls import draws, operator_of
from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node
from coredispatch.graph.passes.aliasing import Aliases
from coredispatch.graph.targets import function_name, switches_mode

__all__ = ["eliminate_common_nodes", "repeatable"]


def eliminate_common_nodes(graph: Graph) -> Graph:
    """A copy in which equal calls with equal arguments are one.

    Random numbers, calls that write, and values that are written to or returned stay apart: a
    caller may write to one of two results. So do calls inside and outside of ``no_grad`` and
    ``autocast``.
    """
    made = graph.copy()
    aliases = Aliases(made)
    seen: dict[Any, Node] = {}
    for node in made.nodes:
        if switches_mode(node):
            seen.clear()
        key = _key(node) if _same_each_time(node, aliases) else None
        if key is None:
            continue
        known = seen.get(key)
        if known is None:
            seen[key] = node
            continue
        node.replace_all_uses_with(known)
        made.erase_node(node)
    made.lint()
    return made


def _same_each_time(node: Node, aliases: Aliases) -> bool:
    """Whether an equal call elsewhere in the graph gives the same value, for nobody to write to."""
    if not repeatable(node) or not aliases.private(node):
        return False
    return not any(aliases.of(used) in aliases.written for used in node.all_input_nodes)


def repeatable(node: Node) -> bool:
    """Whether the node gives the same value each time, and does nothing else."""
    if node.op not in ("call_function", "call_method") or node.is_impure():
        return False
    op = operator_of(node)
    if op is not None:
        return not draws(op, node) and not op.mutates and not op.name.startswith("empty")
    return (
        node.op == "call_function" and function_name(node.target) is not None and not _fresh(node)
    )


def _fresh(node: Node) -> bool:
    """Whether each call makes a container of its own, which somebody may change."""
    return node.target in (list, dict, sorted)


def _key(node: Node) -> Any:
    return (node.op, node.target, _frozen(node.args), _frozen(node.kwargs))


def _frozen(value: Any) -> Any:
    """``value`` as something that can be compared: 1, 1.0 and True are three."""
    if isinstance(value, (tuple, list)):
        return (type(value), tuple(map(_frozen, value)))
    if isinstance(value, dict):
        return (dict, tuple((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, slice):
        return (slice, _frozen((value.start, value.stop, value.step)))
    if isinstance(value, float):
        return (float, repr(value))
    if isinstance(value, Node):
        return value
    return (type(value), value)
