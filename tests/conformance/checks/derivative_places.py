"""Check 12, derivatives at single numbers and in large calls.

Random inputs meet neither 0 nor 1 nor each other, and small ones show no fault of size. Where the
derivative goes on from one side of a number to the other, it may not jump at the number itself;
and in a large call the gradient still says how the result moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import AutogradError, CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, elements, has_values, tensors_in
from ..subject import OpMetadata, Subject
from . import check
from .derivatives import _floating as floating_places
from .recorded_calls import RecordedCall as Recorded
from .recorded_calls import recorded_calls
from .values import decomposes

__all__ = ["STEP", "sides"]

#: the numbers that inputs are set to, where they lie among the other inputs
NUMBERS = (0.0, 1.0, -1.0, 2.0, 2.0**-30, -(2.0**-30))
#: how far the sides of a number lie from it, and the steepest derivative that is judged there
STEP, STEEP = 2.0**-20, 1e4
#: elements of one gradient that are looked at alone
SPOTS = 8
#: elements of what is large, and of the largest that is tried
LEAST, MOST = 200, 20_000


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        return
    op = metadata.op
    if op.samples is None or not op.differentiable or not has_values(op) or op.mutates:
        return
    if metadata.layouts or "float64" not in metadata.dtypes or "float64" not in subject.dtypes:
        return
    if op.kind != "primitive" and op.vjp_rule is None:
        return
    if not decomposes(op):
        yield Case(12, op.name, "float64", variant="numbers")
    yield Case(12, op.name, "float64", variant="large")


# ---- at 0, at 1, at ties ------------------------------------------------------------------------


@check(12, plan=_plan, variant="numbers")
def numbers(context: Context) -> None:
    """At 0, 1 and other whole numbers, at tiny ones and at ties the derivative does not jump."""
    rng = context.rng
    for sample, call in recorded_calls(context, 4):
        places = floating_places(sample)
        if len(places) != len(call.slots):
            continue
        incoming = [rng.normal(size=tuple(t.shape)) for t in call.results]
        for place, moved in _placed(sample, places, rng):
            sides(context, place, places.index(place), moved, incoming)
    if not context.asserted:
        raise NotRun("no sample has a derivative that goes on from side to side")


def sides(
    context: Context,
    place: int,
    number: int,
    moved: list[Any],
    incoming: list[Any],
    spots: int = SPOTS,
) -> None:
    """Assert that the gradient of what moves is, at a place, between those on its sides.

    ``spots`` elements that jump are looked at alone.
    """
    found = [s for s in (_gradients(context, s, incoming) for s in moved) if s is not None]
    if len(found) < len(moved):
        return
    context.sample = moved[0]
    if not _continuous([results for _, results in found]):
        return  # a result that jumps has no derivative there
    at, up, down = (np.array(gradients[number]) for gradients, _ in found)
    one_of_several = _shared(moved[0].args[place], found[0][1])
    for spot in np.argwhere(_jumps(at, up, down) & ~one_of_several)[:spots]:
        # Others that moved with it may have turned it off on both sides: alone it must not jump.
        alone = [_moved_alone(moved, place, tuple(spot), side) for side in (1, 2)]
        again = [_gradients(context, s, incoming) for s in alone]
        if None not in again:
            up[tuple(spot)], down[tuple(spot)] = (g[0][number][tuple(spot)] for g in again)
    at = np.where(one_of_several, (up + down) / 2, at)
    _expect_no_jump(context, number, at, up, down)


def _shared(array: Any, results: list[Any]) -> Any:
    """Which elements are the one result, as others are: they share its gradient.

    Each alone may move and leave the result to the others, as at a median.
    """
    if len(results) != 1 or results[0].shape != ():
        return np.zeros(np.shape(array), bool)
    same = np.asarray(array) == results[0]
    return same & (same.sum() > 1)


def _moved_alone(moved: list[Any], place: int, spot: tuple[int, ...], side: int) -> Any:
    """The sample with one element of one input where that side has it."""
    args = [*moved[0].args]
    args[place] = args[place].copy()
    args[place][spot] = moved[side].args[place][spot]
    return type(moved[0])(*args, **moved[0].kwargs)


def _placed(
    sample: Any, places: list[int], rng: np.random.Generator
) -> list[tuple[int, list[Any]]]:
    """The sample at the numbers, and on both sides of them, for each input that may move."""
    args, steps = [*sample.args], {}
    for place in places:
        array = np.array(args[place])
        low, high = array.min(), array.max()
        chosen = rng.random(array.shape) < 0.6
        fitting = [v for v in NUMBERS if low < v < high]
        other = next((args[p] for p in places if p < place and args[p].shape == array.shape), None)
        if fitting:
            array = np.where(chosen, rng.choice(fitting, array.shape), array)
        if other is not None and other.min() >= low and other.max() <= high:
            tied = rng.random(array.shape) < 0.2
            array, chosen = np.where(tied, other, array), chosen | tied
        elif not fitting:
            continue
        args[place] = np.asarray(array)
        steps[place] = np.where(chosen, STEP * rng.choice((-1.0, 1.0), array.shape), 0.0)
    found = []
    for moved, step in steps.items():  # two that move together may turn twice: copysign at (0, 0)
        sides = []
        for side in (0.0, 1.0, -1.0):
            given = [np.asarray(a + side * step) if i == moved else a for i, a in enumerate(args)]
            sides.append(type(sample)(*given, **sample.kwargs))
        found.append((moved, sides))
    return found


def _continuous(results: list[list[Any]]) -> bool:
    """Whether results on both sides of a place are nearly those at it."""
    at, *others = results
    with np.errstate(all="ignore"):
        return all(
            (np.abs(a - b) <= 1e-2 * (1 + np.abs(a))).all()
            for other in others
            for a, b in zip(at, other, strict=True)
        )


def _gradients(
    context: Context, sample: Any, incoming: list[Any]
) -> tuple[list[Any], list[Any]] | None:
    """The gradients and results of a call; None where it has none, or results of other shapes."""
    try:
        call = Recorded(context, context.placed(sample))
        if [tuple(t.shape) for t in call.results] != [g.shape for g in incoming]:
            return None
        return call.gradients(incoming), [context.subject.array(t) for t in call.results]
    except CoreDispatchError:
        return None


def _jumps(at: Any, up: Any, down: Any) -> Any:
    """Where a derivative is one thing on both sides of a place and another at it."""
    if at.dtype.kind != "f":
        return np.zeros(at.shape, bool)
    with np.errstate(all="ignore"):
        size = 1 + np.maximum(np.abs(up), np.abs(down))
        return _goes_on(up, down) & ~(np.abs(at - (up + down) / 2) < 1e-3 * size)


def _goes_on(up: Any, down: Any) -> Any:
    """Where a derivative is nearly the same on both sides of a place, and not steep."""
    with np.errstate(all="ignore"):
        size = 1 + np.maximum(np.abs(up), np.abs(down))
        return (np.abs(up - down) < 1e-4 * size) & (size < STEEP)


def _expect_no_jump(context: Context, number: int, at: Any, up: Any, down: Any) -> None:
    if at.dtype.kind != "f" or not _goes_on(up, down).any():
        return
    wrong = np.argwhere(_jumps(at, up, down))
    spot = tuple(wrong[0]) if len(wrong) else ()
    context.expect(
        not len(wrong),
        f"the gradient of argument {number} jumps at a single number: it is {at[spot]!s}, and "
        f"{down[spot]!s} and {up[spot]!s} on its sides"
        if len(wrong)
        else "",
    )


# ---- large calls --------------------------------------------------------------------------------


@check(12, plan=_plan, variant="large")
def large(context: Context) -> None:
    """In the largest calls a result moves as its gradient says, in three directions."""
    samples = [s for s in context.op.samples(context.make()) if LEAST < elements(s) <= MOST]
    for sample in sorted(samples, key=elements)[-2:]:
        try:
            call = Recorded(context, context.placed(sample))
            if not call.results or any(t.dtype.is_complex for t in (*call.slots, *call.results)):
                continue
            incoming = call.incoming()
            gradients = call.gradients(incoming)
        except AutogradError:
            continue
        context.sample = sample
        for part in ("all", "the first", "the last"):
            _expect_moves(context, call, incoming, gradients, part)
    if not context.asserted:
        raise NotRun("no large sample has a derivative")


def _expect_moves(
    context: Context, call: Recorded, incoming: list[Any], gradients: list[Any], part: str
) -> None:
    rng = np.random.default_rng(context.case.seed)
    values = [context.subject.array(t.detach()) for t in call.slots]
    directions = [_direction(v.shape, part, rng) for v in values]
    terms = [g * d for g, d in zip(gradients, directions, strict=True)]
    wanted = float(sum(t.sum() for t in terms))
    size = float(np.sqrt(sum((t * t).sum() for t in terms)))
    if not np.isfinite(wanted) or size == 0:
        return
    at_rest = _weighed(context, call, incoming, values, directions, 0.0)
    errors = []
    for step in (1e-5, 1e-6, 1e-7):  # a kink may lie within one of them
        after, before = (
            _weighed(context, call, incoming, values, directions, side * step)
            for side in (1.0, -1.0)
        )
        noise = 1e-15 * (abs(after) + abs(before)) / step
        found = (after - before) / (2 * step)
        # Two numbers closer than any step change places on one side alone.
        for slope in (found, (after - at_rest) / step, (at_rest - before) / step):
            bound = 1e-3 * size + 1e-4 * abs(wanted) + 200 * noise
            errors.append(abs(slope - wanted) / bound)
    if not np.isfinite(errors).any():
        return
    context.expect(
        np.nanmin(errors) <= 1,
        f"the result of a large call moves by {found:.6g} and not by {wanted:.6g} where "
        f"{part} of the inputs move{'s' if part != 'all' else ''}",
    )


def _direction(shape: tuple[int, ...], part: str, rng: np.random.Generator) -> Any:
    """Where inputs move to: all of them, the first three or the last three."""
    direction = rng.normal(size=shape)
    if part == "all" or direction.size < 4:
        return direction
    kept = np.zeros(direction.size)
    kept[slice(0, 3) if part == "the first" else slice(-3, None)] = 1.0
    return direction * kept.reshape(shape)


def _weighed(
    context: Context,
    call: Recorded,
    incoming: list[Any],
    values: list[Any],
    directions: list[Any],
    step: float,
) -> float:
    """The results at inputs moved by a step, weighed with the incoming gradients."""
    moved = [
        context.subject.tensor(np.asarray(v + step * d))
        for v, d in zip(values, directions, strict=True)
    ]
    found = [
        t for t in tensors_in(call.function(*moved)) if t.dtype.is_floating_point and t.numel()
    ]
    arrays = [context.subject.array(t).astype(np.float64) for t in found]
    arrays = [a for a in arrays if a.size]
    if [a.shape for a in arrays] != [g.shape for g in incoming]:
        return float("nan")  # a result without a gradient among them
    return float(sum((a * g).sum() for a, g in zip(arrays, incoming, strict=True)))
