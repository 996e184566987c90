"""Programs that rewrite graphs: ``Transformer`` and ``replace_pattern``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from coredispatch.frontend.fx._symbolic_trace import symbolic_trace
from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.fx.proxy import Proxy, TracerBase
from coredispatch.graph import Graph, Interpreter, Node, map_aggregate

__all__ = ["Match", "Transformer", "replace_pattern"]


class _Copying(TracerBase):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Transformer(Interpreter):
    """Runs a graph with proxies and makes a new graph of what happens.

    Subclasses override ``call_function`` and the like, and call ``super()`` for what stays.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _Copying(self.new_graph)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An input of the new graph."""
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A read of an attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = super().run()
        if result is not None:
            strip = lambda a: a.node if isinstance(a, Proxy) else a  # noqa: E731
            self.new_graph.output(map_aggregate(result, strip))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


class Match(NamedTuple):
    """Where a pattern was found: the node that is its result, and pattern node -> node."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace every occurrence of ``pattern`` in the graph by ``replacement``.

    Both are functions, or modules, of the same number of inputs; an input matches any value.
    Occurrences do not overlap, and one whose inner values are used elsewhere does not count.
    The graph is changed in place and recompiled. Returns the matches, in order.
    """
    wanted, made = (_graph_of(program) for program in (pattern, replacement))
    if len(wanted.placeholders) != len(made.placeholders):
        raise RuntimeError(
            f"the pattern takes {len(wanted.placeholders)} inputs, "
            f"the replacement {len(made.placeholders)}"
        )
    found: list[Match] = []
    taken: set[Node] = set()
    for node in list(gm.graph.nodes):
        match = _match(wanted, node)
        if match is None:
            continue
        inner = [
            mapped
            for known, mapped in match.items()
            if known.op not in ("placeholder", "output") and isinstance(mapped, Node)
        ]
        if taken & set(inner):
            continue
        taken |= set(inner)
        found.append(Match(node, match))
    moved: dict[Node, Node] = {}
    for anchor, match in found:
        _replace(gm.graph, anchor, match, wanted, made, moved)
    gm.recompile()
    return found


def _graph_of(program: Any) -> Graph:
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _match(pattern: Graph, anchor: Node) -> dict[Node, Any] | None:
    """The nodes that the pattern's nodes stand for, where its result is ``anchor``."""
    last: Any = pattern.output_node()
    result = last.args[0]
    if not isinstance(result, Node) or result.op == "placeholder":
        raise RuntimeError("a pattern must return one value that it computes")
    mapping: dict[Node, Any] = {}
    if not _same(result, anchor, mapping):
        return None
    inside = {m for known, m in mapping.items() if known.op != "placeholder"}
    for known, mapped in mapping.items():
        if known.op in ("placeholder", "get_attr") or mapped is anchor:
            continue
        if any(user not in inside for user in mapped.users):
            return None
    return mapping


def _same(known: Any, given: Any, mapping: dict[Node, Any]) -> bool:
    if isinstance(known, Node):
        if known in mapping:
            return mapping[known] is given or (
                not isinstance(given, Node) and bool(mapping[known] == given)
            )
        if known.op == "placeholder":
            mapping[known] = given
            return True
        if not isinstance(given, Node) or (known.op, known.target) != (given.op, given.target):
            return False
        mapping[known] = given
        return _same(known.args, given.args, mapping) and _same(known.kwargs, given.kwargs, mapping)
    if isinstance(known, (tuple, list)):
        return (
            isinstance(given, (tuple, list))
            and len(known) == len(given)
            and all(_same(a, b, mapping) for a, b in zip(known, given))
        )
    if isinstance(known, dict):
        return (
            isinstance(given, dict)
            and known.keys() == given.keys()
            and all(_same(known[key], given[key], mapping) for key in known)
        )
    return not isinstance(given, Node) and type(known) is type(given) and bool(known == given)


def _replace(
    graph: Graph,
    anchor: Node,
    match: dict[Node, Any],
    wanted: Graph,
    made: Graph,
    moved: dict[Node, Node],
) -> None:
    values: dict[Node, Any] = {}
    for place, new in zip(wanted.placeholders, made.placeholders):
        value = match.get(place)
        values[new] = moved.get(value, value) if isinstance(value, Node) else value
    with graph.inserting_before(anchor):
        result = graph.graph_copy(made, values)
    if not isinstance(result, Node):
        raise RuntimeError("a replacement must return one value")
    anchor.replace_all_uses_with(result)
    moved[anchor] = result
    for known in reversed(list(wanted.nodes)):
        node = match.get(known)
        if known.op in ("placeholder", "output") or not isinstance(node, Node):
            continue
        if not node.users and not node._erased:
            graph.erase_node(node)
