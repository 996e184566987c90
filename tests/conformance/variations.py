"""Variations of an operator definition's samples: the options and shapes that nobody wrote down.

Samples are written by the author of the operator, with the options that came to mind. Here every
number among the arguments is changed, every switch is turned, and the arrays become empty, of one
element and 0-dimensional. Whether a variation means anything is for the operator to say: what its
decomposition and its kernel both refuse is no finding. The order follows from the sample alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .templates import named

__all__ = ["Variation", "variations", "variations_of_two", "with_argument"]

#: parameters that say how many elements there will be: larger numbers only cost memory
COUNTS = frozenset(("size", "sizes", "shape", "n", "m", "steps", "repeats", "num_classes", "bins"))


class Variation:
    """A changed call: the sample, and in words what was changed."""

    def __init__(self, sample: Any, what: str) -> None:
        self.sample = sample
        self.what = what


def variations(op: Any, sample: Any) -> Iterator[Variation]:
    """The sample itself, and every variation of one of its options or of its shapes."""
    yield Variation(sample, "as it stands")
    yield from _options(op, sample)
    yield from _shapes(sample)


def variations_of_two(op: Any, sample: Any) -> Iterator[Variation]:
    """Every variation of the shapes together with one of an option."""
    for smaller in _shapes(sample):
        for varied in _options(op, smaller.sample):
            yield Variation(varied.sample, f"{smaller.what}, {varied.what}")


def with_argument(op: Any, sample: Any, name: str, value: Any) -> Any:
    """The sample with the argument ``name`` replaced, or given where it was left out."""
    names = [p.name for p in op.schema.params]
    args = [*sample.args]
    at = names.index(name)
    if at < len(args):
        args[at] = value
        return type(sample)(*args, **sample.kwargs)
    return type(sample)(*args, **{**sample.kwargs, name: value})


def _options(op: Any, sample: Any) -> Iterator[Variation]:
    given = dict(named(op, sample))
    if len(sample.args) > len([p for p in op.schema.params if not p.keyword_only]):
        return  # numbers that stand for a list: their names are not those of parameters
    for param in op.schema.params:
        value = given.get(param.name, param.default)
        for other in _other(param, value):
            yield Variation(with_argument(op, sample, param.name, other), f"{param.name}={other!r}")


def _other(param: Any, value: Any) -> Iterator[Any]:
    """Other values of an option: turned, negative, zero, one more, half."""
    large = param.name not in COUNTS
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int) and param.kind in ("int", "Scalar", "float", "IntList"):
        yield from dict.fromkeys([-value, 0, -1, 1, value - 2, *([value + 1] if large else [])])
    elif isinstance(value, float) and np.isfinite(value):
        yield from dict.fromkeys([-value, 0.0, value / 2 + 0.25])
    elif _integers(value):
        for i, n in enumerate(value):
            for other in dict.fromkeys([-n, 0, -1, *([n + 1] if large else [])]):
                if other != n:
                    yield type(value)([*value[:i], other, *value[i + 1 :]])
        yield type(value)(-n for n in value)


def _integers(value: Any) -> bool:
    plain = type(value) in (tuple, list) and 0 < len(value) <= 6
    return plain and all(type(n) is int for n in value)


def _shapes(sample: Any) -> Iterator[Variation]:
    """The call with smaller arrays: none of the elements, one of them, no dimensions."""
    sizes: list[int] = []
    sample.map(lambda a: sizes.extend(a.shape) or a)
    for size in sorted(set(sizes)):
        for other in (0, 1):
            if size > 1:
                cut = _resized(size, other)
                yield Variation(sample.map(cut), f"{other} in the place of {size} elements")
    if sizes:
        yield Variation(sample.map(_scalar), "without dimensions")
        yield Variation(sample.map(_element), "a single element")


def _resized(size: int, other: int) -> Any:
    def cut(array: Any) -> Any:
        kept = tuple(slice(other if n == size else n) for n in array.shape)
        return array[kept].copy() if kept else array

    return cut


def _scalar(array: Any) -> Any:
    return array.reshape(-1)[:1].reshape(()).copy() if array.size else array


def _element(array: Any) -> Any:
    return array.reshape(-1)[:1].copy() if array.size else array
