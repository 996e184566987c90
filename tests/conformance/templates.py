"""The structure of an op's samples, kept apart from their values, so that it can be varied.

A sampler asks ``make`` for arrays. :func:`templates` runs it once and remembers which request
made which array of which sample; a request can then be repeated with another shape, other values
or another layout, and the rest of the call stays what the operator definition says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .covering_array import ConfiguredMake

__all__ = ["Request", "Template", "fits", "repeated", "templates"]

#: parameters that hold sizes of dimensions, which follow when the dimensions change
SIZES = frozenset(("size", "shape", "sizes", "normalized_shape", "input_shape", "weight_shape"))
#: parameters that hold numbers of dimensions
DIMS = frozenset(("dim", "dims", "dim0", "dim1"))


@dataclass(frozen=True)
class Request:
    """One call of a ``make`` object: which method, the shape, and the value domain it named.

    ``dim`` is the dimension along which indices differ, counted from the last.
    """

    method: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    dim: int = -1

    @property
    def points(self) -> bool:
        """Whether the numbers name places, below ``high``."""
        return self.method in ("index", "distinct")


class Recorder(ConfiguredMake):
    """A ``make`` that remembers its calls by the arrays they gave."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: dict[int, tuple[Any, Request]] = {}  # the array is held: its id stays its own

    def _noted(self, array: Any, request: Request) -> Any:
        self.made[id(array)] = array, request
        return array

    def __call__(self, shape: Any, *, low: float | None = None, high: float | None = None) -> Any:
        array = super().__call__(shape, low=low, high=high)
        return self._noted(array, Request("__call__", array.shape, low, high))

    def float(self, shape: Any) -> Any:
        array = super().float(shape)
        return self._noted(array, Request("float", array.shape))

    def positive(self, shape: Any) -> Any:
        array = super().positive(shape)
        return self._noted(array, Request("positive", array.shape))

    def index(self, shape: Any, high: int) -> Any:
        array = super().index(shape, high)
        return self._noted(array, Request("index", array.shape, high=high))

    def distinct(self, shape: Any, high: int, dim: int = -1) -> Any:
        array = super().distinct(shape, high, dim)
        dim = dim % array.ndim - array.ndim
        return self._noted(array, Request("distinct", array.shape, high=high, dim=dim))

    def mask(self, shape: Any) -> Any:
        array = super().mask(shape)
        return self._noted(array, Request("mask", array.shape))


class Renamed(ConfiguredMake):
    """A ``make`` that gives every size another one, the same for each of its occurrences.

    ``replaced`` says whether a request had such a size since it was last set to False.
    """

    def __init__(self, *args: Any, sizes: dict[int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sizes, self.replaced = sizes, False

    def _renamed(self, shape: Any) -> tuple[int, ...]:
        asked = (shape,) if isinstance(shape, int) else shape
        self.replaced |= any(int(n) in self.sizes for n in asked)
        return renamed(asked, self.sizes)

    def __call__(self, shape: Any, *, low: float | None = None, high: float | None = None) -> Any:
        return super().__call__(self._renamed(shape), low=low, high=high)

    def float(self, shape: Any) -> Any:
        return super().float(self._renamed(shape))

    def positive(self, shape: Any) -> Any:
        return super().positive(self._renamed(shape))

    def index(self, shape: Any, high: int) -> Any:
        return super().index(self._renamed(shape), self.sizes.get(high, high))

    def distinct(self, shape: Any, high: int, dim: int = -1) -> Any:
        return super().distinct(self._renamed(shape), self.sizes.get(high, high), dim)

    def mask(self, shape: Any) -> Any:
        return super().mask(self._renamed(shape))


@dataclass(frozen=True)
class Template:
    """One sample of an op.

    Attributes:
        number: its place among the op's samples.
        sample: the call, with the arrays that stand for requests.
        requests: the request behind each array, by the array's id.
        whole: whether every array comes straight from a request. One that was computed (a matrix
            made invertible) can only be made again by the sampler.
    """

    number: int
    sample: Any
    requests: dict[int, Request]
    whole: bool
    arrays: tuple[Any, ...] = field(repr=False, default=())

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the arrays."""
        return [a.shape for a in self.arrays]

    def sizes(self, op: Any) -> list[int]:
        """Sizes above one that dimensions of the sample have, each once."""
        found = {n for shape in self.shapes for n in shape}
        for name, value in named(op, self.sample):
            if name in SIZES and isinstance(value, (tuple, list)):
                found |= {n for n in value if isinstance(n, int)}
        return sorted(n for n in found if n > 1)


def templates(op: Any, make: Callable[..., Any], limit: int = 200) -> list[Template]:
    """Templates of the op's samples; ``make(kind)`` gives a ``make`` object of a class."""
    recorder = make(Recorder)
    found = []
    for number, sample in enumerate(op.samples(recorder)):
        if number == limit:
            break
        arrays: dict[int, Any] = {}
        sample.map(lambda a, arrays=arrays: arrays.setdefault(id(a), a))
        requests = {i: recorder.made[i][1] for i in arrays if i in recorder.made}
        whole = len(requests) == len(arrays)
        found.append(Template(number, sample, requests, whole, tuple(arrays.values())))
    return found


def named(op: Any, sample: Any) -> Iterator[tuple[str, Any]]:
    """The arguments of a sample with the names of their parameters."""
    yield from zip((p.name for p in op.schema.params), sample.args, strict=False)
    yield from sample.kwargs.items()


def changed(op: Any, sample: Any, change: Callable[[str, Any], Any]) -> Any:
    """The sample with every argument passed through ``change(name, value)``."""
    names = [p.name for p in op.schema.params]
    names += [""] * len(sample.args)  # numbers of a last parameter that were not packed
    args = [change(n, v) for n, v in zip(names, sample.args, strict=False)]
    return type(sample)(*args, **{n: change(n, v) for n, v in sample.kwargs.items()})


def renamed(shape: Any, sizes: dict[int, int]) -> tuple[int, ...]:
    """A shape with its sizes replaced."""
    return tuple(sizes.get(int(n), int(n)) for n in shape)


def fits(request: Request, shape: tuple[int, ...], high: int) -> bool:
    """Whether the request can be repeated with another shape: whether so many indices differ."""
    return request.method != "distinct" or shape[request.dim] <= high


def repeated(request: Request, shape: tuple[int, ...], make: Any, high: int | None = None) -> Any:
    """The array that ``make`` gives for a request with another shape; ``high`` of an index."""
    if request.method == "__call__":
        return make(shape, low=request.low, high=request.high)
    if request.points:
        bound = int((request.high if high is None else high) or 0)
        if request.method == "index":
            return make.index(shape, bound)
        return make.distinct(shape, bound, request.dim)
    return getattr(make, request.method)(shape)


def spread_out(op: Any, found: list[Template], result: Callable[[Any], Any]) -> bool:
    """Whether the op broadcasts: each result has the shape that its arrays broadcast to.

    ``result`` gives the reference's shape of a sample, None where it has none.
    """
    several = [t for t in found if len(t.arrays) > 1]
    if not any(len(set(t.shapes)) > 1 for t in several):
        return False
    for template in several:
        try:
            together = np.broadcast_shapes(*template.shapes)
        except ValueError:
            return False
        if result(template.sample) != together:
            return False
    return True
