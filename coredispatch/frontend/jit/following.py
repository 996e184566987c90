"""Following a compiled program without data, node by node: branches and loops stay in the graph.

``export`` runs modules on tensors without data, and the Python text of a compiled program would ask
them for values at its first ``if``. Here a condition that is known picks its branch, and one that
is not makes an ``if`` node of both; loops likewise. What differs between two branches, or from turn
to turn, becomes tensors: numbers too (:mod:`~coredispatch.frontend.jit.unknown`).
"""

from __future__ import annotations

import builtins
import operator
from typing import Any

from coredispatch.frontend.jit.branching import branch
from coredispatch.frontend.jit.copied_rows import CopiedRows
from coredispatch.frontend.jit.failing import located, shown_line
from coredispatch.frontend.jit.looping import loop
from coredispatch.frontend.jit.module_hooks import HOOKS, script_hooks
from coredispatch.frontend.jit.runtime import fail, restoring, unwrap
from coredispatch.frontend.jit.unknown import (
    Maybe,
    Range,
    Unknown,
    as_number,
    computed,
    holds_unknown,
    operands,
    read,
    there,
    write,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, Node, map_arg
from coredispatch.graph.abstract import AbstractRecorder
from coredispatch.graph.graph import GraphError
from coredispatch.graph.objects import get_field, set_field
from coredispatch.graph.targets import AUGMENTED, MUTATORS
from coredispatch.plugin import Operator, default_dtype
from coredispatch.registry import TABLE

__all__ = ["Follower", "follow"]

_WRITERS = {operator.setitem, operator.delitem, *AUGMENTED}
_CASTS = (bool, int, float)
#: functions that put numbers into lists, tuples and dicts and take them out, and look at none
_CONTAINERS = {
    operator.getitem, operator.setitem, operator.delitem, list, tuple, dict, len, reversed,
    enumerate, zip, unwrap,
}  # fmt: skip


def follow(recorder: AbstractRecorder, graph: Graph, owner: Any, args: tuple[Any, ...]) -> Any:
    """What the program gives for ``args``, tensors without data among them.

    Raises :class:`~coredispatch.graph.GraphError` with the user's line for what has no form in a
    graph without Python.
    """
    run = restoring(Follower(recorder, owner).run)
    line = recorder.line
    try:
        result = run(graph, args)
    finally:
        recorder.line = line
    last = graph.output_node()
    if last is not None and "Optional" not in str(last.type):
        result = there(result)
    if line is None and holds_unknown(result):
        raise GraphError(
            f"the program returns {result!r}, and an exported program returns tensors for what is "
            "computed",
            fix="return tensors: do not call int(), float(), bool() or item() on them, nor return "
            "None in their place",
        )
    return result


class Follower:
    """Runs the graphs of one module.

    Attributes:
        foreign: lists and dicts of modules and objects that a branch or a loop reads, by id: there
            is one of each for both ways, so that none may write to it.
        rows: what was read from tensors at numbers that are not known.
    """

    def __init__(
        self, recorder: AbstractRecorder, owner: Any, rows: CopiedRows | None = None
    ) -> None:
        self.recorder, self.owner = recorder, owner
        self.foreign: dict[int, Any] = {}
        self.rows = CopiedRows() if rows is None else rows

    def run(self, graph: Graph, args: tuple[Any, ...]) -> Any:
        """The output of a graph of the program."""
        env: dict[Node, Any] = {}
        places = graph.placeholders
        for number, place in enumerate(places):
            if str(place.target).startswith("*"):
                env[place] = tuple(args[number:])
            else:
                env[place] = args[number] if number < len(args) else place.args[0]
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            given, named = map_arg((node.args, node.kwargs), env.__getitem__)
            if node.op == "output":
                self.rows.used(given[0])
                return given[0]
            before = self.recorder.line
            self.recorder.line = node.meta.get("source", before)
            try:
                rows = self.rows.used((given, named))
                env[node] = self.step(node, given, named)
                self.rows.written(node, rows)
            except Exception as error:
                at = self.recorder.line
                raise located(error, lambda: [] if at is None else shown_line(*at))  # noqa: B023, B904
            finally:
                self.recorder.line = before
        return None

    def step(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of one node."""
        if node.op.startswith("call") and holds_unknown((args, kwargs)):
            if node.target in (operator.is_, operator.is_not) and isinstance(args[0], Maybe):
                return _asks_for_none(node.target, *args)
            if not _holds(args[0], node.target):
                args, kwargs = there((args, kwargs))
        if args and id(args[0]) in self.foreign and _writes(node.target):
            raise GraphError(
                "a list or dict of a module or an object is written to in a branch or loop that "
                "depends on values of tensors or open sizes",
                fix="keep what changes in a variable of the program",
            )
        if node.op == "call_function":
            found = self.function(node.target, args, kwargs)
            return self.read(found) if node.target is get_field else found
        if node.op == "call_method":
            return self.method(str(node.target), args, kwargs)
        if node.op == "if":
            return branch(self, node, args)
        if node.op == "loop":
            return loop(self, node, args)
        path = str(node.target)
        if node.op == "get_attr":
            return self.read(self.attribute(path))
        if node.op == "set_attr":
            self.assign(path, args[0])
            return None
        return self.module(self.attribute(path), args, kwargs)

    def attribute(self, path: str) -> Any:
        """The attribute of the module at a path."""
        return operator.attrgetter(path)(self.owner)

    def read(self, value: Any) -> Any:
        """A value of a module or an object: its lists and dicts are foreign in a branch or loop."""
        if self.recorder.scopes and isinstance(value, (list, dict, tuple)):
            self.foreign[id(value)] = value
            for item in value.values() if isinstance(value, dict) else value:
                self.read(item)
        return value

    def assign(self, path: str, value: Any) -> None:
        """A write to an attribute, which branches and loops of a graph cannot have."""
        above, _, last = path.rpartition(".")
        if value is self.attribute(path):  # it was written in place
            return
        if self.recorder.scopes or holds_unknown(value):
            raise GraphError(
                f"the attribute {path!r} is assigned what depends on values of tensors, and an "
                "exported program has no attributes to assign to",
                fix="write to a buffer in place (copy_, add_), or return the value",
            )
        setattr(self.attribute(above) if above else self.owner, last, value)

    def module(self, child: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule."""
        if not holds_unknown((args, kwargs)):
            return child(*args, **kwargs)
        graph = getattr(child, "_graph", None)
        if graph is None or kwargs or any(script_hooks(child, kind) for kind in HOOKS):
            raise GraphError(
                f"{type(child).__name__} is called with a number that is computed when the program "
                "runs",
                fix="give it a tensor",
            )
        return Follower(self.recorder, child, self.rows).run(graph, args)

    def function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator, or of a function of Python's."""
        first = args[0] if args else None
        if target in _CASTS and isinstance(first, Tensor):
            return as_number(first, target)
        if target is builtins.len and isinstance(first, Tensor) and first.ndim:
            return first.shape[0]
        if target is builtins.range:
            return self.range(args)
        if isinstance(first, Range):
            return first.count() if target is builtins.len else first.at(args[1])
        if target is fail and self.recorder.scopes:
            raise GraphError(
                f"the program raises {args[0]} in a branch that depends on values of tensors, and "
                "an exported program has no errors of its own",
                fix="check the values before, outside of the program",
            )
        if target is set_field and self.recorder.scopes:
            raise GraphError(
                f"the field {args[1]!r} of an object is assigned in a branch or loop that depends "
                "on values of tensors or open sizes",
                fix="keep what changes in a variable of the program: a tensor or a number",
            )
        if not holds_unknown((args, kwargs)):
            return target(*args, **kwargs) if kwargs else computed(target, args)
        if target is operator.getitem and isinstance(first, Tensor):
            row = read(first, args[1])
            self.rows.add(row, first)
            return row
        if target is operator.setitem and isinstance(first, Tensor):
            return self.write(*args)
        if getattr(target, "__name__", "") == "tensor" and isinstance(first, Unknown):
            return self.tensor(first, **kwargs)
        if isinstance(target, Operator):
            args, kwargs = operands(target, target.name, args, kwargs)
            return target(*args, **kwargs)
        if any(isinstance(value, Tensor) for value in args):
            args, kwargs = operands(None, getattr(target, "__name__", ""), args, kwargs)
            return target(*args, **kwargs)
        if target in _CONTAINERS and not holds_unknown(args[1:2]):
            return target(*args, **kwargs)
        return computed(target, (*args, *kwargs.values()))

    def range(self, args: tuple[Any, ...]) -> Any:
        """``range``, with ends that may be open."""
        return range(*args) if all(type(end) is int for end in args) else Range(*args)

    def write(self, tensor: Tensor, index: Any, value: Any) -> None:
        """``tensor[index] = value``."""
        if holds_unknown(index):
            write(tensor, index, value)
        else:
            tensor[index] = value.tensor.to(tensor.dtype)

    def tensor(
        self, number: Unknown, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        """``tensor(number)``."""
        if dtype is None:
            dtype = default_dtype() if number.kind is float else number.tensor.dtype
        made = number.tensor.to(dtype).clone()
        return made if device is None else made.to(device)

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method of the first argument."""
        this, *others = args
        if isinstance(this, Tensor):
            if name == "item" or name == "tolist" and this.ndim == 0:
                return as_number(this)
            if holds_unknown((others, kwargs)):
                op = TABLE.snapshot.ops.get(name)
                args, kwargs = operands(op, name, args, kwargs)
                this, *others = args
        elif holds_unknown(args) and not _keeps(this, name):
            raise GraphError(
                f"{type(this).__name__}.{name}() is called with {args!r}",
                fix="compute with tensors there",
            )
        return getattr(this, name)(*others, **kwargs)


def _asks_for_none(target: Any, value: Maybe, other: Any) -> Any:
    """``value is other`` of what may be None."""
    if other is not None:
        raise GraphError("what may be None when the program runs is compared by `is`")
    if target is operator.is_not:
        return value.present
    return computed(operator.not_, (value.present,))


def _holds(first: Any, target: Any) -> bool:
    """Whether a call puts values into a list, tuple or dict, or takes them out, as they are."""
    if isinstance(first, Maybe):
        return False
    return target in _CONTAINERS or isinstance(target, str) and _keeps(first, target)


def _writes(target: Any) -> bool:
    """Whether a call changes the list or dict that is its first argument."""
    return target in MUTATORS if isinstance(target, str) else target in _WRITERS


def _keeps(this: Any, name: str) -> bool:
    """Whether a method of a list or dict takes a number without looking at it."""
    return (
        isinstance(this, list)
        and name in ("append", "insert", "extend", "copy", "clear")
        or (
            isinstance(this, dict)
            and name in ("values", "items", "keys", "copy", "update", "clear")
        )
    )
