"""A line search for the strong Wolfe conditions. Nocedal and Wright, algorithms 3.5 and 3.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["strong_wolfe"]

_C1, _C2 = 1e-4, 0.9  # sufficient decrease, and curvature


class _Point(NamedTuple):
    t: float
    loss: float
    gradient: Any
    slope: float


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through both points and slopes is least, within ``bounds``."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2: float = square**0.5
    denominator = b.slope - a.slope + 2 * d2
    if denominator == 0:
        return (low + high) / 2
    place = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / denominator)
    return min(max(place, low), high)


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Any]],
    t: float,
    direction: Any,
    loss: float,
    gradient: Any,
    slope: float,
    max_calls: int = 25,
    tolerance_change: float = 1e-9,
) -> tuple[float, Any, float, int]:
    """A step length that lowers the loss enough and flattens the slope enough.

    ``evaluate(t)`` gives loss and gradient at the distance ``t`` along ``direction``; ``loss``,
    ``gradient`` and ``slope`` are those at 0. Returns loss, gradient, length and the number of
    calls.
    """
    reach = float(direction.abs().max())

    def at(length: float) -> _Point:
        found, grad = evaluate(length)
        return _Point(length, found, grad, float(grad.dot(direction)))

    start = _Point(0.0, loss, gradient, slope)

    def too_high(point: _Point) -> bool:
        return point.loss > loss + _C1 * point.t * slope

    def flat(point: _Point) -> bool:
        return abs(point.slope) <= -_C2 * slope

    # Bracket an interval that contains a point with both conditions.
    previous, point = start, at(t)
    calls, rounds = 1, 0
    bracket: list[_Point] = []
    while rounds < max_calls:
        if too_high(point) or (rounds > 1 and point.loss >= previous.loss):
            bracket = [previous, point]
            break
        if flat(point):
            return point.loss, point.gradient, point.t, calls
        if point.slope >= 0:
            bracket = [previous, point]
            break
        bounds = point.t + 0.01 * (point.t - previous.t), point.t * 10
        length = _cubic_minimum(previous, point, bounds)
        previous, point = point, at(length)
        calls += 1
        rounds += 1
    if not bracket:
        bracket = [start, point]

    # Shrink it.
    stuck = False
    low, high = sorted(bracket, key=lambda p: p.loss)
    while rounds < max_calls and abs(high.t - low.t) * reach >= tolerance_change:
        length = _cubic_minimum(low, high)
        near, far = min(low.t, high.t), max(low.t, high.t)
        margin = 0.1 * (far - near)
        if min(far - length, length - near) < margin:
            # Close to an end: the second time in a row, or at the end itself, move inwards.
            if stuck or length >= far or length <= near:
                length = far - margin if abs(length - far) < abs(length - near) else near + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = at(length)
        calls += 1
        rounds += 1
        if too_high(point) or point.loss >= low.loss:
            high = point
            if low.loss > high.loss:
                low, high = high, low
        else:
            if flat(point):
                low = point
                break
            if point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
    return low.loss, low.gradient, low.t, calls
