"""Tracing: running a program on examples, and keeping what it did as a graph.

The layer ``capture`` lies above autograd and autocast, so it sees the operators that the program
calls, before anything is derived from them; a traced program is therefore trained and autocast like
the original. What the program computes with are wrappers (:class:`Traced`) around the real tensors
of the example: whatever is made from them is known to the graph. Factories without tensor arguments
are seen because the mode :class:`tracing` switches the layer on.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any, Self

from coredispatch._frames import (
    in_package,
    in_standard_library,
    program_frame,
    program_frames,
    program_stacklevel,
)
from coredispatch._version import __version__
from coredispatch.graph.codegen import ORIGINS
from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_aggregate
from coredispatch.graph.numbers import TracedFloat, TracedInt, plain, traced_number
from coredispatch.graph.targets import expect_parts, spelled
from coredispatch.graph.values import info_of
from coredispatch.plugin import (
    Layer,
    Mode,
    OpError,
    Registrar,
    Switch,
    Value,
    Wrapper,
    dtype_of,
    hookimpl,
    is_masked,
    is_view,
    key_bit,
)
from coredispatch.registry import TABLE
from coredispatch.registry.dispatch.masks import _CURRENT, call_masked

#: operators whose number of results depends on a size
_CUT = frozenset({"unbind", "split", "unsafe_split", "chunk", "unsafe_chunk"})

__all__ = ["BY_SHAPE", "Recorder", "Traced", "TracerWarning", "forget_casts", "tracing"]

#: operators whose answers follow from shapes and layouts
BY_SHAPE = {"is_same_size", "is_sparse", "is_quantized"}


class TracerWarning(Warning):
    """The program looked at a value: the graph holds for examples that give the same."""


class Traced(Wrapper):
    """A tensor of the example, with the node that stands for it."""

    layer = "capture"
    node: Node
    recorder: Recorder

    @property
    def shape(self) -> Any:
        """The sizes, as numbers that know where they come from."""
        recorder = self.recorder
        return tuple(
            traced_number(n, recorder, _size(recorder, self.node, i))
            for i, n in enumerate(self.value.raw.shape)
        )

    def counted(self, what: str, *, parts: bool) -> None:
        """The program counts rows (``what``); with ``parts`` it takes each by itself."""
        self.recorder.rows(self.node, self.value.raw.shape[0], what, parts)

    def describe(self) -> str:
        """The tensor and its name in the graph."""
        return f"{self.value!r} [%{self.node.name}]"


def _size(recorder: Recorder, node: Node, dim: int) -> Callable[[], Node]:
    return lambda: recorder.method("size", (node, dim))


class tracing(Mode):
    """Puts what is called inside into the graph of ``recorder``."""

    switch = Switch(on=("capture",))

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> Self:
        forget_casts()  # weights at hand were cast outside of the program
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        forget_casts()  # those of the program have no data


def recorder_in_force() -> Recorder | None:
    """The recorder that gets what is called here, None outside of a capture and below its layer."""
    mode = tracing.current()
    return None if mode is None or is_masked("capture") else mode.recorder


def forget_casts() -> None:
    """Weights that autocast has at hand: it casts them anew."""
    for state in _CURRENT.get()[3].values():
        cache = getattr(state, "cache", None)
        if cache:
            cache.clear()


class Recorder:
    """Fills a graph with the calls of a program that runs on examples.

    Args:
        root: what has the parameters and buffers; tensors found there become ``get_attr``.
        constant: called with a tensor that is found nowhere, gives the name of the attribute that
            is to hold it.
        strict: whether lists and dicts among the results are refused.
    """

    #: the line of a compiled program that is followed node by node: no frame of Python has it
    line: tuple[str, int, str] | None = None

    def __init__(self, paths: dict[int, str], constant: Callable[[Any], str]) -> None:
        self.records = not is_masked("autograd")  # where the program begins
        self.graph = Graph()
        self.head: Node = self.graph._root  # the last of the inputs and attributes
        self.paths = paths
        self.constant = constant
        self.kept: list[Any] = []
        self.attributes: dict[str, Node] = {}
        self.scope: list[str] = []
        self.aliases: dict[int, Any] = {}

    # -- values into the graph -------------------------------------------------------------------

    def inputs(self, given: list[tuple[str, Any]]) -> list[Any]:
        """Placeholders for named values, and what the program is to get in their place."""
        for name, _ in given:
            self.head = self.graph.placeholder(name)
        places = self.graph.placeholders[-len(given) :] if given else []
        return [self.entered(value, node) for (_, value), node in zip(given, places)]

    def entered(self, value: Any, node: Node) -> Any:
        """An input: numbers know their node, as sizes do."""
        if type(value) in (int, float):
            return traced_number(value, self, lambda: node)
        node.meta["value"] = info_of(value)
        return self.wrap(value, node)

    def argument(self, value: Any) -> Any:
        """An argument of a call as the graph has it."""
        return map_aggregate(value, self._leaf)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, (TracedInt, TracedFloat)):
            return value.node
        if not isinstance(value, Value):
            return value
        traced = Traced.of(value)
        if traced is not None:
            return traced.node
        alias = self.aliases.get(id(value))
        return alias if alias is not None else self.attribute(value)

    def attribute(self, tensor: Any) -> Node:
        """The node that reads a tensor which the program did not get as an input."""
        path = self.paths.get(id(tensor))
        if path is None:
            self.kept.append(tensor)  # alive, so that no other tensor gets its id
            path = self.paths[id(tensor)] = self.constant(tensor)
        node = self.attributes.get(path)
        if node is None or node._erased:
            graph, head = self.graph, self.head
            following = graph._insert_after is head  # nothing was called yet
            with graph.inserting_after(head):
                node = self.attributes[path] = graph.get_attr(path)
            node.meta["value"] = info_of(tensor)
            if following:
                graph._insert_after = node
            self.head = node
        return node

    # -- steps -----------------------------------------------------------------------------------

    def function(self, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> Node:
        """A ``call_function`` with its origin."""
        return self._noted(self.graph.call_function(target, args, kwargs))

    def method(self, name: str, args: tuple[Any, ...]) -> Node:
        """A ``call_method`` with its origin."""
        return self._noted(self.graph.call_method(name, args))

    def _noted(self, node: Node) -> Node:
        node.meta["source"] = source()
        if self.scope:
            node.meta["scope"] = self.scope[-1]
        return node

    def call(self, op: Any, args: tuple[Any, ...]) -> Node:
        """The node of an operator called with complete arguments; defaults are left out."""
        given, named = spelled(op, args)
        return self.function(op, self.argument(given), self.argument(named))

    def wrap(self, value: Any, node: Node) -> Any:
        """Results as values that the graph knows; tuples and lists element by element."""
        if isinstance(value, Value):
            return Traced.wrap(value, node=node, recorder=self)
        if isinstance(value, (tuple, list)):
            items = [self.wrap(item, self.part(node, i)) for i, item in enumerate(value)]
            if hasattr(value, "_fields"):
                return type(value)(*items)
            return type(value)(items)
        if isinstance(value, dict):
            return {key: self.wrap(item, self.part(node, key)) for key, item in value.items()}
        return value

    def part(self, node: Node, key: Any) -> Node:
        """Item ``key`` of a result of several."""
        made = self.function(operator.getitem, (node, key))
        info = node.meta.get("value")
        if isinstance(info, (tuple, list, dict)):
            made.meta["value"] = info[key]  # type: ignore[call-overload]
        return made

    def output(self, result: Any) -> None:
        """End the graph with what the program returned."""
        self.graph.output(self.argument(result))
        self.graph.eliminate_dead_code()

    def called(self, call: Any, args: tuple[Any, ...]) -> Any:
        """An operator is called: note it, go on below, wrap what comes."""
        op = call.op
        real = unwrapped(args)
        # Below, autograd may repeat views whose base was written: that is no part of the program.
        out = call_masked(call.redispatch, real, key_bit("capture"))
        if op.name == "to_host":
            self.looked(args[0], out)
            return out
        if op.name == "from_host":  # a constant of the program
            return out
        if op.schema.plain and op.name not in BY_SHAPE:
            self.warned(f"asks {op.name}() of a tensor ({out!r})")
            return out
        return self.result(op, args, real, out)

    def result(self, op: Any, args: tuple[Any, ...], real: tuple[Any, ...], out: Any) -> Any:
        """What the program gets of a call that gave ``out`` for the arguments ``real``."""
        node = self.call(op, args)
        node.meta["value"] = info_of(out)
        if op.view == "maybe":
            node.meta["aliases"] = _aliases(out)
        if op.name in _CUT and not (op.name == "chunk" and len(out) == args[1]):
            self.function(expect_parts, (node, len(out)))
        if isinstance(out, Value):
            # What was written in place is the same tensor, and has a new value in order.
            for given, own in zip(args, real):
                if own is out and isinstance(given, Value):
                    return given
        result = self.wrap(out, node)
        return result if op.mutates or op.name == "detach" else self.without_history(result)

    def outcome(self, target: Any, args: Any, kwargs: Any, out: Any) -> Any:
        """What the program gets of a call of a Python function, which the graph keeps."""
        node = self.function(target, self.argument(args), self.argument(kwargs))
        node.meta["value"] = info_of(out)
        return self.without_history(self.wrap(out, node))

    def without_history(self, result: Any) -> Any:
        """``result``, detached where a block of the program records no gradients."""
        if not self.records or not is_masked("autograd"):
            return result
        detach = TABLE.operator("detach")

        def leaf(value: Any) -> Any:
            if not isinstance(value, Value):
                return value
            dtype = dtype_of(value)
            return detach(value) if dtype.is_floating_point or dtype.is_complex else value

        return map_aggregate(result, leaf)

    # -- what the graph cannot hold --------------------------------------------------------------

    def rows(self, node: Node, count: int, what: str, parts: bool) -> None:
        """The program counts the rows of a tensor: others are refused where it takes them apart."""
        if parts:
            self.function(expect_parts, (node, count))
        self.warned(f"{what} ({count})")

    def numbered(self, number: Any, what: str) -> None:
        """The program's own code (not this package) looked at a size or a number made of one."""
        mode = tracing.current()
        if mode is not None and mode.recorder is self:
            if not in_package(sys._getframe(2).f_code.co_filename):
                self.warned(f"{what} a size ({plain(number)})")

    def looked(self, tensor: Any, value: Any) -> None:
        """The program read the value of a tensor; warn, with its line and the value."""
        read = repr(value.tolist()) if value.size <= 64 else "..."
        read = read if len(read) <= 80 else f"{read[:77]}..."
        shape = f" of shape {tuple(value.shape)}" if value.ndim else ""
        self.warned(f"reads the value of a tensor{shape} ({read})")

    def warned(self, what: str) -> None:
        """Warn of what Python does with a value of the example, with the program's line."""
        where = "{}:{} in {}".format(*source())
        warnings.warn(
            f"{where}: the program {what}. The trace keeps the value "
            "that the example gave, so it may be wrong for other inputs",
            TracerWarning,
            stacklevel=program_stacklevel(),
        )


def unwrapped(value: Any) -> Any:
    """``value`` with real tensors and plain numbers."""

    def leaf(item: Any) -> Any:
        traced = Traced.of(item)
        return traced.value if traced is not None else plain(item)

    return map_aggregate(value, leaf)


def record(call: Any, args: tuple[Any, ...]) -> Any:
    """The kernel of the layer for every operator: what the recorder of the trace does."""
    mode = tracing.current()
    recorder = mode.recorder if mode is not None else _recorder(args)
    return recorder.called(call, args)


def _aliases(out: Any) -> bool:
    """Whether a result of an operator that may give views is one."""
    return any(_aliases(item) for item in out) if isinstance(out, (tuple, list)) else is_view(out)


def _recorder(args: tuple[Any, ...]) -> Recorder:
    found: list[Recorder] = []

    def look(item: Any) -> None:
        traced = Traced.of(item)
        if traced is not None:
            found.append(traced.recorder)

    map_aggregate(args, look)
    if not found:
        raise OpError("a traced value is used outside of its trace", fix="return it from the trace")
    return found[0]


def source() -> tuple[str, int, str]:
    """File, line and function of the user's code that is running.

    Where Python's library calls, as ``contextlib`` does at a ``with``, it is the line above. In a
    graph that runs or is followed, it is the line that the graph was made from.
    """
    mode = tracing.current()
    if mode is not None and mode.recorder.line is not None:
        return mode.recorder.line
    frames = (f for f in program_frames() if not in_standard_library(f.f_code.co_filename))
    frame = next(frames, None) or program_frame()
    if frame is None:
        return ("<unknown>", 0, "<unknown>")
    origin = ORIGINS.get(frame.f_code.co_filename, {}).get(frame.f_lineno)
    if origin is not None:
        file, line, name = origin
        return (str(file), int(line), str(name))
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``capture``."""
    registrar.layer(Layer("capture", generic=record, above=("autograd",), below=("autocast",)))


def load() -> None:
    """Put the layer in the table, the first time it is needed."""
    from coredispatch.registry import plugins

    if "capture" not in {plugin.name for plugin in plugins}:
        plugins.builtin("capture", sys.modules[__name__], __version__)
