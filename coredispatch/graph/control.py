"""``cond`` and ``while_loop`` of tensors without data: both ways are followed, into graphs.

The functions run once each, on stand-ins. What they use of the program around them (tensors, open
sizes, parameters) becomes an input of their graph, beside the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.graph.abstract import Abstract, AbstractRecorder, info_of_value
from coredispatch.graph.graph import GraphError
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Value

__all__ = ["differs", "record_branch", "record_loop", "recorder_of"]


def recorder_of(predicate: Any) -> AbstractRecorder | None:
    """What records the program that computed ``predicate``; None where it has data."""
    found = Abstract.of(predicate)
    return None if found is None else found.recorder  # type: ignore[return-value]


def record_branch(
    predicate: Any,
    then: Callable[..., Any],
    otherwise: Callable[..., Any],
    operands: Any,
    alike: Callable[[Any, Any], tuple[Callable[[], Any], Callable[[], Any]]] | None = None,
) -> Any:
    """An ``if`` node, and its result as tensors without data.

    ``alike`` brings the two results into one form: it is called with both, and gives a function for
    each, which is called where its branch is written.

    Raises :class:`GraphError` where the two results differ in structure, shape or dtype.
    """
    recorder = recorder_of(predicate)
    assert recorder is not None
    scopes, results = [], []
    for function in (then, otherwise):
        with recorder.inside() as scope:
            results.append(function(*_entered(recorder, operands)))
        scopes.append(scope)
    settled = None if alike is None else alike(*results)
    made = []
    for number, scope in enumerate(scopes):
        with recorder.inside(scope):
            result = results[number] if settled is None else settled[number]()
            recorder.graph.output(recorder.argument(result))
        made.append((scope, _infos(result)))
    (one, left), (other, right) = made
    if differs(left, right):
        raise GraphError(
            f"the branches of cond give {left} and {right}",
            fix="return tensors of one shape and dtype, in one structure",
        )
    for scope, further in ((one, other), (other, one)):
        for node in further.lifted:
            scope.lift(node)
    for node in reversed(one.lifted):  # the inputs of both stand in the order of the first one's
        first, place = other.graph.placeholders[0], other.lifted[node]
        if place is not first:
            first.prepend(place)
    given = recorder.here((recorder.argument(predicate), *one.lifted))
    node = recorder._noted(recorder.graph.branch(given[0], one.graph, other.graph, given[1:]))
    return recorder.standing(node, left)


def record_loop(
    predicate: Any,
    test: Callable[..., Any],
    body: Callable[..., Any],
    carried: tuple[Any, ...],
    trips: Any = None,
    recorder: AbstractRecorder | None = None,
) -> tuple[Any, ...]:
    """A ``loop`` node, and what it carries at its end as tensors without data.

    ``predicate`` is what ``test`` gave for ``carried``; ``trips`` is the greatest number of turns:
    a number, a size or a tensor. ``recorder`` is needed where ``predicate`` is a bool. Raises
    :class:`GraphError` for a number among ``carried``, and for what changes its shape or dtype in
    a turn.
    """
    recorder = recorder_of(predicate) if recorder is None else recorder
    assert recorder is not None
    for index, value in enumerate(carried):
        if not isinstance(value, Value):
            raise GraphError(
                f"while_loop carries {value!r} (carried_inputs[{index}]), which no turn could "
                "change in a program that is written before it runs",
                fix=f"carry a tensor: cd.tensor({value!r})",
            )
    infos = [_info(value) for value in carried]
    start = recorder.argument(carried)
    with recorder.inside() as scope:
        recorder.graph.placeholder("turn")
        places = [recorder.graph.placeholder("carried") for _ in carried]
        values = [recorder.tensor(place, info) for place, info in zip(places, infos)]
        found = body(*values)
        again = test(*found)
        ends = recorder.argument((again, *found))
    for index, (before, value) in enumerate(zip(infos, found)):
        if differs(before, after := _info(value)):
            raise GraphError(
                f"carried_inputs[{index}] of while_loop is {before}, and {after} after a turn",
                fix="keep the shape and the dtype of what a loop carries",
            )
    scope.graph.output((*ends, *scope.lifted.values()))
    first, going, *given = recorder.here((*recorder.argument((trips, predicate)), *scope.lifted))
    node = recorder.graph.loop(first, going, scope.graph, (*start, *given))
    recorder._noted(node)
    rest = tuple(node.meta.get("value") for node in scope.lifted)
    return recorder.standing(node, (*infos, *rest))[: len(carried)]  # type: ignore[no-any-return]


def _entered(recorder: AbstractRecorder, operands: Any) -> Any:
    """The operands inside of a branch: tensors of its own graph."""

    def leaf(value: Any) -> Any:
        found = Abstract.of(value)
        if found is None:
            return value
        return recorder.tensor(recorder.here(found.node), found.info)

    return map_aggregate(operands, leaf)


def _info(value: Any) -> Any:
    return info_of_value(value) if isinstance(value, Value) else value


def _infos(result: Any) -> Any:
    return map_aggregate(result, _info)


def differs(one: Any, other: Any) -> bool:
    """Whether two values differ in more than in their data."""
    if isinstance(one, ValueInfo) and isinstance(other, ValueInfo):
        if len(one.shape) != len(other.shape) or one.dtype is not other.dtype:
            return True
        return one.device != other.device or any(a != b for a, b in zip(one.shape, other.shape))
    if type(one) is not type(other):
        return True
    if isinstance(one, (tuple, list)):
        return len(one) != len(other) or any(map(differs, one, other))
    if isinstance(one, dict):
        return list(one) != list(other) or any(differs(one[key], other[key]) for key in one)
    return bool(one != other)
