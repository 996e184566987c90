"""A call of a program: its inputs are found, its graphs run, and what it leaves behind is written.

:func:`execute` is the call of any program. A program that looks at no value on the way is one
graph, and gets a function of its own, which :func:`caller` writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch.frontend.compiling.checking import read
from coredispatch.frontend.compiling.graphs import OFF, run_below
from coredispatch.frontend.compiling.joint import attached, freed
from coredispatch.frontend.compiling.program import (
    Failed,
    Leaf,
    Program,
    Segment,
    Unseen,
    same,
)
from coredispatch.frontend.compiling.recording import Origin
from coredispatch.frontend.compiling.records import MISSING, Record
from coredispatch.frontend.compiling.templates import CONTAINERS_GIVEN, Constant, Row, Taken
from coredispatch.frontend.compiling.text import Text
from coredispatch.frontend.compiling.writing import Gradient
from coredispatch.frontend.modes import (
    fresh_keys,
    is_inference_mode_enabled,
)
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import Node
from coredispatch.plugin import OpError, Value
from coredispatch.registry.dispatch.masks import call_masked

__all__ = ["caller", "execute"]


def execute(program: Program, leaves: list[Any], containers: list[Any]) -> Any:
    """Run the graphs of a program, write what it writes, and return what it returns.

    Args:
        program: the program.
        leaves, containers: of the :class:`~.arguments.Arguments`.

    Raises :class:`Unseen`, with everything as it was, where a number came out as never before, and
    :class:`Failed`, as well with everything as it was, where a graph fails that leaves nothing
    behind, or whose error the program may catch. What an error of another finds written stays.
    """
    env: dict[Any, Any] = {node: origin.find(leaves) for node, origin in program.inputs}
    env[CONTAINERS_GIVEN] = containers
    undo = program.undoing(env)
    try:
        leaf = _computed(program, env, undo)
        result = leaf.result(env)
        values = [build(env) for _, build in leaf.effects]
    except Unseen:
        raise
    except Exception as error:
        if program.caught and undo is not None:
            undo()
        if program.caught or program.repeatable:
            raise Failed from error
        raise
    for (write, _), value in zip(leaf.effects, values):
        if hasattr(write, "write"):
            write.write(leaves, containers, value)
        else:
            write(value)
    program.calls += 1
    return result


def _computed(program: Program, env: dict[Any, Any], undo: Any) -> Leaf:
    """The end of the path that this call takes; ``env`` gets what its graphs compute."""
    infers = is_inference_mode_enabled()
    segment = program.root
    if segment.decision is not None and not program.foreseen(env):
        raise Unseen
    while True:
        apart = program.apart
        values = [env[node].data if node in apart else env[node] for node in segment.inputs]
        made = run_below(segment.run or segment.compiled(program.compiler, values), values)
        if len(made) != len(segment.outputs):
            raise OpError(
                f"the compiled graph gave {len(made)} values in the place of "
                f"{len(segment.outputs)}",
                fix="return a function that gives the tuple of the graph's outputs",
            )
        if infers:
            made = [_inferred(value) for value in made]
        env.update(zip(segment.outputs, made))
        if segment.decision is None:
            break
        following = segment.child(env[segment.decision.node])
        if following is None:
            if undo is not None:
                undo()
            raise Unseen
        segment = following
    leaf = segment.leaf
    assert leaf is not None
    for new, old in leaf.aliases.items():
        env[new] = env[old]
    if leaf.joint is not None:
        _attach(leaf, env)
    return leaf


def _inferred(value: Any) -> Any:
    """A result made in inference mode."""
    if isinstance(value, Value) and not value.keys & AUTOGRAD:
        value.keys = fresh_keys(value.keys)
    return value


def _attach(leaf: Leaf, env: dict[Any, Any]) -> None:
    """Make the results a node of autograd.

    Gradients were recorded when the program was captured, and modes are guards: where nothing is
    saved it needs no more than its edges.
    """
    joint = leaf.joint
    if joint.freed and joint.fresh:
        freed([env[node] for node in joint.outs], [env[node] for node in joint.ins])
        return
    outs, saved, inputs = ([env[n] for n in part] for part in (joint.outs, joint.saved, joint.ins))
    env.update(zip(joint.outs, attached(joint, outs, saved, inputs)))


def caller(program: Program) -> Callable[[list[Any], list[Any]], Any] | None:
    """:func:`execute` for a program of one graph in each call, written out; None for others.

    What is asked of numbers before the graph runs chooses it. What needs no structure is a name of
    the function; ``env`` has what builders look up.
    """
    ends = [segment for segment in program.segments() if not segment.early]
    if any(segment.leaf is None for segment in ends):
        return None
    if is_inference_mode_enabled() or program.undoes:
        return None
    return _Caller(program, ends).text.function("call(leaves, containers)")


class _Caller:
    """The text: all that may fail, then what the end that was reached leaves behind."""

    def __init__(self, program: Program, ends: list[Segment]) -> None:
        self.text = text = Text()
        self.program = program
        self.names: dict[Any, str] = {}
        self.count = itertools.count()
        self.left: list[list[str]] = []  # of each end, in the order in which they stand
        self.several = len(ends) > 1
        origins = dict(program.inputs)
        segments = program.segments()
        needed = {node for segment in segments for node in segment.inputs}
        needed |= {segment.decision.node for segment in segments if segment.decision is not None}
        for segment in ends:
            assert segment.leaf is not None
            needed |= segment.leaf.needs()
        text.scope |= {"Failed": Failed, "Unseen": Unseen}
        text.line("try:")
        for node in origins:
            if node in needed:
                text.line(f"    {self.named(node)} = {self.input(origins[node])}")
        self.segment(program.root, "    ")
        text.line("except Unseen:")
        text.line("    raise")
        text.line("except Exception as error:")
        text.line(f"    if {text.name(program)}.repeatable:")
        text.line("        raise Failed from error")
        text.line("    raise")
        for end, lines in enumerate(self.left):
            if self.several:
                text.line(f"if end == {end}:")
            for line in lines:
                text.line(f"    {line}" if self.several else line)

    def named(self, node: Any) -> str:
        """A new name for a node's value."""
        self.names[node] = f"v{next(self.count)}"
        return self.names[node]

    def segment(self, segment: Segment, indent: str) -> None:
        """The lines of a segment and of what comes after it."""
        text = self.text
        if not segment.early:
            self.end(segment, indent)
            return
        for node in segment.steps:
            function, args, kwargs = text.name(node.target), node.args, node.kwargs
            given = [self.value(arg) for arg in args]
            given += [f"{name}={self.value(arg)}" for name, arg in kwargs.items()]
            text.line(f"{indent}{self.named(node)} = {function}({', '.join(given)})")
        assert segment.decision is not None
        answer = self.names[segment.decision.node]
        for position, (known, child) in enumerate(segment.children):
            asked = f"{answer} is {known}"
            if type(known) is not bool:
                asked = f"{text.name(same)}({text.name(known)}, {answer})"
            text.line(f"{indent}{'elif' if position else 'if'} {asked}:")
            self.segment(child, indent + "    ")
        text.line(f"{indent}else:")
        text.line(f"{indent}    raise Unseen")

    def value(self, argument: Any) -> str:
        """An argument of a function of numbers."""
        if isinstance(argument, Node):
            return self.names[argument]
        if type(argument) in (tuple, list):
            items = "".join(f"{self.value(item)}, " for item in argument)
            return f"({items})" if type(argument) is tuple else f"[{items}]"
        if type(argument) is slice:
            limits = (argument.start, argument.stop, argument.step)
            return f"slice({', '.join(map(self.value, limits))})"
        return self.text.name(argument)

    def end(self, segment: Segment, indent: str) -> None:
        """The call of the graph; what stands behind all that may fail is kept for then."""
        text, leaf = self.text, segment.leaf
        assert leaf is not None
        lines: list[str] = []
        self.lines = lines
        for new, old in leaf.aliases.items():  # of a capture that shares the beginning
            if old in self.names:
                self.names[new] = self.names[old]
        self.env = False
        self.run(segment)
        lines.append(f"{text.name(self.program)}.calls += 1")
        mark = len(lines)
        joint = leaf.joint
        if joint is not None and joint.freed and joint.fresh:
            outs, ins = (self.row(map(self.names.get, part)) for part in (joint.outs, joint.ins))
            lines.append(f"{text.name(freed)}({outs}, {ins})")
        elif joint is not None:
            outs, *rest = (
                self.row(map(self.names.get, part)) for part in (joint.outs, joint.saved, joint.ins)
            )
            given = ", ".join((text.name(joint), outs, *rest))
            lines.append(f"{outs} = {text.name(attached)}({given})")
            mark = len(lines)
        result = self.built(leaf.result)
        values = [self.built(build) for _, build in leaf.effects]
        left = [self.written(write, value) for (write, _), value in zip(leaf.effects, values)]
        if self.env:
            wanted = {*leaf.needs(), *(new for new in leaf.aliases if new in self.names)}
            pairs = [f"{text.name(node)}: {self.names[node]}" for node in wanted]
            lines.insert(mark, f"env = {{{', '.join(pairs)}}}")
        if self.several:
            lines.append(f"end = {len(self.left)}")
        self.left.append([*left, f"return {result}"])
        for line in lines:
            text.line(indent + line)

    def input(self, origin: Origin) -> str:
        kind, place = origin.kind, origin.place
        if kind == "constant":
            return self.text.name(origin.value)
        if kind == "leaf":
            return f"leaves[{place}]"
        if kind == "item":
            return read(self.text, place)
        return f"leaves[{place}]._grad" if kind == "leaf grad" else f"{self.text.name(place)}._grad"

    def run(self, segment: Segment) -> None:
        """The call of the graph, below autograd and autocast."""
        text = self.text
        apart = self.program.apart
        given = "".join(
            f"{self.names[node]}{'.data' if node in apart else ''}, " for node in segment.inputs
        )
        made = "".join(f"{self.named(node)}, " for node in segment.outputs) or "_"
        run = segment.later(self.program.compiler)
        masked = f"{text.name(call_masked)}({text.name(run)}, ({given}), {OFF})"
        direct = getattr(run, "direct", None)
        if direct is None:
            self.lines.append(f"{made} = {masked}")
            return
        self.lines.append(f"made = {text.name(direct)}({given})")
        self.lines.append(f"{made} = {masked} if made is NotImplemented else made")

    def row(self, parts: Iterable[Any]) -> str:
        return f"({''.join(f'{part}, ' for part in parts)})"

    def built(self, build: Any) -> str:
        """The text of a value; what is to be looked up in ``env`` is built before."""
        if isinstance(build, Constant):
            return self.text.name(build.value)
        if isinstance(build, Taken):
            if build.alias and build not in self.names:
                alias = self.names[build] = f"b{next(self.count)}"
                self.lines.append(f"{alias} = {self.names[build.node]}.{build.alias}")
            return self.names[build if build.alias else build.node]
        if isinstance(build, Row) and build.kind is tuple and all(map(_plain, build.parts)):
            return self.row(map(self.built, build.parts))
        self.env = True
        name = f"b{next(self.count)}"
        self.lines.append(f"{name} = {self.text.name(build)}(env)")
        return name

    def written(self, write: Any, value: str) -> str:
        """The text that writes a value to its place."""
        text = self.text
        if isinstance(write, Gradient):
            place = write.target
            holder = f"leaves[{place}]" if isinstance(place, int) else text.name(place)
            return f"{holder}._grad = {value}"
        record = getattr(write, "__self__", None)
        if isinstance(record, Record) and record.kind == "item" and type(record.holder) is dict:
            if value != text.name(MISSING):
                return f"{text.name(record.holder)}[{text.key(record.key)}] = {value}"
        if hasattr(write, "write"):
            return f"{text.name(write)}.write(leaves, containers, {value})"
        return f"{text.name(write)}({value})"


def _plain(build: Any) -> bool:
    return isinstance(build, (Constant, Taken))
