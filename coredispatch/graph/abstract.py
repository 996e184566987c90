"""Following a program without data: shapes and types go through it, and sizes may be symbols.

:class:`AbstractRecorder` records what a program calls, as :class:`~.capture.Recorder` does, on
tensors of which shape, dtype and device are known and nothing else. What a program computes with
sizes is computed with :class:`~.symbols.Size`; a program that asks for the value of an element
is refused with the line that asks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.graph.calls import abstract
from coredispatch.graph.capture import BY_SHAPE, Recorder, Traced, _aliases, source
from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_aggregate, map_arg
from coredispatch.graph.numbers import traced_number
from coredispatch.graph.symbols import Expression, Guard, Size, SymbolTable, computed
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import (
    DataDependentError,
    Device,
    DType,
    Operator,
    OpError,
    Value,
    dispatch,
)
from coredispatch.registry import TABLE
from coredispatch.registry.wiring import HOOKS

__all__ = ["Abstract", "AbstractRecorder", "ValueNeeded", "narrows"]

_META = Device("meta")


class ValueNeeded(DataDependentError):
    """A program without data asks for the value of an element."""


def _value_needed(what: str) -> ValueNeeded:
    file, line, function = source()
    return ValueNeeded(
        f"{file}:{line} in {function}: {what}, and the program is followed without data",
        fix="compute with tensors (where, masks, cond, while_loop), or make the value an argument",
    )


class _Stand:
    """In the place of the tensor inside a wrapper: what a program may ask of it."""

    def __init__(self, info: ValueInfo) -> None:
        self.info, self.device, self.shape, self.dtype = info, info.device, info.shape, info.dtype
        self.raw = self

    def __repr__(self) -> str:
        return f"tensor of shape {self.shape}, {self.dtype}"


class Abstract(Traced):
    """A tensor without data.

    Attributes:
        info: what is known of it.
        inside: a tensor on the device ``meta`` of that shape and dtype.
    """

    info: ValueInfo
    inside: Value
    without_history = "differentiate what the program gives when it runs: nothing ran yet"

    @property
    def shape(self) -> Any:
        """The sizes: ints, and symbols."""
        return self.info.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.info.dtype

    def counted(self, what: str, *, parts: bool) -> None:
        """Nothing: the symbols note what is asked of open sizes."""

    def own_strides(self) -> tuple[Any, ...]:
        """Those of row-major order, unless others are known."""
        if self.info.strides is not None:
            return self.info.strides
        strides: list[Any] = []
        step: Any = 1
        for size in reversed(self.info.shape):
            strides.append(step)
            step = step * size
        return tuple(reversed(strides))


class Scope:
    """A graph inside of another one, while it is written.

    Attributes:
        graph: the graph.
        lifted: node of the graph around it -> the input that stands for it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lifted: dict[Node, Node] = {}

    def lift(self, node: Node) -> Node:
        """The input that stands for a node of the graph around this one."""
        if node not in self.lifted:
            graph = self.graph
            last = next(reversed(graph.placeholders), None)
            before = graph._insert_after
            with graph.inserting_before() if last is None else graph.inserting_after(last):
                place = graph.placeholder(node.name)
            # what follows is written behind the inputs
            graph._insert_after = place if before in (last, graph._root) else before
            place.meta["value"] = node.meta.get("value")
            self.lifted[node] = place
        return self.lifted[node]


class AbstractRecorder(Recorder):
    """Fills a graph with the calls of a program that runs without data.

    Args:
        paths, constant: as those of :class:`~.capture.Recorder`.
        symbols: the table of the symbols in the shapes.
        expand: whether the decomposition of an operator is followed in its place.
        whole: whether an operator stays where its decomposition holds for some of the sizes only.
    """

    def __init__(
        self,
        paths: dict[int, str],
        constant: Callable[[Any], str],
        symbols: SymbolTable | None = None,
        expand: Callable[[Operator], bool] = lambda op: False,
        whole: Callable[[Operator], bool] = lambda op: False,
    ) -> None:
        super().__init__(paths, constant)
        self.whole = whole
        self.symbols = SymbolTable(source) if symbols is None else symbols
        self.expand = expand
        self.device: Device | None = None
        self.sources: dict[str, Callable[[], Node]] = {}
        self.derived: set[str] = set()  # the sources that compute a symbol from a size
        self.sizes: dict[Any, Any] = {}
        self.origin: dict[str, Any] | None = None
        self.kept_whole: set[str] = set()
        self.scopes: list[Scope] = []
        self.outermost = self.graph

    # -- graphs inside ---------------------------------------------------------------------------

    @contextmanager
    def inside(self, scope: Scope | None = None) -> Iterator[Scope]:
        """What is called in the block goes into a graph of its own, that of a control node.

        ``scope`` is one that was left before, to go on in it.
        """
        outer, sizes = self.graph, self.sizes
        scope = Scope(Graph()) if scope is None else scope
        self.graph, self.sizes = scope.graph, dict(sizes)
        self.scopes.append(scope)
        try:
            yield scope
        finally:
            self.scopes.pop()
            self.graph, self.sizes = outer, sizes

    def here(self, argument: Any) -> Any:
        """``argument`` with inputs of this graph in the place of nodes of those around it."""
        if not self.scopes:
            return argument
        return map_arg(argument, lambda node: self._at(node, len(self.scopes)))

    def _at(self, node: Node, depth: int) -> Node:
        if depth == 0:
            return node
        scope = self.scopes[depth - 1]
        return node if node.graph is scope.graph else scope.lift(self._at(node, depth - 1))

    def argument(self, value: Any) -> Any:
        """An argument of a call as the graph has it."""
        return self.here(super().argument(value))

    def function(self, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> Node:
        """A ``call_function`` with its origin."""
        return super().function(target, self.here(args), self.here(kwargs))

    def method(self, name: str, args: tuple[Any, ...]) -> Node:
        """A ``call_method`` with its origin."""
        return super().method(name, self.here(args))

    def attribute(self, tensor: Any) -> Node:
        """The node of the outermost graph that reads a tensor which is no input."""
        graph = self.graph
        self.graph = self.outermost
        try:
            return super().attribute(tensor)
        finally:
            self.graph = graph

    # -- values ----------------------------------------------------------------------------------

    def input(self, node: Node, info: Any) -> Any:
        """What the program is to get for an input of which ``info`` is known."""
        node.meta["value"] = info
        if isinstance(info, ValueInfo):
            for dim, size in enumerate(info.shape):
                if isinstance(size, Size):
                    self._found(node, dim, size)
            return self.tensor(node, info)
        if isinstance(info, Size):
            self.sources.setdefault(repr(info), lambda: node)
        return traced_number(info, self, lambda: node)

    def _found(self, node: Node, dim: int, size: Size) -> None:
        """A size of an input: it tells its symbol where it is ``factor * symbol + offset``."""
        line = size.linear()
        if line is None:
            return
        name, factor, offset = line
        make = lambda: self.method("size", (node, dim))  # noqa: E731
        if (factor, offset) == (1, 0):
            if name in self.derived:
                self.derived.remove(name)
                del self.sources[name]
            self.sources.setdefault(name, make)
        elif name not in self.sources:
            self.derived.add(name)
            self.sources[name] = lambda: self._root(make(), size, factor, offset)

    def _root(self, made: Node, size: Size, factor: int, offset: int) -> Any:
        """The node of the symbol in ``size``, which ``made`` gives."""
        made.meta.setdefault("value", size)
        self.sizes[size.terms] = made
        root = self._computed(operator.sub, made, offset) if offset else made
        return root if factor == 1 else self._computed(operator.floordiv, root, factor)

    def tensor(self, node: Node, info: ValueInfo, inside: Value | None = None) -> Any:
        """A tensor of which ``info`` is known, and that ``node`` stands for."""
        if self.device is None:
            self.device = info.device
        wrapper = Abstract(_Stand(info), node=node, recorder=self)  # type: ignore[arg-type]
        wrapper.info, wrapper.inside = info, abstract(info) if inside is None else inside
        order = TABLE.snapshot.order
        keys = order.by_name[info.device.type].bit
        keys |= order.by_name["capture"].bit | order.by_name["wrapped"].bit
        return HOOKS.value_type(wrapper, keys)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Expression):
            return self.size(value)
        return super()._leaf(value)

    def size(self, size: Expression) -> Any:
        """The node that computes a size."""
        if size.terms not in self.sizes:
            self.sizes[size.terms] = size.build(self._symbol, self._computed)
        return self.sizes[size.terms]

    def _symbol(self, name: str) -> Node:
        made = self.sizes.get(name)
        if made is None:
            if name not in self.sources:
                raise OpError(f"no input of the graph has the size {name}")
            made = self.sizes[name] = self.sources[name]()
            made.meta.setdefault("value", self.symbols.symbol(name, None))
        return made

    def _computed(self, function: Any, *sides: Any) -> Any:
        key = (function, *sides)
        if key not in self.sizes:
            self.sizes[key] = node = self.function(function, sides)
            known = [n.meta.get("value") if isinstance(n, Node) else n for n in sides]
            if None not in known:
                node.meta["value"] = computed(function, *known)
        return self.sizes[key]

    def _noted(self, node: Node) -> Node:
        if self.origin is None:
            return super()._noted(node)
        for key in ("source", "scope"):
            if key in self.origin:
                node.meta[key] = self.origin[key]
        return node

    def numbered(self, number: Any, what: str) -> None:
        """Nothing: a number among the inputs is part of what the program holds for."""

    # -- calls -----------------------------------------------------------------------------------

    def called(self, call: Any, args: tuple[Any, ...]) -> Any:
        """Note the operator, or follow its decomposition; go on with shapes."""
        op = call.op
        if op.name == "to_host":
            raise _value_needed("the program reads the value of a tensor")
        if op.schema.plain and op.name not in BY_SHAPE:
            raise _value_needed(f"the program asks {op.name}() of a tensor")
        if op.name == "from_host":
            return call.redispatch(*args)
        if self.expand(op):
            begun = next(iter(reversed(self.graph.nodes)), None)
            asked, stayed = len(self.symbols.guards), set(self.kept_whole)
            try:
                made = self.expanded(call, args)
            except DataDependentError:
                self.kept_whole.add(op.name)
            else:
                if not (any(map(narrows, self.symbols.guards[asked:])) and self.whole(op)):
                    return made
                self.kept_whole = stayed | {op.name}
                self.undone(begun, asked)
        inside = self.opened(op, args)
        try:
            out = call.redispatch(*inside)
        except ValueNeeded:
            raise
        except DataDependentError as error:
            raise _value_needed(f"the size of what {op.name}() gives depends on values") from error
        if isinstance(out, Value):
            for given, own in zip(args, inside):
                if own is out and isinstance(given, Value):
                    if op.mutates:
                        self.call(op, args).meta["value"] = info_of_value(given)
                    return given
        node = self.call(op, args)
        device = self.placed(op, args)
        node.meta["value"] = info = _moved(info_of(out), device)
        if op.view == "maybe":
            node.meta["aliases"] = _aliases(out)
        result = self.wrapped(node, info, out)
        return result if op.mutates or op.name == "detach" else self.without_history(result)

    def expanded(self, call: Any, args: tuple[Any, ...]) -> Any:
        """What the decomposition gives."""
        op = call.op
        if op.decomposition is not None:
            return call.decompose(args)
        target = args[op.schema.mutations[0].position]
        TABLE.operator("copy_")(target, dispatch(op.inplace_of, args))
        return target

    def undone(self, begun: Node | None, asked: int) -> None:
        """Forget what was written since ``begun``, and the guards from number ``asked`` on."""
        del self.symbols.guards[asked:]
        kept = set(map(id, (*self.sizes.values(), *self.attributes.values())))
        for node in reversed(self.graph.nodes):
            if node is begun:
                return
            if not node.users and node.op.startswith("call") and id(node) not in kept:
                self.graph.erase_node(node)

    def opened(self, op: Operator, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with tensors on the device ``meta``."""

        def leaf(value: Any) -> Any:
            if isinstance(value, Value):
                found = Abstract.of(value)
                return abstract(info_of(value)) if found is None else found.inside
            return _META if isinstance(value, Device) else value

        inside = list(map_aggregate(args, leaf))
        for place, param in enumerate(op.schema.params):
            if param.name == "device" and op.factory:
                inside[place] = _META
        return tuple(inside)

    def placed(self, op: Operator, args: tuple[Any, ...]) -> Device:
        """Where the result lies: where the call says, else where its first tensor is."""
        found: list[Device] = []

        def look(value: Any) -> None:
            if isinstance(value, Device):
                found.insert(0, value)
            elif isinstance(value, Value):
                found.append(value.device)  # type: ignore[attr-defined]

        map_aggregate(args, look)
        return found[0] if found else Device("cpu")

    def standing(
        self, node: Node, info: Any, other: Callable[[Node, Any], Any] = lambda node, info: info
    ) -> Any:
        """What the program gets for a node of which ``info`` is known, whatever its structure.

        ``other`` says what stands for a part that is no tensor.
        """
        node.meta["value"] = info
        if isinstance(info, ValueInfo):
            return self.tensor(node, info)
        if isinstance(info, (tuple, list)):
            items = [self.standing(self.part(node, i), item, other) for i, item in enumerate(info)]
            return type(info)(*items) if hasattr(info, "_fields") else type(info)(items)
        if isinstance(info, dict):
            pairs = info.items()
            return {key: self.standing(self.part(node, key), item, other) for key, item in pairs}
        return other(node, info)

    def wrapped(self, node: Node, info: Any, out: Any) -> Any:
        """Results as tensors without data; tuples and lists element by element."""
        if isinstance(info, ValueInfo):
            return self.tensor(node, info, out)
        if isinstance(out, (tuple, list)):
            items = [
                self.wrapped(self.part(node, i), info[i], item) if isinstance(item, Value) else item
                for i, item in enumerate(out)
            ]
            return type(out)(*items) if hasattr(out, "_fields") else type(out)(items)
        return out


def narrows(guard: Guard) -> bool:
    """Whether a guard leaves sizes out, besides those where some length is 0 or 1.

    Operators take no length to be 0 or 1 where they ask, and serve such sizes like all others.
    """
    edges = {"!=": (0, 1), ">": (0, 1), ">=": (1, 2)}
    if guard.free:
        return False
    return isinstance(guard.right, Expression) or guard.right not in edges.get(guard.sign, ())


def info_of_value(tensor: Value) -> ValueInfo:
    """What is known of a tensor, with data or without."""
    found = Abstract.of(tensor)
    info: ValueInfo = info_of(tensor) if found is None else found.info
    return info


def _moved(info: Any, device: Device) -> Any:
    def leaf(value: Any) -> Any:
        if not isinstance(value, ValueInfo):
            return value
        return ValueInfo(value.shape, value.dtype, device, None, value.layout, value.requires_grad)

    return map_aggregate(info, leaf)
