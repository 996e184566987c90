"""The checks of :meth:`Graph.lint`: what every pass must leave true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.targets import check_target

if TYPE_CHECKING:
    from coredispatch.graph.graph import Graph

__all__ = ["lint"]


def lint(graph: Graph) -> None:
    """Raise :class:`GraphError` unless the graph is well formed.

    Names are unique, inputs come first, one output stands last and nothing uses it; every argument
    is made by an earlier node of the same graph; ``users`` agree with arguments; targets are such
    as a graph may hold; the graphs of control nodes fit their arguments.
    """
    seen: dict[Node, None] = {}
    names: set[str] = set()
    body = ended = False
    for node in graph.nodes:
        _require(node.graph is graph, f"{node.name!r} belongs to another graph")
        _require(node.name not in names, f"the name {node.name!r} stands for two nodes")
        _require(node.op != "placeholder" or not body, f"the input {node.name!r} is not in front")
        _require(not ended, f"{node.name!r} comes after the output")
        check_target(node.op, node.target)
        found: dict[Node, None] = {}
        map_arg((node.args, node.kwargs), found.setdefault)
        for used in found:
            _require(used in seen, f"{node.name!r} uses {used.name!r}, which no earlier node makes")
        _require(list(found) == node.all_input_nodes, f"{node.name!r} has stale arguments")
        for user in node.users:
            _require(
                node in user.all_input_nodes, f"{user.name!r} is no user of {node.name!r} any more"
            )
        for used in found:
            _require(node in used.users, f"{used.name!r} does not know its user {node.name!r}")
        _control(node)
        names.add(node.name)
        seen[node] = None
        body = body or node.op != "placeholder"
        ended = ended or node.op == "output"
    root = graph.owning_module
    if root is not None:
        _attributes(graph, root)


def _control(node: Node) -> None:
    for inner in node.graphs:
        lint(inner)
        _require(inner.output_node() is not None, f"a graph of {node.name!r} has no output")
    if node.op == "if":
        _require(len(node.graphs) == 2, f"{node.name!r} needs two graphs")
        for inner in node.graphs:
            wanted, given = len(inner.placeholders), len(node.args) - 1
            _require(
                wanted == given, f"a branch of {node.name!r} takes {wanted} values, not {given}"
            )
    elif node.op == "loop":
        _require(len(node.graphs) == 1, f"{node.name!r} needs one graph")
        wanted, given = len(node.graphs[0].placeholders), len(node.args) - 1
        _require(wanted == given, f"the body of {node.name!r} takes {wanted} values, not {given}")
        last: Any = node.graphs[0].output_node()
        result = last.args[0]
        _require(
            isinstance(result, (tuple, list)) and len(result) == given,
            f"the body of {node.name!r} returns no condition and {given - 1} values",
        )
    else:
        _require(not node.graphs, f"{node.name!r} is no control node and holds graphs")


def _attributes(graph: Graph, root: Any) -> None:
    """Every path is there, and where a module is called it is a module."""
    for node in graph.nodes:
        if node.op in ("get_attr", "set_attr", "call_module"):
            at = root
            for part in str(node.target).split("."):
                _require(
                    hasattr(at, part),
                    f"{node.name!r} asks for {node.target!r}, and there is no {part!r}",
                )
                at = getattr(at, part)
            _require(node.op != "call_module" or callable(at), f"{node.target!r} cannot be called")
        for inner in node.graphs:
            _attributes(inner, root)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        from coredispatch.graph.graph import GraphError

        raise GraphError(problem, fix="see graph.lint; a pass left the graph in this state")
