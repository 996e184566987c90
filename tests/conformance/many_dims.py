"""Samples with more dimensions than their operator's author wrote down."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .context import Context
from .growth import LARGEST, cost, takes
from .templates import DIMS, Template, changed, named, repeated

__all__ = ["with_dims"]

Make = Callable[..., Any]


def with_dims(
    context: Context, template: Template, ndim: int, make: Make, *, front: bool = False
) -> Any:
    """The sample with dimensions in front, so that there are ``ndim``; None where it is refused.

    ``front`` says whether options name the first of them, or the dimensions they named before.
    """
    if not template.whole or not template.arrays:
        return None
    most = max(map(len, template.shapes))
    if most >= ndim or any(0 in shape for shape in template.shapes):
        return None
    sizes = tuple(itertools.islice(itertools.cycle((2, 1, 3, 2)), ndim - most))
    for chosen in (lambda n, i: True, lambda n, i: n == most, lambda n, i: i == 0):
        made = {}
        for i, array in enumerate(template.arrays):
            request = template.requests[id(array)]
            grows = chosen(array.ndim, i)
            pad = (1,) * (most - array.ndim) if grows and i else ()
            shape = (*sizes, *pad, *array.shape) if grows else array.shape
            made[id(array)] = repeated(request, shape, make)
        sample = template.sample.map(lambda a, made=made: made[id(a)])
        orders = [_last_dims(context.op, sample, ndim - most, most, fills=f) for f in (True, False)]
        if front:  # those of the same numbers, counted from the beginning
            orders = [_first_dims(context.op, sample, most)]
        for moved in [m for m in (*orders, sample) if m is not None]:
            if cost(context, moved) < LARGEST and takes(context, moved):
                return moved
    return None


def _last_dims(op: Any, sample: Any, added: int, most: int, *, fills: bool) -> Any:
    """The call whose named dimensions stay the ones they were, behind ``added`` others.

    ``fills`` says whether where all of them are named, the others are as well.
    """

    def move(name: str, value: Any) -> Any:
        if name not in DIMS or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value + added if value >= 0 else value
        if isinstance(value, (tuple, list)) and all(type(n) is int for n in value):
            moved = [n + added if n >= 0 else n for n in value]
            every = len(value) == most > 1 and sorted(n % most for n in value) == [*range(most)]
            # An order of all dimensions takes the new ones as well, in another order, too.
            return type(value)([*reversed(range(added)), *moved] if every and fills else moved)
        return value

    return changed(op, sample, move) if any(n in DIMS for n, _ in named(op, sample)) else sample


def _first_dims(op: Any, sample: Any, most: int) -> Any:
    """The call whose named dimensions are counted from the first on; None where none is named."""
    if not any(n in DIMS for n, v in named(op, sample) if not isinstance(v, bool)):
        return None

    def move(name: str, value: Any) -> Any:
        if name not in DIMS or isinstance(value, bool):
            return value
        if isinstance(value, (tuple, list)) and all(type(n) is int for n in value):
            return type(value)(n % most for n in value)
        return value % most if isinstance(value, int) and most else value

    return changed(op, sample, move)
