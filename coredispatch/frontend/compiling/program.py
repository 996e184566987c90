"""A captured program: what it depends on, its graphs, and what it returns and leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.by_size import compiled
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.graphs import extracted, made_by, masked_call
from coredispatch.frontend.compiling.guards import Guards
from coredispatch.frontend.compiling.recording import SHAPES, Decision, Origin
from coredispatch.frontend.compiling.records import equal
from coredispatch.graph import Graph, Node, map_arg
from coredispatch.graph.calls import operator_of
from coredispatch.graph.passes.aliasing import Aliases
from coredispatch.graph.passes.common import repeatable
from coredispatch.plugin import DType, Value, to_raw

__all__ = ["Failed", "Leaf", "Program", "Segment", "Unseen", "same", "segmented"]


#: so many tensors, and elements, that a program writes are copied in each call, for an error in it
_FEW_TENSORS, _FEW_ELEMENTS = 4, 16384


class Unseen(Exception):
    """A number came out as in no captured call."""


class Failed(Exception):
    """A graph failed before anything was written: Python may run the program from its start."""


class Leaf:
    """The end of a path through the graphs: the result, and what is written to Python's state."""

    def __init__(self, result: Any, effects: list[tuple[Any, Any]], wanted: list[Node]) -> None:
        self.result, self.effects, self.wanted = result, effects, wanted
        self.joint: Any = None
        #: nodes of this capture -> those of the capture that found them first
        self.aliases: dict[Node, Node] = {}

    def needs(self) -> set[Node]:
        """The nodes whose values are needed at the end."""
        wanted = set(self.wanted)
        if self.joint is not None:
            wanted |= {*self.joint.saved, *self.joint.outs, *self.joint.ins}
        return {self.aliases.get(node, node) for node in wanted}

    def rename(self, mapping: dict[Node, Node]) -> None:
        """The capture shares its beginning with an older one, which has other nodes for it."""
        wanted = set(self.wanted)
        if self.joint is not None:
            wanted |= {*self.joint.saved, *self.joint.outs, *self.joint.ins}
        self.aliases = {node: mapping[node] for node in wanted if node in mapping}


class Segment:
    """A graph without a look at its values, and what comes after: a decision, or the end."""

    def __init__(self, steps: list[Node]) -> None:
        self.steps = steps
        self.decision: Decision | None = None
        self.children: list[tuple[Any, Segment]] = []
        self.leaf: Leaf | None = None
        self.run: Callable[..., Any] | None = None
        self.inputs: list[Node] = []
        self.outputs: list[Node] = []
        self.graph: Graph | None = None

    def used_later(self) -> set[Node]:
        """The nodes that this segment's followers need."""
        found: set[Node] = set()
        if self.decision is not None:
            found.add(self.decision.node)
        for _, child in self.children:
            for step in child.steps:
                found.update(step.all_input_nodes)
            found |= child.used_later()
        if self.leaf is not None:
            found |= self.leaf.needs()
        return found

    def cut(self) -> None:
        """Make the graph; it is to be compiled anew."""
        later = self.used_later()
        self.outputs = [step for step in self.steps if step in later]
        self.graph, self.inputs = extracted(self.steps, self.outputs)
        if self.early:
            self.run = self.numbers
        else:
            self.run = None if self.steps else _nothing

    @property
    def early(self) -> bool:
        """Whether it does no more than compute with numbers that come with the call."""
        return self.decision is not None and self.decision.early

    def numbers(self, *values: Any) -> tuple[Any, ...]:
        """What an early segment gives: no compiler is asked for that."""
        env: dict[Node, Any] = dict(zip(self.inputs, values))
        known: dict[Node, Any] = {}
        return tuple([_computed(node, env, known) for node in self.outputs])

    def compiled(self, compiler: Any, values: list[Any]) -> Callable[..., Any]:
        """The compiled graph, for inputs like these."""
        if self.run is None:
            assert self.graph is not None
            self.run = compiled(compiler, self.graph, values)
        return self.run

    def later(self, compiler: Any) -> Callable[..., Any]:
        """The graph as a function that is compiled in its first call."""

        return self.run or (lambda *values: self.compiled(compiler, list(values))(*values))

    def child(self, answer: Any) -> Segment | None:
        """What follows this answer."""
        return next((segment for known, segment in self.children if same(known, answer)), None)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return equal(a, b)


def _nothing(*values: Any) -> tuple[Any, ...]:
    return ()


def segmented(recorder: Any, end: int) -> list[Segment]:
    """What was recorded up to step ``end``, cut where Python looked at numbers.

    What was asked of numbers that come with the call comes first: it is known before anything runs,
    and cuts nothing.
    """
    steps, decisions = recorder.steps[:end], recorder.decisions
    found: list[Segment] = []
    moved: set[Node] = set()
    for decision in decisions:
        if decision.early:
            made = made_by(decision.node) - moved
            own = [step for step in recorder.steps if step in made]
            moved.update(own)
            found.append(Segment(own))
            found[-1].decision = decision
    start = 0
    for decision in decisions:
        if not decision.early:
            between = steps[start : decision.position]
            found.append(Segment([step for step in between if step not in moved]))
            found[-1].decision = decision
            start = decision.position
    found.append(Segment([step for step in steps[start:] if step not in moved]))
    return found


class Program:
    """What one capture, or several with the same guards, found.

    Attributes:
        guards: what must hold for it.
        root: the first graph.
        inputs: the nodes of all inputs, and where calls find their values.
        calls: how often it ran instead of Python.
        sizes: its open sizes, and what holds for them, in words.
        ready: functions that are written for it, None before, False where none can be.
    """

    def __init__(self, key: Any, capture: Any) -> None:
        self.key = key
        self.guards: Guards = capture.guards()
        self.root: Segment = capture.segments[0]
        self.inputs: list[tuple[Node, Origin]] = []
        self.written: set[Node] = set()
        self.apart: set[Node] = set()  # inputs written to through ``data`` alone
        self.versioned: set[Node] = set()
        self.draws = False
        # What is to be taken back where an operator fails: Python then runs the program, which may
        # catch the error, or leave something in Python's state before it.
        self.caught = False
        self.changed: set[Node] = set()
        self.elements = 0  # that it writes
        self.drawn = False
        self.generators: list[Any] = []  # that it may draw from
        self.compiler: Any = None
        self.calls = 0
        self.ready: Any = None
        self.objects = list(capture.given.objects)  # their ids stand in the key
        self.sizes: list[str] = capture.symbols_told()
        _chain(capture.segments)
        self._enter(capture, {})

    def segments(self) -> list[Segment]:
        """All graphs, the first one first."""
        found, open_ = [], [self.root]
        while open_:
            at = open_.pop(0)
            found.append(at)
            open_ += [child for _, child in at.children]
        return found

    def graphs(self) -> list[Segment]:
        """Those segments that compute with tensors."""
        return [segment for segment in self.segments() if not segment.early]

    def shaping(self) -> list[Origin]:
        """Where the numbers come from that decide shapes in it."""
        decisions = [segment.decision for segment in self.segments()]
        asked: set[Node] = set()
        for decision in decisions:
            if decision is not None and decision.early and decision.what == SHAPES:
                asked |= made_by(decision.node)
        return [origin for node, origin in self.inputs if node in asked]

    def leaves(self) -> list[Leaf]:
        """All ends."""
        return [s.leaf for s in self.segments() if s.leaf is not None]

    def compile(self, compiler: Any, examples: dict[Node, Any]) -> None:
        """Compile the graphs that are not compiled yet and whose inputs are known."""
        self.compiler = compiler
        for segment in self.segments():
            if segment.run is None and all(node in examples for node in segment.inputs):
                segment.compiled(compiler, [examples[node] for node in segment.inputs])

    def _enter(self, capture: Any, mapping: dict[Node, Node]) -> None:
        nodes = [node for node, _, _ in capture.recorder.inputs]
        for node, _, origin in capture.recorder.inputs:
            if node not in mapping and origin.kind != "tangent":
                self.inputs.append((node, origin))
            if origin.kind == "leaf":
                origin.value = None  # calls bring their own
        for decision in capture.recorder.decisions:
            if decision.early:  # it is asked for before anything is written
                continue
            self.written |= {mapping.get(nodes[i], nodes[i]) for i in decision.written}
            self.draws = self.draws or decision.draws
        written = capture.recorder.written()
        self.drawn = self.drawn or capture.recorder.draws
        known = {id(generator): generator for generator in self.generators}
        self.generators = [*(known | {id(g): g for g, _ in capture.state.generators}).values()]
        self.changed |= {mapping.get(nodes[i], nodes[i]) for i in written}
        for i in written:
            own = base_of(capture.recorder.inputs[i][1]).raw
            if id(own) in capture.recorder.versioned:
                self.versioned.add(mapping.get(nodes[i], nodes[i]))
        self.apart = self.changed - self.versioned
        self.elements += sum(capture.recorder.inputs[i][1].numel() for i in written)
        loses = any(leaf.effects for leaf in self.leaves())
        loses = loses or bool(written) and any(map(_may_fail, capture.recorder.steps))
        few = self.elements <= _FEW_ELEMENTS and len(self.changed) <= _FEW_TENSORS
        self.caught = self.caught or capture.recorder.caught or loses and few
        for segment in self.segments():
            later = segment.used_later()
            if segment.graph is None or any(
                s in later and s not in segment.outputs for s in segment.steps
            ):
                segment.cut()

    def merged(self, capture: Any) -> bool:
        """Enter another path through the same beginning; False where the beginnings differ."""
        mapping = self._inputs_of(capture)
        at = self.root
        for i, new in enumerate(capture.segments):
            if not _matches(at.steps, new.steps, mapping):
                return False
            if at.decision is None or new.decision is None:
                return False
            if mapping.get(new.decision.node, new.decision.node) is not at.decision.node:
                return False
            following = at.child(new.decision.answer)
            if following is None:
                rest = capture.segments[i + 1 :]
                self._attach(at, new.decision.answer, rest, mapping)
                self.guards = self.guards.united(capture.guards())
                self._enter(capture, mapping)
                return True
            at = following
        return False

    def _attach(self, at: Segment, answer: Any, rest: list[Segment], mapping: Any) -> None:
        for segment in rest:
            for step in segment.steps:
                step.args = map_arg(step.args, lambda n: mapping.get(n, n))
                step.kwargs = map_arg(step.kwargs, lambda n: mapping.get(n, n))
            if segment.decision is not None:
                segment.decision.node = mapping.get(segment.decision.node, segment.decision.node)
            if segment.leaf is not None:
                segment.leaf.rename(mapping)
        _chain(rest)
        at.children.append((answer, rest[0]))

    def _inputs_of(self, capture: Any) -> dict[Node, Node]:
        known: dict[Any, Node] = {}
        for node, origin in self.inputs:
            known.setdefault(_signature(origin), node)
        mapping: dict[Node, Node] = {}
        for node, _, origin in capture.recorder.inputs:
            found = known.get(_signature(origin))
            if found is not None:
                mapping[node] = found
        return mapping

    @property
    def repeatable(self) -> bool:
        """Whether its graphs leave nothing behind: they write to no input, and draw nothing."""
        return all(
            segment.graph is None or _leaves_nothing(segment.graph) for segment in self.segments()
        )

    @property
    def undoes(self) -> bool:
        """Whether an error is no end of it, and its graphs leave something behind."""
        return self.caught and not self.repeatable

    def foreseen(self, env: dict[Node, Any]) -> bool:
        """Whether the answers that depend on numbers of the call alone are known.

        They are asked for before anything runs, up to the first one that depends on a tensor.
        """
        at: Segment | None = self.root
        known: dict[Node, Any] = {}
        while at is not None and at.decision is not None and at.decision.early:
            at = at.child(_computed(at.decision.node, env, known))
        return at is not None

    def undoing(self, env: dict[Node, Any]) -> Callable[[], None] | None:
        """What takes back the writes before a number that came out as never before.

        In a program that may catch errors it takes back all writes.
        """
        written, draws = self.written, self.draws
        if self.caught:
            written, draws = self.changed, self.drawn
        elif self.root.decision is None:
            return None
        if not written and not draws:
            return None
        states = [(g, g.state_bytes()) for g in self.generators] if draws else []
        kept = [
            (env[n], masked_call(lambda t: t.clone(), [env[n]]))
            for n in written
            if isinstance(env[n], Value)
        ]

        def undo() -> None:
            for tensor, before in kept:
                masked_call(lambda t, b: t.copy_(b), [tensor.data, before])
            for generator, before in states:
                generator.load_state_bytes(before)

        return undo


#: operators that take any integers, as counters of steps and batches meet them
_TAKE_ALL = frozenset(
    "add sub mul neg abs eq ne lt le gt ge where sum clone copy zero fill".split()
)


def _may_fail(node: Node) -> bool:
    """Whether the values that an operator gets may be refused: indices, singular matrices."""
    op = operator_of(node)
    if op is None or op.name.rstrip("_") in _TAKE_ALL:
        return False
    if "linalg" in op.namespaces or op.plugin.startswith("library "):
        return True
    dtypes = [getattr(given.meta.get("value"), "dtype", None) for given in node.all_input_nodes]
    return any(d is not None and DType.of(d).category == 1 for d in dtypes)


def _leaves_nothing(graph: Graph) -> bool:
    aliases = Aliases(graph)
    inputs = {aliases.of(node) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    return not inputs & aliases.written and all(
        repeatable(node) or _writes(node)
        for node in graph.nodes
        if node.op not in ("placeholder", "get_attr", "output")
    )


def _writes(node: Node) -> bool:
    op = operator_of(node)
    return op is not None and bool(op.mutates) and not op.random


def _computed(node: Node, env: dict[Node, Any], known: dict[Node, Any]) -> Any:
    """The value of a number."""
    if node in env:
        return env[node]
    if node not in known:
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: _computed(n, env, known))
        known[node] = node.target(*args, **kwargs)
    return known[node]


def _chain(segments: list[Segment]) -> None:
    for segment, following in zip(segments, segments[1:]):
        assert segment.decision is not None
        segment.children.append((segment.decision.answer, following))


def _signature(origin: Origin) -> Any:
    if origin.kind in ("leaf", "leaf grad"):
        return (origin.kind, origin.place)
    if origin.kind == "item":
        return ("item", origin.place.kind, id(origin.place.holder), origin.place.key)
    if origin.kind == "constant" and origin.name == "constant":
        raw = np.asarray(to_raw(origin.value))
        return ("host", raw.shape, str(raw.dtype), raw.tobytes())
    if origin.kind == "grad":
        return ("grad", id(origin.place))
    return (origin.kind, id(origin.value))


def _matches(old: list[Node], new: list[Node], mapping: dict[Node, Node]) -> bool:
    """Whether the steps do the same; ``mapping`` is then extended."""
    if len(old) != len(new):
        return False
    for a, b in zip(old, new):
        if a.op != b.op or a.target is not b.target and a.target != b.target:
            return False
        args, kwargs = map_arg((b.args, b.kwargs), lambda n: mapping.get(n, n))
        if repr(args) != repr(a.args) or repr(kwargs) != repr(a.kwargs):
            return False
        mapping[b] = a
    return True
