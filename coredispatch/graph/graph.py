"""The program as data: what trace, script, fx, export and compile share."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from coredispatch.graph.node import Node, map_arg, show
from coredispatch.graph.targets import check_target, name_of
from coredispatch.plugin import OpError

__all__ = ["Graph", "GraphError", "NodeList"]


#: names that the text of a graph uses itself
_RESERVED = ("self", "cd", "torch", "math", "operator")


class GraphError(OpError):
    """A graph that is not well formed, or an edit that would make it so."""


class NodeList:
    """The nodes of a graph, in the order in which they run. A live view."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        at = root._prev if self._backwards else root._next
        while at is not root:
            # What comes next is asked after the node was handed out: it may be erased, or moved.
            following = at._prev if self._backwards else at._next
            if not at._erased:
                yield at
                following = at._prev if self._backwards else at._next
                if at._erased:
                    following = at._after_erased
            at = following

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._backwards)


class _InsertPoint:
    def __init__(self, graph: Graph, point: Node) -> None:
        self._graph, self._point, self._before = graph, point, graph._insert_after

    def __enter__(self) -> None:
        self._graph._insert_after = self._point

    def __exit__(self, *error: Any) -> None:
        self._graph._insert_after = self._before


class Graph:
    """A list of :class:`~coredispatch.graph.Node`, each a step that makes one value.

    Steps run in their order. The first are the inputs (``placeholder``), the last is the
    ``output``. Between them stand reads and writes of attributes (``get_attr``, ``set_attr``),
    calls of operators of the table and of a closed list of Python functions (``call_function``), of
    methods and submodules, and the control nodes ``if`` and ``loop``, whose parts are graphs. The
    class has the attributes and methods of ``torch.fx.Graph``::

        graph = Graph()
        x = graph.placeholder("x")
        y = graph.call_function(cd.ops.relu, (x,))
        graph.output(y)
        graph.lint()
        print(graph.code)

    ``code`` is the graph as Python text, :func:`~coredispatch.graph.run` interprets it on any
    backend, :func:`~coredispatch.graph.to_document` gives it as plain data.
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._names: dict[str, int] = {}
        self._root = Node(self, "", "placeholder", "", (), {})
        self._insert_after = self._root
        self.meta: dict[str, Any] = {}

    # -- making nodes ----------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
        graphs: tuple[Graph, ...] = (),
    ) -> Node:
        """A new node at the insertion point (the end, unless ``inserting_before`` moved it).

        Raises :class:`GraphError` where a node of another graph stands among the arguments, or the
        target is nothing that a graph can hold.
        """
        args, kwargs = args or (), kwargs or {}
        check_target(op, target)
        candidate = name or name_of(op, target)
        node = Node(self, self._unique(candidate), op, target, args, kwargs, type_expr, graphs)
        foreign = next((n for n in node._input_nodes if n.graph is not self), None)
        if foreign is not None:
            node._set((), {})
            raise GraphError(
                f"{foreign.name!r} belongs to another graph", fix="copy it with graph.node_copy"
            )
        self._insert_after.append(node)
        self._insert_after = node
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input of the graph; with ``default_value`` it may be left out."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr, name=name)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """The parameter, buffer or other attribute of the module at the dotted path."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def set_attr(self, qualified_name: str, value: Any) -> Node:
        """Write ``value`` to the attribute of the module at the dotted path."""
        return self.create_node("set_attr", qualified_name, (value,))

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of an operator or function."""
        return self.create_node("call_function", the_function, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of the method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of the submodule at the dotted path."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def branch(self, condition: Any, then: Graph, otherwise: Graph, args: tuple[Any, ...]) -> Node:
        """``if condition``: the output of ``then`` or of ``otherwise``, run on ``args``.

        Both graphs have one placeholder for each of ``args``, and outputs of one structure.
        """
        return self.create_node("if", "if", (condition, *args), graphs=(then, otherwise))

    def loop(self, trips: Any, condition: Any, body: Graph, carried: tuple[Any, ...]) -> Node:
        """Repeat ``body`` while its condition holds, at most ``trips`` times (None: any number).

        ``body`` has the placeholders ``(i, *carried)`` and the output ``(condition, *carried)``,
        the values for the next turn. The node's value is the tuple of what is carried at the end.
        """
        return self.create_node("loop", "loop", (trips, condition, *carried), graphs=(body,))

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the graph returns: nodes and constants in tuples, lists and dicts."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda n: n) -> Node:
        """A copy of a node, of another graph as a rule, with its arguments translated."""
        made = self.create_node(
            node.op,
            node.target,
            map_arg(node.args, arg_transform),
            map_arg(node.kwargs, arg_transform),
            node.name,
            node.type,
            tuple(graph.copy() for graph in node.graphs),
        )
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False
    ) -> Any:
        """Copy all nodes of ``g`` here; what its output holds, translated.

        Nodes that ``val_map`` has already are not copied; the others are entered there.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def copy(self) -> Graph:
        """A graph of its own with equal nodes."""
        made = Graph(self.owning_module, self._tracer_cls)
        made.meta = dict(self.meta)
        mapping: dict[Node, Any] = {}
        last = self.output_node()
        result = made.graph_copy(self, mapping)
        if last is not None:
            made.output(result, last.type).meta = dict(last.meta)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self.copy()

    def __reduce__(self) -> Any:
        entries = []
        for n in self.nodes:
            args, kwargs = map_arg((n.args, n.kwargs), lambda used: _Reference(used.name))
            source = {key: n.meta[key] for key in ("source", "scope") if key in n.meta}
            entries.append((n.op, n.target, args, kwargs, n.name, n.type, n.graphs, source))
        return _rebuilt, (entries, self.meta)

    def _unique(self, candidate: str) -> str:
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "value"
        if name[0].isdigit():
            name = f"_{name}"
        match = re.fullmatch(r"(.*)_(\d+)", name)
        base, number = (match[1], int(match[2])) if match else (name, 0)
        taken = (
            keyword.iskeyword(name) or hasattr(builtins, name) or name in ("self", "cd", "torch")
        )
        if name not in self._names and not taken:
            self._names[name] = number
            return name
        number = max(self._names.get(base, 0), number)
        while (found := f"{base}_{number + 1}") in self._names:
            number += 1
        self._names[base] = number + 1
        self._names[found] = number + 1
        return found

    # -- order and edits -------------------------------------------------------------------------

    @property
    def nodes(self) -> NodeList:
        """The nodes in the order in which they run."""
        return NodeList(self)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go in front of ``n`` (of all nodes) in a ``with`` block."""
        return _InsertPoint(self, self._root if n is None else self._own(n)._prev)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go behind ``n`` (behind all nodes) in a ``with`` block."""
        return _InsertPoint(self, self._root._prev if n is None else self._own(n))

    def _own(self, node: Node) -> Node:
        if node.graph is not self:
            raise GraphError(f"{node.name!r} belongs to another graph")
        return node

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody uses. Raises :class:`GraphError` (a RuntimeError) otherwise."""
        if to_erase.users:
            users = ", ".join(user.name for user in to_erase.users)
            raise GraphError(
                f"{to_erase.name!r} cannot be erased: {users} use it",
                fix="replace its uses first: node.replace_all_uses_with(other)",
            )
        if to_erase._erased:
            return
        self._own(to_erase)
        if self._insert_after is to_erase:
            self._insert_after = to_erase._prev
        to_erase._after_erased = to_erase._next  # type: ignore[attr-defined]
        to_erase._unlink()
        to_erase._erased = True
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove what nobody uses and what does nothing else; whether anything went."""
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            for graph in node.graphs:
                changed |= graph.eliminate_dead_code(is_impure_node)
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    # -- looking ---------------------------------------------------------------------------------

    def output_node(self) -> Node | None:
        """The ``output`` node, None while there is none."""
        last = self._root._prev
        return last if last.op == "output" and last is not self._root else None

    @property
    def placeholders(self) -> list[Node]:
        """The inputs, in order."""
        return [node for node in self.nodes if node.op == "placeholder"]

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of this op, and of this target where one is given."""
        return [
            node
            for node in self.nodes
            if node.op == op and (target is None or node.target == target)
        ]

    def lint(self) -> None:
        """Check the graph and the graphs inside; :class:`GraphError` says what is wrong."""
        from coredispatch.graph.lint import lint

        lint(self)

    @property
    def code(self) -> str:
        """The graph as the Python text of a function ``forward``."""
        return self.python_code("self").src

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> Any:
        """The graph as Python: ``src``, the text, and ``globals``, the names in it."""
        from coredispatch.graph.codegen import python_code

        return python_code(self, root_module, verbose=verbose)

    @property
    def graph(self) -> Graph:
        """The graph itself: a compiler written for PyTorch gets a module that has one."""
        return self

    @property
    def forward(self) -> Any:
        """A function that runs the graph, operator by operator, and returns its outputs."""
        from coredispatch.graph.compilers import eager

        return eager(self, ())

    def print_readable(self, print_output: bool = True) -> str:
        """The Python text of the graph, printed unless ``print_output=False``."""
        code = self.code
        if print_output:
            print(code)
        return code

    def draw(self, path: Any) -> None:
        """Write a picture of the graph, an SVG file."""
        from coredispatch.graph.drawing import draw

        draw(self, path)

    def print_tabular(self) -> None:
        """Print the nodes as a table: op, name, target, args, kwargs."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            (n.op, n.name, _target(n), show(n.args, bare=True), show(n.kwargs, bare=True))
            for n in self.nodes
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * w for w in widths))
        print("\n".join(lines))

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __len__(self) -> int:
        return len(self.nodes)


class _Reference(NamedTuple):
    """In a pickle: a node, by its name."""

    name: str


def _rebuilt(entries: list[Any], meta: dict[str, Any]) -> Graph:
    graph, known = Graph(), {}
    graph.meta = meta

    def read(value: Any) -> Any:
        if isinstance(value, _Reference):
            return known[value.name]
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            return type(value)(map(read, value))
        if isinstance(value, dict):
            return {key: read(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(read(value.start), read(value.stop), read(value.step))
        return value

    for op, target, args, kwargs, name, kind, graphs, source in entries:
        node = graph.create_node(op, target, read(args), read(kwargs), name, kind, graphs)
        node.name = name
        node.meta.update(source)
        known[name] = node
    return graph


def _target(node: Node) -> str:
    from coredispatch.graph.targets import target_text

    return target_text(node.target) if node.op == "call_function" else str(node.target)


def _lines(graph: Graph, indent: str = "") -> list[str]:
    lines = [f"{indent}graph():"]
    for node in graph.nodes:
        lines.append(f"{indent}    {node.format_node()}")
        for inner in node.graphs:
            lines += _lines(inner, indent + "        ")
    return lines
