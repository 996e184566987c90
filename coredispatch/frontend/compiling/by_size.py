"""Graphs with open sizes, for compilers that take graphs of one size.

The interpreter runs such a graph as it is, whatever the sizes. A compiler gets it with numbers in
the place of the symbols, for each choice of sizes that comes a second time: until then the
interpreter serves it, so that sizes which never come again cost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.graph import Graph, Node, map_arg
from coredispatch.graph.compilers import Compiler, eager
from coredispatch.graph.passes.inference import infer_values
from coredispatch.plugin import Operator

__all__ = ["BySize", "compiled", "with_sizes"]

#: for how many choices of sizes compiled graphs are kept, and how many are remembered at all
_MOST, _REMEMBERED = 64, 4096


def compiled(compiler: Compiler, graph: Graph, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph as ``compiler`` has it, for inputs like these and, where sizes are open, others."""
    if any("open" in node.meta for node in graph.nodes):
        compiler = eager  # shapes of results differ from call to call
    if compiler is not eager and any(node.meta.get("size") for node in graph.placeholders):
        return BySize(compiler, graph)
    run: Any = compiler(graph, inputs)
    return run  # type: ignore[no-any-return]


class BySize:
    """A graph with sizes among its inputs.

    Attributes:
        ready: sizes -> the compiled graph for them.
        interpreted: how many calls the interpreter served.
    """

    def __init__(self, compiler: Compiler, graph: Graph) -> None:
        self.compiler, self.graph = compiler, graph
        places = [bool(node.meta.get("size")) for node in graph.placeholders]
        self.sizes = [i for i, size in enumerate(places) if size]
        self.rest = [i for i, size in enumerate(places) if not size]
        self.general = eager(graph, ())
        self.ready: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.seen: set[tuple[int, ...]] = set()
        self.interpreted = 0
        self.lock = threading.Lock()

    def __call__(self, *values: Any) -> Any:
        sizes = tuple([values[i] for i in self.sizes])
        run = self.ready.get(sizes)
        if run is None:
            if sizes not in self.seen or not self.lock.acquire(blocking=False):
                if len(self.seen) >= _REMEMBERED:
                    self.seen.clear()
                self.seen.add(sizes)
                self.interpreted += 1
                return self.general(*values)
            try:
                run = self.compile(sizes, [values[i] for i in self.rest])
            finally:
                self.lock.release()
        return run(*[values[i] for i in self.rest])

    def direct(self, *values: Any) -> Any:
        """The compiled graph for these sizes, where there is one that needs no masks."""
        run = self.ready.get(tuple([values[i] for i in self.sizes]))
        direct = getattr(run, "direct", None)
        return NotImplemented if direct is None else direct(*[values[i] for i in self.rest])

    def compile(self, sizes: tuple[int, ...], inputs: list[Any]) -> Callable[..., Any]:
        """The graph for these sizes, compiled; it is kept."""
        graph = with_sizes(self.graph, dict(zip(self.sizes, sizes)))
        run: Any = self.compiler(infer_values(graph, inputs), inputs)
        while len(self.ready) >= _MOST:
            self.ready.pop(next(iter(self.ready)), None)
        self.ready[sizes] = run
        return run  # type: ignore[no-any-return]


def with_sizes(graph: Graph, sizes: dict[int, int]) -> Graph:
    """A copy with numbers in the place of some inputs, and of what is computed from them alone.

    Its ``meta["sizes"]`` are these numbers, so that a compiler knows that others will come.

    Args:
        graph: the graph.
        sizes: number of a placeholder -> what it is.
    """
    made = Graph(graph.owning_module)
    made.meta["sizes"] = tuple(sizes.values())
    known: dict[Node, Any] = {}
    for place, node in enumerate(graph.placeholders):
        if place in sizes:
            known[node] = sizes[place]
    for node in graph.nodes:
        if node in known:
            continue
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: known[n])
        if node.op == "output":
            made.output(args[0])
        elif node.op == "call_function" and not isinstance(node.target, Operator) and args:
            numbers = all(type(item) in (int, float) for item in args) and not kwargs
            known[node] = node.target(*args) if numbers else _copied(made, node, known)
        else:
            known[node] = _copied(made, node, known)
    made.lint()
    return made


def _copied(graph: Graph, node: Node, known: dict[Node, Any]) -> Node:
    copy = graph.node_copy(node, lambda n: known[n])
    copy.meta.pop("value", None)  # it speaks of other sizes
    return copy
