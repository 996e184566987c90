"""Composite operators spelled out in the operators that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from coredispatch.graph.abstract import Abstract, AbstractRecorder
from coredispatch.graph.calls import operator_of
from coredispatch.graph.capture import load, source, tracing
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.interpreter import Interpreter
from coredispatch.graph.kinds import ARITHMETIC
from coredispatch.graph.node import Node, map_aggregate
from coredispatch.graph.passes.aliasing import written_by
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.symbols import Size, SymbolTable
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import Operator, Value
from coredispatch.registry import TABLE

__all__ = ["decompose"]

#: in the place of what is not known; None is what an argument that was left out is
_UNKNOWN = object()
#: composites that stay: what they come to depends on how memory lies
_WHOLE = frozenset(["contiguous", "copy_", "reshape"])


def decompose(
    graph: Graph,
    *,
    inputs: Sequence[Any] | None = None,
    keep: Collection[str] | Callable[[Operator], bool] = (),
    symbols: SymbolTable | None = None,
    whole: Callable[[Operator], bool] = lambda op: False,
) -> Graph:
    """A graph of primitive operators, and of those composites that ``keep`` names.

    ``reshape`` and ``contiguous`` stay too: what they come to depends on how memory lies.

    Args:
        graph: operators as a trace has them. Modules without a graph of their own are followed too.
        inputs: a tensor, a :class:`~coredispatch.graph.ValueInfo`, a number, or None where the
            program gets None, for each input; by default what the nodes know (``meta["value"]``).
        keep: names of composites that stay, or a function that says it of an operator.
        symbols: the table of the symbols in the inputs' shapes, which gets the guards.
        whole: says of a composite whether it stays whole too where its decomposition holds for some
            of the open sizes only, as that of ``cummax``, which takes the more steps the longer.

    Decompositions depend on shapes and dtypes. The result holds for those of the inputs: a size
    that is an int is that int from here on, a :class:`~coredispatch.graph.symbols.Size` stays
    open. A composite whose decomposition looks at elements stays whole;
    ``made.meta["kept_whole"]`` has the names of those.

    Raises :class:`GraphError` where nothing is known of an input.

    Example:
        >>> graph = cd.jit.trace(lambda x: x.softmax(-1), cd.ones(2, 3)).graph
        >>> [str(n.target) for n in decompose(graph).nodes]  # doctest: +SKIP
    """
    load()
    chosen: Callable[[Operator], bool] = (
        keep if callable(keep) else frozenset(keep).__contains__  # type: ignore[assignment]
    )

    def expand(op: Operator) -> bool:
        if op.kind != "composite" or op.name in _WHOLE:
            return False
        if op.decomposition is None and op.inplace_of is None:
            return False
        return not (chosen(op) if callable(keep) else op.name in keep)

    made = _Decomposition(graph, expand, symbols, whole).graph_of(inputs)
    made.eliminate_dead_code()
    if _writes(made) and not _writes(graph):  # on values of its own: functional forms have them
        named = {key: made.meta[key] for key in ("written",) if key in made.meta}
        made = functionalize(made, write_back=True)
        made.meta.update(named)
    made.lint()
    return made


def _writes(graph: Graph) -> bool:
    return any(operator_of(node) is not None and written_by(node) for node in graph.nodes)


class _Decomposition(Interpreter):
    """Runs the graph without data; its operators arrive at the recorder, which spells them out."""

    def __init__(
        self,
        graph: Graph,
        expand: Callable[[Operator], bool],
        symbols: SymbolTable | None,
        whole: Callable[[Operator], bool],
    ) -> None:
        super().__init__(graph.owning_module, graph=graph)
        self.expand = expand
        self.paths: dict[int, str] = {}
        self.inputs: dict[Node, Node] = {}
        self.recorder = AbstractRecorder(self.paths, self.constant, symbols, expand, whole)
        if symbols is None:
            self.recorder.symbols = _table_of(graph) or SymbolTable(source)

    def graph_of(self, inputs: Sequence[Any] | None) -> Graph:
        recorder, graph = self.recorder, self.graph
        recorder.graph.owning_module = graph.owning_module
        recorder.graph.meta = dict(graph.meta)
        places = graph.placeholders
        given = [_told(node) for node in places] if inputs is None else list(inputs)
        if len(given) != len(places):
            raise GraphError(f"the graph has {len(places)} inputs, and {len(given)} were given")
        values = {}
        for node, value in zip(places, given):
            info = info_of(value) if isinstance(value, Value) else value
            if info is _UNKNOWN:
                raise GraphError(
                    f"nothing is known of the input {node.name!r}",
                    fix="give inputs=, examples of the inputs",
                )
            made = recorder.graph.node_copy(node)
            recorder.head = made
            values[node] = recorder.input(made, info)
            self.inputs[node] = made
        with tracing(recorder):
            for node in graph.nodes:
                if node.op == "get_attr":
                    values[node] = self.attribute(node)
            result = super().run(initial_env=values)
        recorder.origin = None
        recorder.graph.output(recorder.argument(result))
        if recorder.kept_whole:
            recorder.graph.meta["kept_whole"] = tuple(sorted(recorder.kept_whole))
        return recorder.graph

    def attribute(self, node: Node) -> Any:
        info = node.meta.get("value")
        if not isinstance(info, ValueInfo):
            value = self.fetch_attr(node.target)
            if not isinstance(value, Value):
                return value
            info = info_of(value)
            self.paths[id(value)] = node.target
        made = self.recorder.graph.node_copy(node)
        self.recorder.head = made
        made.meta["value"] = info
        self.recorder.attributes[node.target] = made
        return self.recorder.tensor(made, info)

    def constant(self, tensor: Any) -> str:
        """A place in the module for a tensor that a decomposition made of numbers."""
        owner, number = self.module, 0
        if owner is None:
            raise GraphError(
                "a decomposition holds a tensor, and the graph has no module to keep it in",
                fix="set graph.owning_module",
            )
        while hasattr(owner, f"_decomposed{number}"):
            number += 1
        owner.register_buffer(f"_decomposed{number}", tensor, persistent=False)
        return f"_decomposed{number}"

    def run_node(self, n: Node) -> Any:
        """Run a node; what is recorded meanwhile comes from its line."""
        self.recorder.origin = n.meta
        return self.control(n) if n.graphs else super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call; a number that is known only when the graph runs stays a node."""
        found: list[Any] = []
        map_aggregate((args, kwargs), found.append)
        open_number = any(isinstance(item, Node) for item in found)
        reads = target is bool and any(isinstance(value, Value) for value in found)
        if isinstance(target, Operator) or not (open_number or reads):
            return super().call_function(target, args, kwargs)
        if open_number and any(isinstance(v, Value) for v in found):
            target = TABLE.operator(ARITHMETIC[target]) if target in ARITHMETIC else target
            return super().call_function(target, args, kwargs)
        recorder = self.recorder
        made = recorder.graph.call_function(target, *recorder.argument((args, kwargs)))
        recorder._noted(made)
        return made

    def output(self, target: str, args: Any, kwargs: Any) -> Any:
        """What the graph returns."""
        return args[0]

    def control(self, node: Node) -> Any:
        """A control node, with its graphs decomposed."""
        recorder = self.recorder
        args, _ = self.fetch_args_kwargs_from_env(node)
        # A condition that is an input stays one, though its example is known.
        args = tuple(
            value if isinstance(value, Value) else self.number(n, value)
            for n, value in zip(node.args, args)
        )
        infos = [_info(value) for value in args]
        given = [0, *infos[2:]] if node.op == "loop" else infos[1:]
        graphs = tuple(_Inner(self, graph).graph_of(given) for graph in node.graphs)
        ends = [graph.output_node() for graph in graphs]
        results = [map_aggregate(end.args[0], _known) for end in ends if end is not None]
        if node.op == "loop":
            carried = tuple(results[0][1:])
            if list(map(_shape, carried)) != list(map(_shape, infos[2:])):
                raise GraphError(
                    f"{node.name!r} changes the shape or dtype of what it carries in a turn",
                    fix="decompose before the loop is made, or keep composites in it",
                )
            results = [carried]
        made = recorder.graph.create_node(
            node.op, node.target, recorder.argument(args), {}, node.name, node.type, graphs
        )
        recorder._noted(made)
        return recorder.standing(made, results[0], _number)

    def number(self, argument: Any, value: Any) -> Any:
        return self.inputs.get(argument, value) if isinstance(argument, Node) else value


class _Inner(_Decomposition):
    def __init__(self, outer: _Decomposition, graph: Graph) -> None:
        super().__init__(graph, outer.expand, outer.recorder.symbols, outer.recorder.whole)
        self.module = outer.module


def _number(made: Node, value: Any) -> Any:
    """A number that a branch gives is the node: another branch may give another one."""
    return made if value is None or isinstance(value, (bool, int, float)) else value


def _info(value: Any) -> Any:
    if isinstance(value, Node):
        return _told(value)
    found = Abstract.of(value)
    return value if found is None else found.info


def _told(node: Node) -> Any:
    return node.meta.get("value", _UNKNOWN)


def _known(value: Any) -> Any:
    return value.meta.get("value") if isinstance(value, Node) else value


def _shape(info: Any) -> Any:
    return (info.shape, info.dtype) if isinstance(info, ValueInfo) else type(info)


def _table_of(graph: Graph) -> SymbolTable | None:
    for node in graph.placeholders:
        info = node.meta.get("value")
        for size in info.shape if isinstance(info, ValueInfo) else [info]:
            if isinstance(size, Size):
                return size.table
    return None
