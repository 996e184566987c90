"""The least and the greatest value that an expression over sizes may have."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, inf, isinf

from coredispatch.graph.terms import (
    OPERATIONS,
    Atom,
    Terms,
    fractional,
    number_of,
    product_of,
    sum_of,
)

__all__ = ["bounds_of"]

Bounds = tuple[float, float]
#: how many quotients and remainders of one sum are looked at together
_MOST = 3


def bounds_of(terms: Terms, symbol: Callable[[str], Bounds]) -> Bounds:
    """The bounds of an expression; ``symbol`` gives those of a symbol.

    What is known of one part is used in the others, so that ``n // 2 - n`` is at most 0.
    """
    chosen = _sides(terms)
    if chosen is not None:
        kind, one, other = chosen
        return _interval(kind, bounds_of(one, symbol), bounds_of(other, symbol))
    low = high = 0.0
    for monomial, count in terms:
        least, most = 1.0, 1.0
        for atom in monomial:
            ends = [_times(a, b) for a in (least, most) for b in _of_atom(atom, symbol)]
            least, most = min(ends), max(ends)
        ends = [_times(least, count), _times(most, count)]
        low, high = low + min(ends), high + max(ends)
    places = [i for i, (monomial, _) in enumerate(terms) if _divides(monomial)]
    # With each of them the others are looked at again: sums of many quotients take too long.
    if 0 < len(places) <= _MOST and len(terms) > 1 and not fractional(terms):
        for place in places:
            one, other = _together(terms, place, symbol)
            low, high = max(low, one), min(high, other)
    return low, high


def _divides(monomial: tuple[Atom, ...]) -> bool:
    return len(monomial) == 1 and monomial[0].kind in ("floordiv", "mod")


def _sides(terms: Terms) -> tuple[str, Terms, Terms] | None:
    """``(kind, one, other)`` of an expression that is the lesser or the greater of two others.

    The least or the greatest of two is taken out of a sum: ``a - min(b, c)`` is
    ``max(a - b, a - c)``. None where there is none in it.
    """
    for place, (monomial, count) in enumerate(terms):
        if len(monomial) == 1 and monomial[0].kind in ("min", "max"):
            ((kind, sides),) = monomial
            rest = _without(terms, place)
            one, other = (sum_of(rest, side, count) for side in sides)
            if count < 0:
                kind = "max" if kind == "min" else "min"
            return kind, one, other
    return None


def _without(terms: Terms, place: int) -> Terms:
    return (*terms[:place], *terms[place + 1 :])


def _together(terms: Terms, place: int, symbol: Callable[[str], Bounds]) -> Bounds:
    """Bounds of a sum in which one part is a quotient by a number, or a remainder."""
    monomial, count = terms[place]
    rest = _without(terms, place)
    above, below = monomial[0].of
    if monomial[0].kind == "mod":
        if bounds_of(below, symbol)[0] <= 0:
            return -inf, inf
        # a remainder is 0 at least and below - 1 at most
        most = sum_of(sum_of(rest, below, count), ((((), count),)), -1)
        ends = bounds_of(rest, symbol), bounds_of(most, symbol)
        return (ends[0][0], ends[1][1]) if count > 0 else (ends[1][0], ends[0][1])
    divisor = number_of(below)
    if divisor is None or divisor <= 0:
        return -inf, inf
    # divisor times the sum, which is this without the remainder of the quotient
    whole = sum_of(product_of(rest, ((((), divisor)),)), above, count)
    low, high = bounds_of(whole, symbol)
    slack = count * (divisor - 1)
    low, high = (low - slack, high) if count > 0 else (low, high - slack)
    return (
        low if isinf(low) else ceil(low / divisor),
        high if isinf(high) else floor(high / divisor),
    )


def _of_atom(atom: Atom, symbol: Callable[[str], Bounds]) -> Bounds:
    if atom.kind == "symbol":
        return symbol(atom.of)
    if atom.kind == "number":
        return atom.of, atom.of
    sides = [bounds_of(part, symbol) for part in atom.of]
    if len(sides) == 1:
        ((low, high),) = sides
        whole = OPERATIONS[atom.kind][1]
        return low if isinf(low) else whole(low), high if isinf(high) else whole(high)
    return _interval(atom.kind, *sides)


def _interval(kind: str, one: Bounds, other: Bounds) -> Bounds:
    """The bounds of an operation on numbers within these bounds."""
    (a, b), (c, d) = one, other
    if kind == "mod" and c > 0:
        return 0, d if isinstance(d, float) and not isinf(d) else d - 1
    if kind == "floordiv" and c > 0:
        ends = [_quotient(x, y) for x in (a, b) for y in (c, d) if not isinf(x) or y == c]
        return min(ends), max(ends)
    if kind in ("min", "max"):
        pick = OPERATIONS[kind][1]
        return pick(a, c), pick(b, d)
    if kind == "add":
        return a + c, b + d
    if kind == "sub":
        return a - d, b - c
    if kind == "truediv" and c > 0:
        kind, c, d = "mul", 0 if d == inf else 1 / d, 1 / c
    if kind == "mul":
        ends = [_times(x, y) for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)
    if kind == "pow" and a >= 1 and c == d and not isinf(c):
        return min(a**c, b**c), max(a**c, b**c)
    return -inf, inf


def _quotient(a: float, b: float) -> float:
    """``a // b`` of a positive ``b``, where a number divided by infinity is rounded down."""
    if isinf(a):
        return a
    return a // b if not isinf(b) else 0 if a >= 0 else -1


def _times(a: float, b: float) -> float:
    """``a * b``, where 0 times infinity is 0."""
    return 0.0 if 0 in (a, b) else a * b
