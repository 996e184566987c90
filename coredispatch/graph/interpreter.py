"""Running a graph node by node, on whatever the values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.symbols import EXTREMES, computed

__all__ = ["Interpreter", "run"]

_MIN, _MAX = EXTREMES


class Interpreter:
    """Runs the graph of a module node by node.

    A subclass overrides a method to see, or to change, what a kind of node does; ``run_node`` sees
    them all. The names are those of ``torch.fx.Interpreter``.

    Args:
        module: what has the ``graph`` and the attributes that it reads.
        garbage_collect_values: whether a value is given up after its last use.
        graph: another graph to run with the module's attributes.
    """

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self._last = _last_uses(self.graph) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None) -> Any:
        """The output of the graph for these inputs.

        ``initial_env`` has values of nodes that are not to be run.
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if not getattr(error, "_graph_node", False):
                    error.add_note(f"While running the node {node.format_node()}")
                    if node.stack_trace:
                        error.add_note(f"It comes from\n{node.stack_trace}")
                    error._graph_node = True  # type: ignore[attr-defined]
                raise
            if node.op == "output":
                return self.env[node]
            for used in self._last.get(node, ()):
                self.env.pop(used, None)
        raise GraphError("the graph has no output", fix="call graph.output(...)")

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.op in ("if", "loop"):
            return getattr(self, f"run_{n.op}")(n, args)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """``args`` with nodes replaced by their values."""

        def load(node: Node) -> Any:
            if node not in self.env:
                raise GraphError(
                    f"{n.name!r} uses {node.name!r}, which has not run", fix="check graph.lint()"
                )
            return self.env[node]

        return map_arg(args, load)

    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module at the dotted path."""
        at = self.module
        for part in target.split("."):
            if not hasattr(at, part):
                raise GraphError(f"the graph asks for {target!r}, and there is no {part!r}")
            at = getattr(at, part)
        return at

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next input, or its default."""
        if target.startswith("*"):
            return tuple(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise GraphError(f"the input {target!r} is missing")

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def set_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A write to an attribute of the module."""
        above, _, last = target.rpartition(".")
        setattr(self.fetch_attr(above) if above else self.module, last, args[0])

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator or function."""
        if (target is _MIN or target is _MAX) and len(args) == 2:
            return computed(target, *args)
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method of the first argument."""
        this, *others = args
        return getattr(this, target)(*others, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def run_if(self, n: Node, args: tuple[Any, ...]) -> Any:
        """One of the two branches."""
        then, otherwise = n.graphs
        return self._inner(then if args[0] else otherwise).run(*args[1:])

    def run_loop(self, n: Node, args: tuple[Any, ...]) -> Any:
        """The body, again and again."""
        trips, going, *carried = args
        body, turn = self._inner(n.graphs[0]), 0
        while going and (trips is None or turn < trips):
            going, *carried = body.run(turn, *carried)
            turn += 1
        return tuple(carried)

    def _inner(self, graph: Graph) -> Interpreter:
        return type(self)(self.module, self.garbage_collect_values, graph)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the graph returns."""
        return args[0]


def run(graph: Graph, *args: Any, root: Any = None) -> Any:
    """The output of ``graph`` for these inputs.

    ``root`` has the attributes that it reads: by default the module that the graph belongs to.
    """
    return Interpreter(graph.owning_module if root is None else root, graph=graph).run(*args)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    from coredispatch.graph.codegen import _last_uses as found

    return found(graph)
