"""One step of a :class:`~coredispatch.graph.Graph`, and how the steps refer to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from coredispatch.plugin import Device, DType, OpError, Value

if TYPE_CHECKING:
    from coredispatch.graph.graph import Graph

__all__ = ["OPS", "Node", "map_aggregate", "map_arg"]

#: What a node may be. ``if`` and ``loop`` hold graphs, ``set_attr`` writes an attribute of the
#: module; the others are those of ``torch.fx``.
OPS = (
    "placeholder",
    "get_attr",
    "set_attr",
    "call_function",
    "call_method",
    "call_module",
    "if",
    "loop",
    "output",
)


def map_aggregate(argument: Any, fn: Callable[[Any], Any]) -> Any:
    """``argument`` with ``fn`` applied to every leaf of its tuples, lists, dicts and slices."""
    if isinstance(argument, tuple):
        items = [map_aggregate(item, fn) for item in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else tuple(items)
    if isinstance(argument, list):
        return [map_aggregate(item, fn) for item in argument]
    if isinstance(argument, dict):
        return {key: map_aggregate(item, fn) for key, item in argument.items()}
    if isinstance(argument, slice):
        return slice(
            map_aggregate(argument.start, fn),
            map_aggregate(argument.stop, fn),
            map_aggregate(argument.step, fn),
        )
    return fn(argument)


def map_arg(argument: Any, fn: Callable[[Node], Any]) -> Any:
    """``argument`` with ``fn`` applied to every :class:`Node` in it."""
    return map_aggregate(argument, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """A value of a graph and the step that makes it.

    Made by a :class:`~coredispatch.graph.Graph`, never directly. The attributes and methods are
    those of ``torch.fx.Node``.

    Attributes:
        op: one of :data:`OPS`.
        target: what is called: an operator or a function of the closed table
            (``call_function``), the name of a method, or the dotted path of a module or an
            attribute; of a placeholder its name.
        args, kwargs: the arguments; nodes may stand anywhere in their tuples, lists and dicts.
        graphs: of an ``if`` the two branches, of a ``loop`` its body.
        users: the nodes that use this one, a dict in the order of their first use.
        meta: what is known of the value: ``"value"`` (a :class:`~coredispatch.graph.ValueInfo`),
            ``"source"`` (file, line and function of the user's code), ``"scope"`` (module path).
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        type_expr: Any = None,
        graphs: tuple[Graph, ...] = (),
    ) -> None:
        if op not in OPS:
            raise OpError(f"a node has no op {op!r}", fix=f"use one of {', '.join(OPS)}")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = type_expr
        self.graphs = graphs
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set(args, kwargs)

    # -- arguments -------------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments. Assigning keeps ``users`` right."""
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._set(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments. Assigning keeps ``users`` right."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._set(self._args, dict(value))

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found: dict[Node, None] = {}
        map_arg((args, kwargs), lambda node: found.setdefault(node))
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = found
        for node in found:
            node.users.setdefault(self)
        self._args, self._kwargs = args, kwargs

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, index: int, argument: Any) -> None:
        """Replace the positional argument at ``index``."""
        args = list(self._args)
        args[index] = argument
        self.args = tuple(args)

    def insert_arg(self, index: int, argument: Any) -> None:
        """Insert a positional argument before ``index``."""
        if not 0 <= index <= len(self._args):
            raise IndexError(f"insert_arg({index}): there are {len(self._args)} arguments")
        self.args = (*self._args[:index], argument, *self._args[index:])

    def update_kwarg(self, key: str, argument: Any) -> None:
        """Replace or add a keyword argument."""
        self.kwargs = {**self._kwargs, key: argument}

    def replace_input_with(self, old: Node, new: Any) -> None:
        """Put ``new`` wherever ``old`` stands among the arguments."""
        put = lambda node: new if node is old else node  # noqa: E731
        self._set(map_arg(self._args, put), map_arg(self._kwargs, put))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Put ``replace_with`` wherever this node is used; the users that changed."""
        if propagate_meta:
            replace_with.meta = {**self.meta, **replace_with.meta}
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # -- place -----------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after this one; the graph's root after the last."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; the graph's root before the first."""
        return self._prev

    def prepend(self, node: Node) -> None:
        """Move ``node`` in front of this one."""
        self._prev.append(node)

    def append(self, node: Node) -> None:
        """Move ``node`` behind this one."""
        if node is self:
            return
        if node.graph is not self.graph:
            raise OpError(
                f"{node.name!r} belongs to another graph",
                fix="copy it: graph.node_copy(node, arg_transform)",
            )
        node._unlink()
        after = self._next
        self._next, node._prev, node._next, after._prev = node, self, after, node

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    # -- properties --------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """The user's line that this step comes from, as a traceback shows it."""
        source = self.meta.get("source")
        return None if source is None else '  File "{}", line {}, in {}'.format(*source)

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self) -> bool:
        """Whether the step does more than make its value: then it stays, used or not."""
        from coredispatch.graph.targets import is_impure

        if self.op in ("placeholder", "output", "set_attr"):
            return True
        if self.op in ("if", "loop"):
            return any(node.is_impure() for node in self._inner() if node.op not in _FRAME)
        return is_impure(self)

    def _inner(self) -> Iterator[Node]:
        for graph in self.graphs:
            yield from graph.nodes

    def format_node(self) -> str:
        """One line: name, number of users, op, target, arguments."""
        kind = f"{type_text(self.type)} " if self.type is not None else ""
        users = f"[num_users={len(self.users)}]"
        if self.op == "placeholder":
            default = f"(default={show(self.args[0])})" if self.args else ""
            return f"%{self.name} : {kind}{users} = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {show(self.args[0], bare=True)}"
        from coredispatch.graph.targets import target_text

        target = target_text(self.target) if self.op == "call_function" else self.target
        head = f"%{self.name} : {kind}{users} = {self.op}[target={target}]"
        if self.op == "get_attr":
            return head
        return f"{head}(args = {show(self.args)}, kwargs = {show(self.kwargs)})"

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        """Whether this node stands before ``other`` in their graph."""
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        return order[self] < order[other]


_FRAME = ("placeholder", "output", "get_attr")


def show(argument: Any, *, bare: bool = False) -> str:
    """``argument`` as a graph prints it: nodes with a percent sign, unless ``bare``."""
    if isinstance(argument, Node):
        return argument.name if bare else f"%{argument.name}"
    if isinstance(argument, tuple):
        items = [show(item, bare=bare) for item in argument]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(argument, list):
        return f"[{', '.join(show(item, bare=bare) for item in argument)}]"
    if isinstance(argument, dict):
        pairs = (f"{key}: {show(item, bare=bare)}" for key, item in argument.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(argument, slice):
        parts = (argument.start, argument.stop, argument.step)
        return f"slice({', '.join(show(part, bare=True) for part in parts)})"
    if isinstance(argument, (DType, Device, str)):
        return str(argument)
    if isinstance(argument, Value):
        raise OpError(
            "a tensor stands among the arguments of a node",
            fix="make it an attribute of the module: graph.get_attr(name)",
        )
    return repr(argument)


def type_text(annotation: Any) -> str:
    """An annotation as source text."""
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
