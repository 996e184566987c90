"""Loops of a compiled program that is followed without data, as ``loop`` nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.jit.branching import (
    asked,
    condition_of,
    empty,
    fill,
    made,
    presence,
    same,
    shown,
)
from coredispatch.frontend.jit.unknown import Maybe, Unknown, as_tensor, kind_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Node
from coredispatch.graph.abstract import info_of_value
from coredispatch.graph.control import differs, record_loop
from coredispatch.graph.graph import GraphError
from coredispatch.graph.node import map_aggregate

if TYPE_CHECKING:
    from coredispatch.frontend.jit.following import Follower

__all__ = ["loop"]

#: a loop of this many turns is written out, if their number is known; a longer one where it must be
_FEW = 64


class _Varies(Exception):
    """Values that were taken to stay the same change in a turn."""

    def __init__(self, places: set[int]) -> None:
        self.places = places


class _Widened(Exception):
    """What is None before a turn is not after it: it may be None, then."""

    def __init__(self, ends: list[Any]) -> None:
        self.ends = ends


def _wider(before: Any, after: Any, device: Any) -> Any:
    """``before`` with what may be None in the place of what is, where ``after`` is not."""
    if before is None and after is not None:
        return Maybe(False, map_aggregate(empty(presence(after)[1], device), made))
    if isinstance(before, Maybe):
        return before
    if after is None:
        return Maybe(True, before)
    if isinstance(after, Maybe):
        return Maybe(True, _wider(before, after.value, device))
    if type(before) is tuple and type(after) is tuple and len(before) == len(after):
        return tuple(_wider(one, other, device) for one, other in zip(before, after))
    return before


def _fitted(before: Any, after: Any) -> Any:
    """``after`` in the form of ``before``, where that may be None.

    Raises TypeError where ``after`` may be None and ``before`` may not.
    """
    if isinstance(before, Maybe):
        present, value = presence(after)
        return Maybe(present, before.value if value is None else _fitted(before.value, value))
    if (before is None) is not (after is None) or isinstance(after, Maybe):
        raise TypeError
    if type(before) is tuple and type(after) is tuple and len(before) == len(after):
        return tuple(map(_fitted, before, after))
    return after


def loop(follower: Follower, node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A ``loop``: written out while it is known that it goes on, else a node."""
    trips, condition, *carried = args
    (body,) = node.graphs
    going = asked(condition)
    turn = 0
    if type(trips) is int and trips > _FEW and going is True:
        guards = len(follower.recorder.symbols.guards)
        try:
            return _recorded(follower, node, trips, going, carried, turn)
        except GraphError:  # its turns differ in more than tensors can hold
            del follower.recorder.symbols.guards[guards:]
    while isinstance(going, bool) and (trips is None or type(trips) is int):
        if not going or trips is not None and turn >= trips:
            return tuple(carried)
        again, *carried = follower.run(body, (turn, *carried))
        going, turn = asked(again), turn + 1
    if going is False:
        return tuple(carried)
    left = trips - turn if type(trips) is int else trips
    return _recorded(follower, node, left, going, carried, turn)


def _recorded(
    follower: Follower, node: Node, trips: Any, going: Any, carried: list[Any], turn: int
) -> tuple[Any, ...]:
    """A loop node for the turns from ``turn`` on."""
    recorder, (body,) = follower.recorder, node.graphs
    places = body.placeholders
    names = [str(place.target) for place in places]
    counted = bool(places[0].users)
    varying: set[int] = set()
    limit = trips.tensor if isinstance(trips, Unknown) else trips
    while True:
        leaves, form = _taken_apart(carried)
        owners = [name for name, value in zip(names[1:], carried) for _ in _taken_apart([value])[0]]
        run = _Turn(follower, body, leaves, form, owners, varying, counted)
        start = [as_tensor(turn, int, recorder.device)] if counted else []
        start += [run.held(leaves[place]) for place in sorted(varying)]
        try:
            ends = record_loop(condition_of(going), run.test, run, tuple(start), limit, recorder)
        except _Varies as told:
            varying = varying | told.places
            continue
        except _Widened as told:  # what is None before the first turn is none of the list or dict
            carried = [_wider(*pair, recorder.device) for pair in zip(carried, told.ends)]
            varying = set()
            continue
        break
    found = list(leaves)
    for place, value in zip(sorted(varying), ends[counted:]):
        found[place] = _like(leaves[place], value)
    for place, twin in run.twins.items():
        found[place] = found[twin]
    result = form(found)
    for before, after in zip(carried, result):
        _write_back(before, after)
    return tuple(
        before if isinstance(before, (list, dict)) else after
        for before, after in zip(carried, result)
    )


def _write_back(before: Any, after: Any) -> None:
    if isinstance(before, (list, dict)) and not same(before, after):
        fill(before, after)


def _like(before: Any, tensor: Tensor) -> Any:
    return tensor if isinstance(before, Tensor) else Unknown(tensor, kind_of(before) or int)


class _Turn:
    """One turn of a loop, on what it carries; ``test`` says whether another one follows."""

    def __init__(
        self,
        follower: Follower,
        body: Any,
        leaves: list[Any],
        form: Any,
        owners: list[str],
        varying: set[int],
        counted: bool,
    ) -> None:
        self.follower, self.body = follower, body
        self.leaves, self.form, self.owners = leaves, form, owners
        self.varying, self.counted = varying, counted
        self.again: Any = True
        self.twins: dict[int, int] = {}

    def test(self, *values: Any) -> Any:
        """The condition for the turn after the one that ran."""
        return condition_of(self.again)

    def held(self, value: Any) -> Tensor:
        """A leaf as a tensor that the loop can carry."""
        if isinstance(value, Tensor):
            return value
        kind = kind_of(value)
        assert kind is not None
        return as_tensor(value, kind, self.follower.recorder.device)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Raises :class:`_Varies` where more changes than was thought."""
        turn = Unknown(values[0], int, True) if self.counted else 0
        begun = list(self.leaves)
        for place, value in zip(sorted(self.varying), values[self.counted :]):
            begun[place] = _like(self.leaves[place], value)
        carried = self.form(begun)
        again, *ends = self.follower.run(self.body, (turn, *carried))
        self.again = asked(again)
        self._unaliased(carried, ends, begun)
        try:
            ends = list(map(_fitted, carried, ends))
        except TypeError:
            raise _Widened(ends) from None
        after, _ = _taken_apart(ends)
        if len(after) != len(begun):
            raise self._refused(self._resized(begun, ends), "changes its length in a turn")
        changed = {
            place
            for place in range(len(begun))
            if place not in self.varying and not same(begun[place], after[place])
        }
        for place in sorted(changed | self.varying):
            self._check(self.owners[place], begun[place], after[place])
        if changed:
            raise _Varies(changed)
        self._find_twins(after)
        made = [values[0] + 1] if self.counted else []
        return (*made, *(self.held(after[place]) for place in sorted(self.varying)))

    def _find_twins(self, after: list[Any]) -> None:
        """Flags that begin alike and are one after every turn: what holds for one holds for all."""
        first: dict[Any, int] = {}
        self.twins = {}
        for place in sorted(self.varying):
            value = after[place]
            if isinstance(value, Unknown):
                key = id(value), repr(self.leaves[place])
                if first.setdefault(key, place) != place:
                    if same(self.leaves[place], self.leaves[first[key]]):
                        self.twins[place] = first[key]

    def _check(self, name: str, before: Any, after: Any) -> None:
        if isinstance(before, Tensor) and isinstance(after, Tensor):
            fits = not differs(info_of_value(before), info_of_value(after))
        else:
            kind = kind_of(before)
            fits = kind is not None and kind is kind_of(after)
        if not fits:
            raise self._refused(name, f"is {shown(before)} before a turn and {shown(after)} after")

    def _resized(self, begun: Any, ends: Any) -> str:
        for place, before, after in zip(self.body.placeholders[1:], self.form(begun), ends):
            if len(_taken_apart([before])[0]) != len(_taken_apart([after])[0]):
                return str(place.target)
        return "a value"

    def _unaliased(self, carried: Any, ends: Any, begun: Any) -> None:
        """A list that is written to must be what the loop goes on with."""
        untouched = self.form(begun)
        for number, (value, end, was) in enumerate(zip(carried, ends, untouched)):
            if isinstance(value, (list, dict)) and end is not value and not same(value, was):
                name = str(self.body.placeholders[number + 1].target)
                raise self._refused(name, "is written to and replaced in one turn")

    def _refused(self, name: str, problem: str) -> GraphError:
        return GraphError(
            f"a loop whose number of turns depends on values or open sizes carries {name!r}, which "
            f"{problem}",
            fix="carry tensors that keep their shape and dtype and numbers; write to a tensor made "
            "before the loop instead of growing a list",
        )


def _taken_apart(values: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves of lists, tuples and dicts, and a function that puts others in their place."""
    leaves: list[Any] = []

    def walk(value: Any) -> Callable[[list[Any]], Any]:
        if isinstance(value, (list, tuple)):
            parts = [walk(item) for item in value]
            kind: Any = type(value)
            if hasattr(value, "_fields"):
                return lambda found: kind(*(part(found) for part in parts))
            return lambda found: kind(part(found) for part in parts)
        if isinstance(value, dict):
            named = {key: walk(item) for key, item in value.items()}
            return lambda found: {key: part(found) for key, part in named.items()}
        if isinstance(value, Maybe):
            present, content = walk(value.present), walk(value.value)
            return lambda found: Maybe(present(found), content(found))
        place = len(leaves)
        leaves.append(value)
        return lambda found: found[place]

    return leaves, walk(list(values))
