"""A compiled graph as a function: programs for the layouts it met, and what Python does between."""

from __future__ import annotations

import itertools
import operator as py
import threading
from typing import Any

import numpy as np

from coredispatch.plugin import Device, Operator, bump_version, from_raw, passes
from coredispatch.plugin import graph as graphs

from .. import threads
from ..interrupts import interrupts_wait
from .calls import call_of
from .expanding import expand
from .expressions import POINTWISE
from .kernels import CONVOLUTIONS
from .layout import Unfit
from .machine import execute
from .memory import Segment
from .planning import Plan

__all__ = ["Compiled"]

#: layouts of the inputs for which programs are kept
_MOST = 8
#: functions of two numbers, as Python writes them
_SIGNS = {py.add: "+", py.sub: "-", py.mul: "*", py.truediv: "/", py.pow: "**"}


class Compiled:
    """A graph that runs as compiled loops. Called with what its placeholders stand for.

    It is specialised to how its inputs are laid out; for another layout, or other sizes, a new
    program is made of the same machine code.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.ready: list[_Program] = []
        self.lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        result = self._run(inputs, False)
        return self.anew(inputs) if result is NotImplemented else result

    def direct(self, *inputs: Any) -> Any:
        """The same by a program that calls no operator; NotImplemented where there is none."""
        return self._run(inputs, True)

    def _run(self, inputs: tuple[Any, ...], direct: bool) -> Any:
        for program in self.ready:
            if direct and program.calls_operators:
                continue
            if program.free.acquire(blocking=False):
                try:
                    done, result = program.run(inputs)
                finally:
                    program.free.release()
                if done:
                    return result
                if done is None:  # a step refused: the operators say what is wrong
                    return NotImplemented if direct else self._by_operators(inputs)
        return NotImplemented

    def _by_operators(self, inputs: tuple[Any, ...]) -> Any:
        return graphs.run(self.graph, *inputs, root=self.graph.owning_module)

    def anew(self, inputs: tuple[Any, ...]) -> Any:
        """Run a new program, for a layout that was not there yet or while the others run."""
        try:
            with interrupts_wait():
                program = self.prepare(inputs)
        except Unfit:  # values that are no arrays: operators know what to do with them
            return self._by_operators(inputs)
        with program.free:
            done, result = program.run(inputs)
        if done is None:
            return self._by_operators(inputs)
        if not done:
            raise RuntimeError("a program made for these inputs does not fit them")
        return result

    def prepare(self, inputs: tuple[Any, ...]) -> _Program:
        """A new program for inputs that are laid out like these; it is kept."""
        graph = passes.inference.infer_values(self.graph, inputs)
        for node in graph.nodes:
            for device in _devices((node.args, tuple(node.kwargs.values()))):
                if device.type != "cpu":
                    raise Unfit(f"{node.name} is on {device}")
        graph = passes.common.eliminate_common_nodes(_folded(expand(graph)))
        graph = passes.inference.infer_values(graph, inputs)
        accepts = lambda node: call_of(node) is not None  # noqa: E731
        graph = passes.fusion.fuse(graph, POINTWISE, accepts)
        program = _Program(passes.memory.plan(graph, _planned), inputs)
        with self.lock:
            self.ready = [program, *self.ready[: _MOST - 1]]
        return program


def _devices(value: Any) -> list[Device]:
    """The devices among arguments."""
    if isinstance(value, (list, tuple)):
        return [device for part in value for device in _devices(part)]
    return [value] if isinstance(value, Device) else []


def _planned(node: Any) -> bool:
    """Whether a node's result is made by the program, so that it can lie in its block."""
    return "group" in node.meta or getattr(node.target, "name", "") in (
        "matmul",
        *CONVOLUTIONS,
        "linear",
        "linear_weight_grad",
        "max_pool",
        "max_pool_backward",
    )


class _Constants:
    """An object whose attributes are constants of a graph, beside those that it has already."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)


def _folded(graph: Any) -> Any:
    """The graph with what depends on nothing computed."""
    owner = _Constants(graph.owning_module)
    count = itertools.count()

    def keep(tensor: Any) -> str:
        name = f"_constant_{next(count)}"
        setattr(owner, name, tensor)
        return name

    graph.owning_module = owner
    return passes.folding.fold_constants(graph, keep)


class _Program:
    """One plan, and how to run it.

    Attributes:
        run: ``(True, result)`` of a call; ``(False, None)`` where the inputs are laid out
            otherwise than the plan's, ``(None, None)`` where a step refused.
        calls_operators: whether Python runs some of its nodes.
        free: held while the program runs: it has one block of memory.
    """

    def __init__(self, graph: Any, inputs: tuple[Any, ...]) -> None:
        self.plan = Plan(graph, inputs)
        self.free = threading.Lock()
        text = _Text(self.plan)
        self.run = text.function(graph.output_node().args[0])
        self.calls_operators = text.calls
        self.plan.inputs = ()  # the first call's: not to be kept


def _failed(status: int) -> tuple[bool | None, None]:
    """Another layout; or a step that refused."""
    return (False if status > 0 else None), None


def _dense(raw: Any) -> np.ndarray:
    """The array of a result of Python's, as the program expects it to lie."""
    return raw if raw.flags.c_contiguous else np.ascontiguousarray(raw)  # type: ignore[no-any-return]


class _Text:
    """A program's call as one straight Python function; values get names as they are asked for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls = False  # something that may be an operator
        self.places = [node for node in plan.graph.nodes if node.op == "placeholder"]
        example = from_raw(np.empty(0, np.float32), backend="cpu")
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.numbers = itertools.count()
        self.arrays: list[str] = []
        self.scope: dict[str, Any] = {
            "address": threads.address,
            "bump": bump_version,
            "dense": _dense,
            "empty": np.empty,
            "execute": execute(),
            "failed": _failed,
            "floats": memoryview(plan.floats),
            "keys": example.keys,
            "tensor": type(example),
        }

    def function(self, output: Any) -> Any:
        """``run(inputs)``."""
        self.made_by_python = {node for node in self.plan.work if hasattr(node, "graph")}
        self.waiting = dict(self.plan.numbers)
        for entry in self.plan.work:
            if isinstance(entry, Segment):
                self.enter_numbers()
                if entry is self.plan.work[0] and self.lines:
                    self.refused_by_numbers()
                self.segment(entry)
            else:
                self.python(entry)
        self.slots(len(self.plan.slots))
        for index in sorted(self.plan.written):
            slot = self.plan.slots[index]
            if slot.origin in ("input", "attribute"):
                self.lines.append(f"    bump({self.holder(slot)})")
        result = self.name(output)
        text = ["def run(inputs):", *self.lines, f"    return True, {result}"]
        exec("\n".join(text), self.scope)
        return self.scope["run"]

    def segment(self, entry: Segment) -> None:
        self.slots(entry.arrays)
        given = ", ".join(map(str, entry.given))
        self.lines += [
            f"    arrays = ({''.join(f'{array}, ' for array in self.arrays)})",
            f"    status = execute({given}, id(arrays), address())",
            "    if status:",
            "        return failed(status)",
        ]

    def refused_by_numbers(self) -> None:
        """Where arithmetic on numbers fails, the operators run up to it: they may write."""
        guarded = [f"    {line}" for line in self.lines]
        self.lines = ["    try:", *guarded, "    except Exception:", "        return None, None"]

    def enter_numbers(self) -> None:
        """Put the numbers that are known by now among the arguments of kernels."""
        for node in [node for node in self.waiting if self.is_known(node)]:
            held = self.name(node)
            self.lines += [f"    floats[{at}] = {held}" for at in self.waiting.pop(node)]

    def is_known(self, node: Any) -> bool:
        """Whether a number can be told before the steps that follow have run."""
        if node in self.made_by_python:
            return node in self.names
        return node.op == "placeholder" or all(map(self.is_known, node.all_input_nodes))

    def slots(self, count: int) -> None:
        """Names for the arrays of the first ``count`` slots."""
        for slot in self.plan.slots[len(self.arrays) : count]:
            name = f"a{len(self.arrays)}"
            if slot.origin == "output":
                shape, dtype = map(self.constant, (slot.array.shape, slot.array.dtype))
                text = f"empty({shape}, {dtype})"
                self.names[slot.what] = f"tensor({name}, keys)"
            elif slot.origin == "result":
                text = f"dense({self.result(slot.what)}.raw)"
            else:
                text = f"{self.holder(slot)}.raw"
            self.lines.append(f"    {name} = {text}")
            self.arrays.append(name)

    def holder(self, slot: Any) -> str:
        """The text of the tensor of a slot that comes from outside."""
        return f"inputs[{slot.what}]" if slot.origin == "input" else self.constant(slot.what)

    def result(self, what: Any) -> str:
        return f"{self.names[what[0]]}[{what[1]}]" if isinstance(what, tuple) else self.names[what]

    def python(self, node: Any) -> None:
        """A node that Python runs."""
        text = self.called(node)
        self.names[node] = f"v{next(self.numbers)}"
        self.lines.append(f"    {self.names[node]} = {text}")

    def constant(self, value: Any) -> str:
        """A name for something that is there already."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def name(self, value: Any) -> str:
        """The text of an argument or a result."""
        if hasattr(value, "_fields"):
            return f"{self.constant(type(value))}({', '.join(map(self.name, value))})"
        if type(value) in (tuple, list):
            inside = "".join(f"{self.name(item)}, " for item in value)
            return f"({inside})" if type(value) is tuple else f"[{inside}]"
        if isinstance(value, dict):
            pairs = (f"{key!r}: {self.name(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.name, (value.start, value.stop, value.step)))})"
        if not hasattr(value, "graph"):
            return self.constant(value)
        if value not in self.names or self.names[value].startswith("tensor("):
            text = self.names.get(value) or self.computed(value)
            self.names[value] = f"v{next(self.numbers)}"
            self.lines.append(f"    {self.names[value]} = {text}")
        return self.names[value]

    def computed(self, node: Any) -> str:
        """A value that no step of the program makes."""
        if node.op == "placeholder":
            return f"inputs[{self.places.index(node)}]"
        if node.op == "get_attr":
            return self.constant(self.plan.attribute(node))
        place = self.plan.place_of(node)
        if place is not None:
            return f"tensor({self.constant(place)}, keys)"
        known = node.meta.get("value")
        if isinstance(known, (int, float)) and not self.plan.dynamic(node):
            return self.constant(known)
        if isinstance(node.target, Operator) and node.target.mutates:
            return self.name(node.args[0])
        return self.called(node)

    def called(self, node: Any) -> str:
        given = [self.name(argument) for argument in node.args]
        given += [f"{key}={self.name(argument)}" for key, argument in node.kwargs.items()]
        if node.op == "call_method":
            self.calls = True
            return f"{given[0]}.{node.target}({', '.join(given[1:])})"
        if node.target in _SIGNS and len(given) == 2:
            return f"({given[0]} {_SIGNS[node.target]} {given[1]})"
        self.calls = True
        if node.op == "call_module":
            module = self.plan.graph.owning_module.get_submodule(node.target)
            return f"{self.constant(module)}({', '.join(given)})"
        return f"{self.constant(node.target)}({', '.join(given)})"
