"""A compiled graph as a function: programs for the layouts it met, and what Python does between."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from coredispatch.plugin import Operator, Value, bump_version, from_raw, passes
from coredispatch.plugin import graph as graphs

from .. import threads
from .expanding import expand
from .expressions import POINTWISE
from .layout import Unfit
from .machine import execute
from .planning import Plan, Segment, call_of

__all__ = ["Compiled"]

#: layouts of the inputs for which programs are kept
_MOST = 8


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
        for program in self.ready:
            if program.free.acquire(blocking=False):
                try:
                    done, result = program.run(inputs)
                finally:
                    program.free.release()
                if done:
                    return result
        return self.anew(inputs)

    def anew(self, inputs: tuple[Any, ...]) -> Any:
        """Run a new program, for a layout that was not there yet or while the others run."""
        try:
            program = self.prepare(inputs)
        except Unfit:  # values that are no arrays: operators know what to do with them
            return graphs.run(self.graph, *inputs, root=self.graph.owning_module)
        with program.free:
            done, result = program.run(inputs)
        if not done:
            raise RuntimeError("a program made for these inputs does not fit them")
        return result

    def prepare(self, inputs: tuple[Any, ...]) -> _Program:
        """A new program for inputs that are laid out like these; it is kept."""
        graph = passes.inference.infer_values(self.graph, inputs)
        graph = passes.inference.infer_values(_folded(expand(graph)), inputs)
        accepts = lambda node: call_of(node) is not None  # noqa: E731
        graph = passes.fusion.fuse(graph, POINTWISE, accepts)
        program = _Program(passes.memory.plan(graph, _planned), inputs, self.graph)
        with self.lock:
            self.ready = [program, *self.ready[: _MOST - 1]]
        return program


def _planned(node: Any) -> bool:
    """Whether a node's result is made by the program, so that it can lie in its block."""
    return "group" in node.meta or getattr(node.target, "name", "") in (
        "matmul",
        "linear",
        "linear_weight_grad",
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
    count = iter(range(1 << 30))

    def keep(tensor: Any) -> str:
        name = f"_constant_{next(count)}"
        setattr(owner, name, tensor)
        return name

    graph.owning_module = owner
    return passes.folding.fold_constants(graph, keep)


class _Program:
    """One plan, and how to run it."""

    def __init__(self, graph: Any, inputs: tuple[Any, ...], original: Any) -> None:
        self.original = original
        self.plan = Plan(graph, inputs)
        self.graph = self.plan.graph
        self.free = threading.Lock()
        self.execute = execute()
        example = from_raw(np.empty(0, np.float32), backend="cpu")
        self.tensor, self.keys = type(example), example.keys
        self.output = graph.output_node().args[0]
        self.fixed: dict[Any, Any] = {}
        self.places = [n for n in graph.nodes if n.op == "placeholder"]
        self.dynamic = [
            (node, self.plan.numbers.get(node, []))
            for node in graph.nodes
            if node in self.plan.numbers
        ]
        self.getters = [self.getter(slot) for slot in self.plan.slots]
        self.nodes = {index: node for node, index in self.plan.slot_of.items()}
        self.run = self.shortcut() or self.run_in_parts

    def getter(self, slot: Any) -> Any:
        """For a slot: ``(kind, what)``."""
        if slot.origin == "input":
            return (0, slot.what)
        if slot.origin == "attribute":
            return (1, slot.what)
        if slot.origin == "output":
            return (2, (slot.array.shape, slot.array.dtype))
        return (3, slot.array.dtype)

    def shortcut(self) -> Any:
        """``run`` as one straight function, where one segment does everything; else None."""
        work, slots = self.plan.work, self.plan.slots
        if len(work) != 1 or not isinstance(work[0], Segment) or work[0].arrays != len(slots):
            return None
        text = _Text(self)
        for node, words in self.dynamic:
            held = text.name(node)
            text.lines += [f"    floats[{at}] = {held}" for at in words]
        arrays, bumps = [], []
        for k, (kind, what) in enumerate(self.getters):
            if kind == 2:
                shape, dtype = map(text.constant, what)
                text.lines.append(f"    m{k} = empty({shape}, {dtype})")
                arrays.append(f"m{k}")
                continue
            held = f"inputs[{what}]" if kind == 0 else text.constant(what)
            arrays.append(f"{held}.raw")
            if k in self.plan.written:
                bumps.append(f"    bump({held})")
        given = ", ".join(map(str, work[0].given))
        text.lines += [
            f"    arrays = ({', '.join(arrays)},)",
            f"    status = execute({given}, id(arrays), address())",
            "    if status:",
            "        return failed(status, inputs)",
            *bumps,
        ]
        try:
            result = text.name(self.output)
        except KeyError:  # something that only the other way knows
            return None
        return text.function(f"    return True, {result}")

    def failed(self, status: int, inputs: tuple[Any, ...]) -> tuple[bool, Any]:
        """Another layout; or a step that refused: then the operators say what is wrong."""
        if status > 0:
            return False, None
        return True, graphs.run(self.original, *inputs, root=self.original.owning_module)

    def enter_numbers(self, inputs: tuple[Any, ...]) -> None:
        """Put the numbers of this call among the arguments of kernels."""
        env = dict(zip(self.places, inputs, strict=True))
        for node, words in self.dynamic:
            value = self.value(node, env)
            for at in words:
                self.plan.floats[at] = value

    def run_in_parts(self, inputs: tuple[Any, ...]) -> tuple[bool, Any]:
        """Segments, and what Python does between them."""
        env: dict[Any, Any] = dict(zip(self.places, inputs))
        arrays: list[Any] = []
        self.enter_numbers(inputs)
        results: list[Any] = []
        for entry in self.plan.work:
            if isinstance(entry, Segment):
                self.fill(arrays, entry.arrays, inputs, env, results)
                given = tuple(arrays)
                status = self.execute(*entry.given, id(given), threads.address())
                if status:
                    return self.failed(status, inputs)
            else:
                self.python(entry, env, results)
        self.fill(arrays, len(self.getters), inputs, env, results)
        for slot in self.plan.written:
            kind, what = self.getters[slot]
            if kind < 2:
                bump_version(inputs[what] if kind == 0 else what)
        return True, self.returned(self.output, env)

    def fill(self, arrays: Any, count: int, inputs: Any, env: Any, results: Any) -> None:
        """The arrays of the first ``count`` slots."""
        for index in range(len(arrays), count):
            kind, what = self.getters[index]
            if kind == 0:
                arrays.append(inputs[what].raw)
            elif kind == 1:
                arrays.append(what.raw)
            elif kind == 2:
                made = np.empty(*what)
                arrays.append(made)
                env[self.nodes[index]] = self.tensor(made, self.keys)
            else:
                arrays.append(results[sum(1 for k, _ in self.getters[:index] if k == 3)])

    def python(self, node: Any, env: Any, results: list[Any]) -> None:
        """Run a node in Python."""
        args, kwargs = graphs.map_arg((node.args, node.kwargs), lambda n: self.value(n, env))
        if node.op == "call_method":
            value = getattr(args[0], node.target)(*args[1:], **kwargs)
        elif node.op == "call_module":
            value = self.graph.owning_module.get_submodule(node.target)(*args, **kwargs)
        else:
            value = node.target(*args, **kwargs)
        env[node] = value
        if isinstance(node.target, Operator) and node.target.mutates and not node.users:
            return
        for part in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(part, Value) and not (
                isinstance(node.target, Operator) and node.target.mutates
            ):
                results.append(np.ascontiguousarray(part.raw).reshape(part.raw.shape))  # type: ignore[attr-defined]

    def value(self, node: Any, env: Any) -> Any:
        """What a node stands for, as Python's code sees it."""
        if node in env:
            return env[node]
        if node in self.fixed:
            return self.fixed[node]
        if node.op == "get_attr":
            env[node] = self.plan.attribute(node)
            return env[node]
        place = self.plan.place_of(node)
        if place is not None:
            self.fixed[node] = self.tensor(place, self.keys)
            return self.fixed[node]
        known = node.meta.get("value")
        if isinstance(known, (int, float, bool)) and not self.plan.dynamic(node):
            return known
        if isinstance(node.target, Operator) and node.target.mutates:
            env[node] = self.value(node.args[0], env)
            return env[node]
        args, kwargs = graphs.map_arg((node.args, node.kwargs), lambda n: self.value(n, env))
        if node.op == "call_method":
            env[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
        else:
            env[node] = node.target(*args, **kwargs)
        return env[node]

    def returned(self, output: Any, env: Any) -> Any:
        """The graph's result."""
        return graphs.map_arg(output, lambda n: self.value(n, env))


class _Text:
    """The text of a function of one program; values get names as they are asked for."""

    def __init__(self, program: _Program) -> None:
        self.program, self.plan = program, program.plan
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.scope: dict[str, Any] = {
            "address": threads.address,
            "bump": bump_version,
            "empty": np.empty,
            "execute": program.execute,
            "failed": program.failed,
            "floats": self.plan.floats,
            "keys": program.keys,
            "tensor": program.tensor,
        }

    def function(self, last: str) -> Any:
        """``run(inputs)``."""
        exec("\n".join(["def run(inputs):", *self.lines, last]), self.scope)
        return self.scope["run"]

    def constant(self, value: Any) -> str:
        """A name for something that is there already."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def name(self, value: Any) -> str:
        """The text of an argument or a result. Raises KeyError for what it does not know."""
        if type(value) in (tuple, list):
            inside = "".join(f"{self.name(item)}, " for item in value)
            return f"({inside})" if type(value) is tuple else f"[{inside}]"
        if isinstance(value, (tuple, list, dict)):
            raise KeyError(value)
        if not hasattr(value, "graph"):
            return self.constant(value)
        if value not in self.names:
            text = self.computed(value)
            self.names[value] = f"v{len(self.names)}"
            self.lines.append(f"    {self.names[value]} = {text}")
        return self.names[value]

    def computed(self, node: Any) -> str:
        program, plan = self.program, self.plan
        if node.op == "placeholder":
            return f"inputs[{program.places.index(node)}]"
        if node in plan.slot_of:
            index = plan.slot_of[node]
            kind, what = program.getters[index]
            return f"tensor(m{index}, keys)" if kind == 2 else self.constant(what)
        known = node.meta.get("value")
        if isinstance(known, (int, float)):
            if not plan.dynamic(node):
                return self.constant(known)
        elif not isinstance(node.target, Operator) or not node.target.view:
            if isinstance(node.target, Operator) and node.target.mutates:
                return self.name(node.args[0])
            raise KeyError(node)
        if node.op != "call_function":
            raise KeyError(node)
        given = [self.name(argument) for argument in node.args]
        given += [f"{key}={self.name(argument)}" for key, argument in node.kwargs.items()]
        return f"{self.constant(node.target)}({', '.join(given)})"
