"""The layer that captures: every operator below autograd, as a node of a graph.

It lies below autograd and autocast, so a backward pass and an optimizer step arrive like a forward
pass. The tensors are the program's own, nothing wraps them: the captured call is the eager call.
A value is known by its raw array, which a tensor shares with its detached aliases.
"""

from __future__ import annotations

import operator
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from coredispatch._version import __version__
from coredispatch.frontend.compiling.catching import would_catch
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.classes import by_program
from coredispatch.frontend.compiling.disturbing import undisturbed
from coredispatch.frontend.compiling.numbers import Sym, plain, symbolic
from coredispatch.frontend.compiling.result_shapes import (
    ShapesOf,
    has_sym,
    shaped_by_numbers,
    shaped_by_values,
)
from coredispatch.frontend.compiling.switches import capturing, capturing_nothing
from coredispatch.graph import Graph, Node, map_aggregate
from coredispatch.graph.capture import BY_SHAPE, source
from coredispatch.graph.symbols import Expression
from coredispatch.graph.targets import spelled
from coredispatch.graph.values import info_of
from coredispatch.plugin import (
    Layer,
    Registrar,
    Value,
    Wrapper,
    hookimpl,
    is_masked,
    is_on,
    version_of,
)
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import new_value
from coredispatch.registry.wiring import OBSERVERS

__all__ = [
    "BY_GUARDS",
    "SHAPES",
    "Decision",
    "Origin",
    "Recorder",
    "TakeBack",
    "Unsupported",
    "load",
    "written_to",
]


#: where the frame is that calls the program
_CAPTURE = os.path.join("compiling", "capture.py")
#: what is asked of a number that decides the shape of a result
SHAPES = "a size that depends on a number"


class Unsupported(RuntimeError):
    """What a capture with ``fullgraph=True`` cannot hold, with the line that asked for it."""


class TakeBack(BaseException):
    """The call is taken back, and made again: numbers of ours must not meet what comes next."""


class Decision:
    """A place where Python looked at a number: what follows holds for this answer."""

    def __init__(self, node: Node, answer: Any, what: str, where: Any, position: int) -> None:
        self.node, self.answer, self.what, self.where = node, answer, what, where
        self.position = position  # the number of steps before
        self.written: list[int] = []  # the inputs that were written to before
        self.draws = False  # whether random numbers were drawn before
        self.early = False  # whether it depends on numbers that come with the call alone


class Origin:
    """Where later calls find an input.

    Attributes:
        kind: ``leaf`` (an argument; ``place`` is its number), ``constant`` (this tensor),
            ``item`` (what stands in the record ``place``), ``grad`` (the gradient of ``place``),
            ``leaf grad`` (that of the argument with the number ``place``), ``tangent``.
        name: for the placeholder.
        value: what it is in the captured call.
    """

    def __init__(self, name: str, value: Any, kind: str, place: Any = None) -> None:
        self.name, self.value, self.kind, self.place = name, value, kind, place

    def find(self, leaves: list[Any]) -> Any:
        """What it is in a call with these arguments."""
        if self.kind == "constant":
            return self.value
        if self.kind == "leaf":
            return leaves[self.place]
        if self.kind == "item":
            return self.place.now()
        return (leaves[self.place] if self.kind == "leaf grad" else self.place)._grad


#: operators whose answers are those of guards: shapes and layouts
BY_GUARDS = BY_SHAPE | {"to_host"}


class Recorder:
    """Fills a graph with the operators that a program calls.

    Args:
        origin: called with a tensor that no operator made, says how later calls find it: a
            description of the input, None where nobody can.
        whole: whether a value that Python looks at is an error (``fullgraph=True``).

    Attributes:
        problem: why the capture holds for nothing, None while it does.
        decisions: the answers that Python got so far.
        inputs: ``(node, value, origin)`` of each placeholder.
    """

    def __init__(self, origin: Callable[[Any], Any], whole: bool) -> None:
        self.graph = Graph()
        self.origin, self.whole = origin, whole
        self.problem: tuple[str, Any] | None = None
        self.decisions: list[Decision] = []
        self.steps: list[Node] = []
        self.inputs: list[tuple[Node, Any, Any]] = []
        self.known: dict[int, Node] = {}
        self.kept: list[Any] = []
        self.passing: dict[int, tuple[Any, Node, Any]] = {}
        self.examples: dict[Node, Any] = {}
        self.alive = True
        self.symbols = False  # whether the program got numbers that know their node
        self.busy = 0
        self.running = False  # the program itself, not what is found out afterwards
        self.plain = False  # whether the program gets ordinary numbers
        self.shown: list[tuple[Any, int, Any, bytes]] = []  # tensors as arrays: what Python got
        #: by their memory: tensors from outside, and copies; ``p`` and ``p.data`` are one entry
        self.overwritten: dict[int, tuple[Any, Any, Any]] = {}
        self.draws = False
        self.state: Any = None  # what the program can reach
        #: raw arrays of tensors from outside whose versions count writes; ``data`` has its own
        self.versioned: dict[int, dict[int, Any]] = {}
        self.borrowed: dict[int, Any] = {}  # raw arrays over the memory of a NumPy array
        self.foreseeing = False
        self.stopped = False  # whether the run was ended, and is to be taken back
        self.caught = False  # whether the program would catch an error of an operator
        self.reset = False  # whether the state of random numbers was set
        self.numbers: dict[tuple[int, int], Any] = {}
        self.table: Any = None  # of the symbols, where sizes are open
        self.sized: Any = None  # called with (recorder, call, arguments) for a call with symbols
        self.size_nodes: dict[Any, Any] = {}
        self._last_input = self.graph._root

    def refuse(self, why: str, where: Any = None) -> None:
        """The capture holds for nothing: the call goes on eagerly, and is not kept."""
        if self.problem is None:
            self.problem = (why, where if where is not None else source())
            if self.whole:
                self.foresee()
                raise Unsupported(_told(*self.problem))
            if self.symbols and self.running:
                self.stop()

    def rewound(self) -> None:
        """The state of random numbers is set, which no node does: numbers before or behind it."""
        self.reset = True
        if self.draws:
            self.refuse("random numbers are drawn beside a state of them that is set")

    def exact(self) -> None:
        """The program asks for types: it is to see ordinary numbers only."""
        if self.symbols and self.running and not self.plain:
            self.stop()
        self.plain = True

    def stop(self) -> None:
        """End the program's run, which is taken back: its blocks of ``finally`` call nothing."""
        if self.foreseeing:  # it is ending
            return
        self.foreseeing = True
        try:
            self.foresee()
        finally:
            self.foreseeing = False
        self.stopped = True
        raise TakeBack

    def foresee(self) -> None:
        """Record what blocks of ``finally`` may change on the way out: nobody hears of them."""
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.endswith(_CAPTURE):
            name = frame.f_globals.get("__name__")
            if frame.f_code.co_exceptiontable and by_program(name):
                with suppress(TakeBack, Unsupported):
                    self.state.foresee()
                return
            frame = frame.f_back

    # -- values ----------------------------------------------------------------------------------

    def placeholder(self, name: str, value: Any, origin: Any) -> Node:
        """A new input of the graph."""
        graph = self.graph
        with graph.inserting_after(self._last_input):
            node = graph.placeholder(name)
        if graph._insert_after is self._last_input:
            graph._insert_after = node
        self._last_input = node
        self.inputs.append((node, value, origin))
        self.examples[node] = value
        node.meta["value"] = info_of(value)
        if isinstance(value, Value):
            self.known[id(value.raw)] = node
            self.kept.append(value.raw)
        return node

    def node_of(self, tensor: Any) -> Node | None:
        """The node of a tensor; one that was not made here becomes an input."""
        node = self.known.get(id(tensor.raw))
        if node is None:
            origin = self.origin(tensor)
            if origin is None:
                self.refuse(
                    f"a tensor of shape {tuple(tensor.shape)} comes from a place that later calls "
                    "cannot look up"
                )
                return None
            node = self.placeholder(origin.name, origin.value, origin)
        return node

    def argument(self, value: Any) -> Any:
        """An argument of a call as the graph has it."""

        def leaf(item: Any) -> Any:
            if isinstance(item, Sym):
                return item.node
            if isinstance(item, Expression):
                return self.size(item)
            if isinstance(item, np.generic) and isinstance(item, (float, complex)):
                return item.item()  # a number like any other, which compilers write as one
            return self.node_of(item) if isinstance(item, Value) else item

        return map_aggregate(value, leaf)

    def size(self, size: Expression) -> Any:
        """The node that computes an open size."""
        if size.terms not in self.size_nodes:
            self.size_nodes[size.terms] = size.build(self.size_nodes.__getitem__, self._computed)
        return self.size_nodes[size.terms]

    def _computed(self, function: Any, a: Any, b: Any) -> Any:
        key = (function, a, b)
        if key not in self.size_nodes:
            self.size_nodes[key] = node = self.function(function, key[1:])
            node.meta["size"] = True
            sides = [self.examples[n] if isinstance(n, Node) else n for n in (a, b)]
            self.examples[node] = node.meta["value"] = function(*sides)
        return self.size_nodes[key]

    # -- steps -----------------------------------------------------------------------------------

    def getitem(self, node: Node, index: int) -> Node:
        """Item ``index`` of a result of several."""
        return self.function(operator.getitem, (node, index))

    def function(self, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> Node:
        """A call of a function, with its origin."""
        return self._noted(self.graph.call_function(target, args, kwargs))

    def _noted(self, node: Node) -> Node:
        node.meta["source"] = source()
        self.steps.append(node)
        self.caught = self.caught or would_catch()
        return node

    def called(self, op: Any, args: tuple[Any, ...], out: Any) -> None:
        """An operator was called with these complete arguments."""
        given, named = map(self.argument, spelled(op, args))
        if self.problem is not None:
            return
        if op.draws(args):
            self.draws = True
            if self.reset:
                self.rewound()
                return
        node = self.function(op, given, named)
        node.meta["value"] = info_of(out)
        if op.schema.plain and op.name not in BY_GUARDS:  # `if x.equal(y)`: this answer holds
            if op.plugin.startswith("library "):
                node.meta["open"] = True  # no compiler knows what it gives
            self.decide(node, out, f"{op.name}()")
        elif isinstance(out, Value):
            self.made(out, node)
        elif isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if isinstance(item, Value) and id(item.raw) not in self.known:
                    self.made(item, self.getitem(node, i))
        if shaped_by_values(op, args):
            node.meta["open"] = True
            self.measured(out)
        elif shaped_by_numbers(op, args):
            self.shaped(op, args, out)

    def shaped(self, op: Any, args: tuple[Any, ...], out: Any) -> None:
        """The shape of a result depends on numbers: what follows holds for this shape."""
        shapes = ShapesOf(op, args)
        answer = shapes(*map(plain, shapes.numbers))
        nodes = tuple(number.node for number in shapes.numbers)
        if answer is None or not all(map(self.known_early, nodes)):
            self.measured(out)
        else:
            self.decide(self.function(shapes, nodes), answer, SHAPES)

    def measured(self, out: Any) -> None:
        """Sizes that depend on values are values: Python and derivatives read them as numbers."""
        results: Any = out if isinstance(out, (tuple, list)) else (out,)
        for item in results:
            if isinstance(item, Value) and id(item.raw) in self.known:
                sizes = self._noted(self.graph.call_method("size", (self.known[id(item.raw)],)))
                shape = item.shape  # type: ignore[attr-defined]
                self.decide(sizes, shape, "a size that depends on values")

    def made(self, value: Any, node: Node) -> None:
        """``value`` is what ``node`` made, unless it is an argument that was written in place."""
        raw = value.raw
        if id(raw) in self.known:
            return
        self.known[id(raw)] = node
        node.meta["value"] = info_of(value)
        if type(raw) is np.ndarray:  # known as long as the program has it, so that it can go
            kind, keys, link = type(value), value.keys, (value._dtype, value._view, value._storage)

            def again(raw: Any) -> Any:
                alias = new_value(kind, raw, keys)
                alias._dtype, alias._view, alias._storage = link
                return alias

            self.passing[id(raw)] = weakref.ref(raw, self._gone(id(raw))), node, again
        else:
            self.kept.append(raw)
            self.examples[node] = value

    def _gone(self, key: int) -> Callable[[Any], None]:
        known, passing = self.known, self.passing

        def forget(_: Any) -> None:
            if key in passing:
                del known[key], passing[key]

        return forget

    def hold(self) -> None:
        """Keep the values that the program has now: a graph that follows may take them."""
        for alive, node, again in list(self.passing.values()):
            raw = alive()
            if raw is not None:
                self.kept.append(raw)
                self.examples[node] = again(raw)
        self.passing.clear()

    def constant(self, tensor: Any) -> None:
        """``tensor`` was made from Python's data: each call gets a copy of its own."""
        with capturing_nothing():
            kept = tensor.clone()
        place = self.placeholder("constant", kept, Origin("constant", kept, "constant"))
        self.made(tensor, self.function(TABLE.operator("clone"), (place,)))
        if type(tensor.raw) is np.ndarray and self.state.lends(tensor.raw):
            self.borrowed[id(tensor.raw)] = tensor.raw

    def about_to_write(self, args: Any) -> None:
        """Keep what tensors from outside are before an operator writes to them."""
        for value in args:
            if isinstance(value, (tuple, list)):
                self.about_to_write(value)
            elif isinstance(value, Value):
                root: Any = base_of(value)
                raw = root.raw
                if any(map(self.state.has, chain_of(value))):
                    self.versioned.setdefault(id(raw), {})[id(root)] = root
                if id(raw) in self.borrowed:
                    self.refuse("it writes to a NumPy array through a tensor")
                node = self.known.get(id(raw))
                if (node is None or node.op == "placeholder") and id(raw) not in self.overwritten:
                    with capturing_nothing():
                        self.overwritten[id(raw)] = (root, root.detach().clone(), raw)

    # -- where values leave ----------------------------------------------------------------------

    def item(self, tensor: Any, read: Callable[[], Any]) -> Any:
        """``tensor.item()``: a number that knows its node."""
        node = self.node_of(tensor)
        self.busy += 1
        try:
            value = read()
        finally:
            self.busy -= 1
        if node is None or self.problem is not None:
            return value
        key = (id(node), version_of(tensor))
        known = self.numbers.get(key)
        if known is None:
            made = self._noted(self.graph.call_method("item", (node,)))
            known = value if self.plain else symbolic(value, made, self)
            self.numbers[key] = known
            self.examples[made] = value
            self.symbols = self.symbols or isinstance(known, Sym)
            if not isinstance(known, Sym):
                self.decide(made, value, "item()")
        return known

    def array(self, tensor: Any, array: Any) -> None:
        """Python got all elements of ``tensor``."""
        node = self.node_of(tensor)
        if node is None or self.problem is not None:
            return
        if array.size > 64:
            self.refuse(f"the program reads the {array.size} elements of a tensor")
            return
        self.shown.append((tensor, version_of(tensor), array, array.tobytes()))
        self.decide(self._noted(self.graph.call_method("tolist", (node,))), array.tolist(), "read")

    def written_by_python(self) -> bool:
        """Whether the memory of a tensor that Python got as an array has other elements now."""
        return any(
            version_of(tensor) == version and array.tobytes() != before
            for tensor, version, array, before in self.shown
        )

    def unwrite(self) -> None:
        """Take back what Python wrote to the arrays it got."""
        for _, _, array, before in self.shown:
            if array.tobytes() != before:
                array[...] = np.frombuffer(before, array.dtype).reshape(array.shape)

    def known_early(self, node: Node) -> bool:
        """Whether a number depends on nothing but numbers that are inputs of the graph."""
        if node.op == "placeholder":
            return not isinstance(self.examples[node], Value)
        return node.op == "call_function" and all(map(self.known_early, node.all_input_nodes))

    def written(self) -> list[int]:
        """The inputs that were written to until now."""
        return [
            i
            for i, (_, value, _) in enumerate(self.inputs)
            if isinstance(value, Value) and id(base_of(value).raw) in self.overwritten
        ]

    def miscounted(self) -> bool:
        """Whether a write counts a version of a tensor that another one stands for in the graph."""
        return any(
            any(root is not base_of(value) for root in self.versioned.get(at, {}).values())
            for _, value, _ in self.inputs
            if isinstance(value, Value) and (at := id(base_of(value).raw)) in self.overwritten
        )

    def decide(self, node: Node, answer: Any, what: str) -> None:
        """Python looks at a number: the graph is split here."""
        if not self.alive or self.problem is not None:
            return
        for known in self.decisions:
            if known.node is node and known.answer == answer:
                return
        where = source()
        if self.table is not None:
            self.refuse(f"the program looks at a value ({what})", where)
            return
        early = self.known_early(node)
        if self.whole and not early:
            raise Unsupported(_told(f"the program looks at a value ({what})", where))
        decision = Decision(node, answer, what, where, len(self.steps))
        decision.draws = self.draws
        decision.early = early
        decision.written = self.written()
        self.decisions.append(decision)
        self.hold()


def chain_of(value: Any) -> Iterator[Any]:
    """A tensor, and what it is a view of, one after the other."""
    while value is not None:
        yield value
        value = None if value._view is None else value._view.base


def _told(why: str, where: Any) -> str:
    return "{}:{} in {}: {}".format(*where, why)


def record(call: Any, args: tuple[Any, ...]) -> Any:
    """The kernel of the layer for every operator: call it, and note it."""
    mode = capturing.current()
    recorder = None if mode is None else mode.recorder
    if recorder is not None and recorder.stopped and recorder.running:
        raise TakeBack
    if recorder is None or recorder.problem is not None or not recorder.alive:
        symbols = any(has_sym(argument) for argument in args)
        return call.redispatch(*map_aggregate(args, plain)) if symbols else call.below(args)
    try:
        return _recorded(recorder, call, args)
    except Exception:
        map_aggregate(args, _settled)
        raise


def _settled(value: Any) -> Any:
    """The program may catch an error, and goes on for these numbers."""
    if isinstance(value, Sym):
        return value.forced("an error")
    return int(value) if isinstance(value, Expression) else value


def _recorded(recorder: Any, call: Any, args: tuple[Any, ...]) -> Any:
    op = call.op
    if recorder.sized is not None and any(map(_is_sized, args)):
        return recorder.sized(recorder, call, args)
    recorder.busy += 1  # what kernels do is no part of the program
    for record in recorder.state.followed:  # they may import a module
        record.put(record.value)
    try:
        if op.mutates:
            recorder.about_to_write(written_to(op, args))
        if op.plugin.startswith("library "):  # its kernel is a function of the user's
            with undisturbed(recorder.state, recorder, f"the kernel of {op.name}", back=False):
                out = _below(call, args)
        else:
            out = _below(call, args)
        if op.name == "to_host":
            recorder.array(args[0], out)
        elif op.name == "from_host":
            recorder.constant(out)
        else:
            recorder.called(op, args, out)
    finally:
        recorder.busy -= 1
        for record in recorder.state.followed:
            record.put(record.symbol)
    return out


def written_to(op: Any, args: Any) -> list[Any]:
    """The arguments that an operator writes to."""
    asked = map_aggregate(args, plain)
    return [args[m.position] for m in op.schema.mutations if m.happens(asked)]


def _below(call: Any, args: tuple[Any, ...]) -> Any:
    if any(has_sym(argument) for argument in args):
        return call.redispatch(*map_aggregate(args, plain))
    return call.below(args)


def _is_sized(argument: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return any(map(_is_sized, argument))
    if isinstance(argument, Value):
        return isinstance(argument.raw, Wrapper)
    if isinstance(argument, slice):
        return any(map(_is_sized, (argument.start, argument.stop, argument.step)))
    return isinstance(argument, Expression)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``compile``."""
    registrar.layer(Layer("compile", generic=record, below=("autograd", "autocast")))


def load() -> None:
    """Put the layer in the table, the first time it is needed."""
    from coredispatch.registry import plugins

    if "compile" not in {plugin.name for plugin in plugins}:
        plugins.builtin("compile", sys.modules[__name__], __version__)
    OBSERVERS.item = _item


def _item(tensor: Any, read: Callable[[], Any]) -> Any:
    """``tensor.item()`` while somebody captures."""
    mode = capturing.current()
    if mode is None or not mode.recorder.alive or not is_on("compile") or is_masked("compile"):
        return read()
    raw = tensor.raw
    with capturing_nothing():
        if isinstance(raw, Wrapper):  # of open sizes
            return mode.recorder.item(tensor, raw.value.item)  # type: ignore[attr-defined]
        return mode.recorder.item(tensor, read)
