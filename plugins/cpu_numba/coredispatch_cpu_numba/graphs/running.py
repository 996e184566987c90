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
        scope: dict[str, Any] = {
            "execute": self.execute,
            "address": threads.address,
            "empty": np.empty,
            "bump": bump_version,
            "tensor": self.tensor,
            "keys": self.keys,
            "failed": self.failed,
            "enter_numbers": self.enter_numbers,
        }
        made, arrays, bumps, names = [], [], [], {}
        for k, (kind, what) in enumerate(self.getters):
            scope[f"w{k}"] = what
            holder = f"inputs[{what}]" if kind == 0 else f"w{k}"
            names[self.nodes[k]] = holder
            if kind == 2:
                scope[f"s{k}"], scope[f"d{k}"] = what
                made.append(f"    m{k} = empty(s{k}, d{k})")
                names[self.nodes[k]] = f"tensor(m{k}, keys)"
            arrays.append(f"m{k}" if kind == 2 else f"{holder}.raw")
            if k in self.plan.written and kind != 2:
                bumps.append(f"    bump({holder})")
        result = _written_out(self.output, names, scope)
        if result is None:
            return None
        numbers = ["    enter_numbers(inputs)"] if self.dynamic else []
        given = ", ".join(map(str, work[0].given))
        text = [
            "def run(inputs):",
            *numbers,
            *made,
            f"    arrays = ({', '.join(arrays)},)",
            f"    status = execute({given}, id(arrays), address())",
            "    if status:",
            "        return failed(status, inputs)",
            *bumps,
            f"    return True, {result}",
        ]
        exec("\n".join(text), scope)
        return scope["run"]

    def failed(self, status: int, inputs: tuple[Any, ...]) -> tuple[bool, Any]:
        """Another layout; or a step that refused: then the operators say what is wrong."""
        if status > 0:
            return False, None
        return True, graphs.run(self.original, *inputs, root=self.original.owning_module)

    def enter_numbers(self, inputs: tuple[Any, ...]) -> None:
        """Numbers of this call into the arguments of kernels."""
        env = dict(zip(self.places, inputs))
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


def _written_out(value: Any, names: dict[Any, str], scope: dict[str, Any]) -> str | None:
    """The text that makes a result of nodes with these names; None where one has no name."""
    if hasattr(value, "graph"):
        return names.get(value)
    if type(value) in (tuple, list):
        parts = [_written_out(item, names, scope) for item in value]
        if None in parts:
            return None
        inside = "".join(f"{part}, " for part in parts)
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    if isinstance(value, (dict, tuple, list, slice)):
        return None
    name = f"c{len(scope)}"
    scope[name] = value
    return name
