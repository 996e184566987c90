"""Branches of a compiled program that is followed without data, as ``if`` nodes."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.jit.unknown import (
    Maybe,
    Unknown,
    as_number,
    as_tensor,
    computed,
    kind_of,
    where,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Node
from coredispatch.graph.abstract import Abstract, info_of_value
from coredispatch.graph.control import differs, record_branch
from coredispatch.graph.graph import GraphError
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.symbols import Expression
from coredispatch.registry import TABLE

if TYPE_CHECKING:
    from coredispatch.frontend.jit.following import Follower

__all__ = ["asked", "branch", "condition_of", "empty", "fill", "made", "presence", "same", "shown"]


def asked(value: Any) -> bool | Unknown:
    """A condition: a bool where it is known."""
    if isinstance(value, Tensor):
        value = as_number(value, bool)
    if not isinstance(value, Unknown):
        return bool(value)
    return value if value.kind is bool else computed(bool, (value,))


def condition_of(condition: bool | Unknown) -> Any:
    """A condition as a graph has it."""
    if isinstance(condition, bool):
        return condition
    found = condition.tensor
    return found if Abstract.of(found) is not None else found.clone()


# ---- values of two ways --------------------------------------------------------------------------


class _Copies:
    """Copies of lists and dicts, so that what one way writes to them the other does not see."""

    def __init__(self, values: Any) -> None:
        self.originals: dict[int, Any] = {}
        self.pairs: list[tuple[Any, Any]] = []  # original and copy
        self.values = self._copied(values, {})

    def _copied(self, value: Any, known: dict[int, Any]) -> Any:
        if isinstance(value, tuple):
            items = [self._copied(item, known) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if not isinstance(value, (list, dict)):
            return value
        if id(value) not in known:
            made = known[id(value)] = copy.copy(value)
            self.originals[id(made)] = value
            self.pairs.append((value, made))
            keys = range(len(made)) if isinstance(made, list) else list(made)
            for key in keys:
                made[key] = self._copied(made[key], known)
        return known[id(value)]

    def refined(self, condition: Unknown, holds: bool) -> Any:
        """The values where it is known whether a condition holds; those in containers stay."""
        return tuple(
            value if isinstance(value, (list, dict)) else where(value, condition, holds)
            for value in self.values
        )

    def restored(self, value: Any) -> Any:
        """``value`` with the originals in the place of copies."""
        if id(value) in self.originals:
            return self.originals[id(value)]
        if isinstance(value, tuple):
            items = [self.restored(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, list):
            return [self.restored(item) for item in value]
        if isinstance(value, dict):
            return {key: self.restored(item) for key, item in value.items()}
        return value

    def contents(self) -> list[Any]:
        """What the copies hold now, in the order of the originals."""
        return [
            [self.restored(item) for item in made]
            if isinstance(made, list)
            else {key: self.restored(item) for key, item in made.items()}
            for _, made in self.pairs
        ]


def fill(container: Any, contents: Any) -> None:
    """Make ``container`` hold what the program wrote to it."""
    if isinstance(container, list):
        container[:] = contents
    else:
        container.clear()
        container.update(contents)


def same(one: Any, other: Any) -> bool:
    """Whether two values are known to be one."""
    if one is other:
        return True
    if isinstance(one, Expression) and isinstance(other, Expression):
        return bool(one.terms == other.terms)
    if isinstance(one, (Tensor, Unknown, Expression)) or type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    try:
        return bool(one == other)
    except Exception:
        return False


class _Empty:
    """A tensor that stands where None is: nobody reads it."""

    def __init__(self, info: Any, device: Any) -> None:
        self.info, self.device = info, device

    def made(self) -> Tensor:
        """It, in the graph that is being written."""
        info = self.info
        zeros: Tensor = TABLE.operator("full")(
            tuple(info.shape), 0, dtype=info.dtype, device=info.device
        )
        return zeros


def made(value: Any) -> Any:
    return value.made() if isinstance(value, _Empty) else value


def _info(value: Any) -> Any:
    return value.info if isinstance(value, _Empty) else info_of_value(value)


def empty(value: Any, device: Any) -> Any:
    """What stands for None where the other way has ``value``."""

    def leaf(item: Any) -> Any:
        if isinstance(item, Maybe):
            return Maybe(False, empty(item.value, device))
        if isinstance(item, Tensor):
            return _Empty(info_of_value(item), device)
        kind = kind_of(item)
        return item if kind is None else kind(0)

    return map_aggregate(value, leaf)


def presence(value: Any) -> tuple[Any, Any]:
    """Whether a value is there, and the value."""
    return (value.present, value.value) if isinstance(value, Maybe) else (value is not None, value)


def shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}"
    if isinstance(value, _Empty):
        return f"a tensor of shape {tuple(value.info.shape)}, {value.info.dtype}"
    if isinstance(value, (list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)


class _Joined:
    """Two values brought together leaf by leaf: what differs comes out of the graph, in order."""

    def __init__(self, condition: Unknown, device: Any) -> None:
        self.condition, self.device = condition, device
        self.flags: dict[bool, Any] = {True: condition}
        self.left: list[Callable[[], Tensor]] = []
        self.right: list[Callable[[], Tensor]] = []

    def join(self, one: Any, other: Any) -> Callable[[Any], Any]:
        """A function that takes the outputs and gives the value."""
        if same(one, other) and not isinstance(one, (list, dict)):
            return lambda outputs: one
        if isinstance(one, (Tensor, _Empty)) and isinstance(other, (Tensor, _Empty)):
            if differs(_info(one), _info(other)):
                raise self._refused(one, other)
            return self._output(lambda: made(one), lambda: made(other), lambda tensor: tensor)
        if isinstance(one, bool) and isinstance(other, bool):  # a flag is the condition itself
            return lambda outputs: self._flag(one)
        kind = kind_of(one)
        if kind is not None and kind is kind_of(other):
            return self._output(
                lambda: as_tensor(one, kind, self.device),
                lambda: as_tensor(other, kind, self.device),
                lambda tensor: Unknown(tensor, kind),
            )
        if one is None or other is None or isinstance(one, Maybe) or isinstance(other, Maybe):
            return self._maybe(one, other)
        if type(one) is type(other) and isinstance(one, (tuple, list)) and len(one) == len(other):
            parts = [self.join(a, b) for a, b in zip(one, other)]
            form: Any = type(one)
            if hasattr(one, "_fields"):
                return lambda outputs: form(*(part(outputs) for part in parts))
            return lambda outputs: form(part(outputs) for part in parts)
        if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
            named = {key: self.join(one[key], other[key]) for key in one}
            return lambda outputs: {key: part(outputs) for key, part in named.items()}
        raise self._refused(one, other)

    def _flag(self, one: bool) -> Any:
        if one not in self.flags:
            self.flags[one] = computed(operator.not_, (self.condition,))
        return self.flags[one]

    def _maybe(self, one: Any, other: Any) -> Callable[[Any], Any]:
        """Values that may be None, in either branch."""
        present, inside = zip(presence(one), presence(other))
        filled = [
            empty(inside[1 - i], self.device) if value is None else value
            for i, value in enumerate(inside)
        ]
        flag, value = self.join(*present), self.join(*filled)
        return lambda outputs: Maybe(flag(outputs), value(outputs))

    def _output(
        self, left: Any, right: Any, after: Callable[[Tensor], Any]
    ) -> Callable[[Any], Any]:
        place = len(self.left)
        self.left.append(left)
        self.right.append(right)
        return lambda outputs: after(outputs[place])

    def _refused(self, one: Any, other: Any) -> GraphError:
        return GraphError(
            f"an if that depends on values of tensors gives {shown(one)} in one branch and "
            f"{shown(other)} in the other",
            fix="let both branches give tensors of one shape and dtype, numbers of one type, or "
            "the same value",
        )


# ---- if ------------------------------------------------------------------------------------------


def branch(follower: Follower, node: Node, args: tuple[Any, ...]) -> Any:
    """An ``if``: the branch that its condition picks, or a node of both."""
    condition, given = asked(args[0]), tuple(args[1:])
    then, otherwise = node.graphs
    if isinstance(condition, bool):
        return follower.run(then if condition else otherwise, given)
    copies = [_Copies(given) for _ in node.graphs]
    joined = _Joined(condition, follower.recorder.device)
    after: list[Any] = []

    def way(number: int) -> Callable[[], Any]:
        values = copies[number].refined(condition, number == 0)
        return lambda: follower.run(node.graphs[number], values)

    def alike(one: Any, other: Any) -> Any:
        results = [side.restored(value) for side, value in zip(copies, (one, other))]
        after.append(joined.join(*results) if results[0] is not results[1] else results[0])
        for original, left, right in zip(
            (pair[0] for pair in copies[0].pairs), *(side.contents() for side in copies)
        ):
            if not (same(left, original) and same(right, original)):
                after.append((original, joined.join(left, right)))
        return (
            lambda: tuple(make() for make in joined.left),
            lambda: tuple(make() for make in joined.right),
        )

    outputs = record_branch(condition_of(condition), way(0), way(1), (), alike)
    result, *written = after
    for original, value in written:
        fill(original, value(outputs))
    return result(outputs) if callable(result) and not isinstance(result, Tensor) else result
