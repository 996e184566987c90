"""Programs that rewrite graphs: ``Transformer``, ``replace_pattern`` and what it is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coredispatch.frontend.fx._symbolic_trace import symbolic_trace
from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.fx.proxy import Proxy, TracerBase
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, Interpreter, Node, map_aggregate

__all__ = [
    "InternalMatch",
    "Match",
    "ReplacedPatterns",
    "Transformer",
    "replace_pattern",
    "replace_pattern_with_filters",
]


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
            made = self.new_graph.output(map_aggregate(result, strip))
            output = self.module.graph.output_node()
            if output is not None:
                made.meta = dict(output.meta)
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
    wanted, made = _graph_of(pattern), _graph_of(replacement)
    _check_inputs(wanted, made)
    found = _found(gm.graph, wanted, [], loose=False)
    _rewritten(gm, wanted, found, lambda match: made)
    _take_over(gm, replacement)
    return [Match(match.returning_nodes[0], match.nodes_map) for match in found]


@dataclass
class InternalMatch:
    """Where a pattern was found, as filters of matches see it.

    Attributes:
        anchors: the node of the pattern that is its result.
        nodes_map: pattern node -> node, or the value that stands for an input.
        placeholder_nodes: what stands for the inputs of the pattern, in order.
        returning_nodes: what stands for the result.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any]
    placeholder_nodes: list[Any]
    returning_nodes: list[Node]


@dataclass
class ReplacedPatterns:
    """A replacement: the pattern's result, pattern node -> node, and the new nodes."""

    anchor: Node
    nodes_map: dict[Node, Any]
    replacements: list[Node]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: Sequence[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    """:func:`replace_pattern` where every filter agrees.

    Args:
        gm, pattern, replacement: as for :func:`replace_pattern`.
        match_filters: functions of a match, the graph and the graph of the pattern.
        ignore_literals: whether other numbers and texts than those of the pattern count too.
        replacement_callback: makes the replacement of a match, from the same arguments.
    """
    wanted = _graph_of(pattern)
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a callback")
    made = None if replacement is None else _graph_of(replacement)

    def graph_for(match: InternalMatch) -> Graph:
        if replacement_callback is not None:
            return replacement_callback(match, gm.graph, wanted)
        assert made is not None
        return made

    found = _found(gm.graph, wanted, list(match_filters or ()), loose=ignore_literals)
    new = _rewritten(gm, wanted, found, graph_for)
    _take_over(gm, replacement)
    return [
        ReplacedPatterns(match.anchors[0], match.nodes_map, nodes)
        for match, nodes in zip(found, new)
    ]


def _check_inputs(wanted: Graph, made: Graph) -> None:
    if len(wanted.placeholders) != len(made.placeholders):
        raise RuntimeError(
            f"the pattern takes {len(wanted.placeholders)} inputs, "
            f"the replacement {len(made.placeholders)}"
        )


def _found(graph: Graph, wanted: Graph, filters: list[Any], *, loose: bool) -> list[InternalMatch]:
    """The matches that do not overlap, and that every filter takes."""
    found: list[InternalMatch] = []
    taken: set[Node] = set()
    for node in list(graph.nodes):
        mapping = _match(wanted, node, loose)
        if mapping is None:
            continue
        inner = {
            mapped
            for known, mapped in mapping.items()
            if known.op not in ("placeholder", "output") and isinstance(mapped, Node)
        }
        inputs = [mapping.get(place) for place in wanted.placeholders]
        ends: Any = wanted.output_node()
        match = InternalMatch([ends.args[0]], mapping, inputs, [node])
        if not taken & inner:
            taken |= inner
            found.append(match)
    return [match for match in found if all(f(match, graph, wanted) for f in filters)]


def _rewritten(
    gm: GraphModule,
    wanted: Graph,
    found: list[InternalMatch],
    graph_for: Callable[[InternalMatch], Graph],
) -> list[list[Node]]:
    """Replace the matches one after the other; the nodes that were made for each."""
    moved: dict[Node, Node] = {}
    new: list[list[Node]] = []
    for match in found:
        made = graph_for(match)
        _check_inputs(wanted, made)
        before = set(gm.graph.nodes)
        _replace(gm.graph, match.returning_nodes[0], match.nodes_map, wanted, made, moved)
        new.append([node for node in gm.graph.nodes if node not in before])
    gm.recompile()
    return new


def _take_over(gm: GraphModule, replacement: Any) -> None:
    """What a replacement that is a module reads of itself, and the module does not have."""
    if not isinstance(replacement, Module):
        return
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _reached(gm, node.target) is not None:
            continue
        value = copy.deepcopy(_reached(replacement, node.target))
        if isinstance(value, Module):
            gm.add_submodule(node.target, value)
        elif isinstance(value, Parameter) or "." in node.target:
            owner, _, last = node.target.rpartition(".")
            setattr(gm.get_submodule(owner), last, value)
        elif isinstance(value, Tensor):
            gm.register_buffer(node.target, value)
        else:
            setattr(gm, node.target, value)


def _reached(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def _graph_of(program: Any) -> Graph:
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _match(pattern: Graph, anchor: Node, loose: bool) -> dict[Node, Any] | None:
    """The nodes that the pattern's nodes stand for, where its result is ``anchor``."""
    last: Any = pattern.output_node()
    result = last.args[0]
    if not isinstance(result, Node) or result.op == "placeholder":
        raise RuntimeError("a pattern must return one value that it computes")
    mapping: dict[Node, Any] = {}
    if not _same(result, anchor, mapping, loose):
        return None
    inside = {m for known, m in mapping.items() if known.op != "placeholder"}
    for known, mapped in mapping.items():
        if known.op in ("placeholder", "get_attr") or mapped is anchor:
            continue
        if any(user not in inside for user in mapped.users):
            return None
    return mapping


def _same(known: Any, given: Any, mapping: dict[Node, Any], loose: bool) -> bool:
    """Whether ``given`` is what the pattern has; ``loose``: whatever its literals are."""
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
        pairs = (known.args, given.args), (known.kwargs, given.kwargs)
        return all(_same(one, other, mapping, loose) for one, other in pairs)
    if isinstance(known, (tuple, list)):
        return (
            isinstance(given, (tuple, list))
            and len(known) == len(given)
            and all(_same(a, b, mapping, loose) for a, b in zip(known, given))
        )
    if isinstance(known, dict):
        return (
            isinstance(given, dict)
            and known.keys() == given.keys()
            and all(_same(known[key], given[key], mapping, loose) for key in known)
        )
    if isinstance(given, Node):
        return False
    return loose or (type(known) is type(given) and bool(known == given))


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
