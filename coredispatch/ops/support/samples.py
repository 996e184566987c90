"""Sample inputs: the shapes and parameters an op is tried with.

A sampler is a generator function of one argument, ``make``, that yields :class:`Sample` objects.
It enumerates structure only: ``make`` fills the arrays, and the caller that runs the samples
decides with which dtype, values and memory layout (:class:`Make` is the plain one, the conformance
suite has others). The same arguments go to the op, as tensors, and to its reference, as arrays.

Sizes are chosen so that a kernel's special paths are met: 0-d, empty, one element, just over a
vector width (5, 17, 257), square (a transposed result is not noticed by shape), all distinct,
and a broadcast in the middle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = [
    "LaidOut",
    "Make",
    "Sample",
    "Sampler",
    "dim_reductions",
    "distinct",
    "int_pairs",
    "laid_out",
    "nonempty_reductions",
    "pairs",
    "positive_pairs",
    "powers",
    "reductions",
    "rows",
    "scans",
    "selections",
    "tensor_pairs",
    "triples",
    "unary",
    "with_options",
]

SHAPES = ((), (0,), (1,), (5,), (17,), (257,), (4, 4), (3, 5), (2, 0, 3), (2, 3, 5), (2, 3, 4, 5))

BROADCAST_SHAPES = (
    ((), ()),
    ((3,), ()),
    ((), (2, 3)),
    ((0,), (1,)),
    ((1,), (1,)),
    ((5,), (5,)),
    ((257,), (257,)),
    ((4, 4), (4,)),
    ((4, 4), (4, 1)),
    ((3, 1), (1, 5)),
    ((2, 3, 5), (2, 1, 5)),
    ((2, 1, 5), (3, 1)),
    ((2, 1, 5), (1, 3, 5)),
    ((2, 3, 4, 5), (1, 3, 1, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
)


class LaidOut(np.ndarray[Any, Any]):
    """An array that stands for a tensor of a layout, such as ``sparse_csr``.

    Its elements are those of the dense tensor: references compute with them. Copies, conversions
    and views keep ``layout`` and ``form``; what arithmetic gives is a plain array.

    Attributes:
        layout: the name of the layout key.
        form: which of the layout's ``forms`` makes the tensor; "" for its ``from_dense``.
    """

    layout: str = ""
    form: str = ""

    def __array_finalize__(self, source: Any) -> None:
        self.layout = getattr(source, "layout", "")
        self.form = getattr(source, "form", "")

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        found = np.asarray(array)
        return found[()] if return_scalar else found


def laid_out(array: Any, layout: str, form: str = "") -> LaidOut:
    """``array`` marked as the contents of a tensor of ``layout``, made by its way ``form``.

    The layout must hold the elements exactly: what it drops or rounds is not seen by references.
    """
    marked = np.asarray(array).view(LaidOut)
    marked.layout, marked.form = layout, form
    return marked


def _like(source: Any, converted: Any) -> Any:
    """What a conversion made of an array, with the array's layout where that was lost."""
    if isinstance(source, LaidOut) and type(converted) is np.ndarray:
        return laid_out(converted, source.layout, source.form)
    return converted


class Sample:
    """One call: positional ``args`` and keyword ``kwargs``, arrays standing for tensors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def map(self, convert: Callable[[Any], Any]) -> Sample:
        """The same call with every array passed through ``convert``, lists included."""

        def visit(x: Any) -> Any:
            if isinstance(x, np.ndarray):
                return _like(x, convert(x))
            if isinstance(x, (list, tuple)):
                return type(x)(visit(item) for item in x)
            return x

        return Sample(*visit(self.args), **{k: visit(v) for k, v in self.kwargs.items()})

    def __repr__(self) -> str:
        def show(x: Any) -> str:
            if isinstance(x, list):
                return f"[{', '.join(map(show, x))}]"
            return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else repr(x)

        shown = [show(a) for a in self.args]
        shown += [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return f"Sample({', '.join(shown)})"


def distinct(rng: np.random.Generator, shape: Any, high: int, dim: int) -> Any:
    """Random int64 indices in ``[0, high)`` of which no two along ``dim`` are alike.

    Raises :class:`ValueError` where there are fewer than ``shape[dim]`` of them.
    """
    count = shape[dim]
    if count > high:
        raise ValueError(f"{count} different indices below {high}")
    rest = [n for i, n in enumerate(shape) if i != dim % len(shape)]
    orders = rng.permuted(np.broadcast_to(np.arange(high), (*rest, high)), axis=-1)
    return np.ascontiguousarray(np.moveaxis(orders[..., :count], -1, dim))


class Make:
    """Fills sample arrays with uniform random values of one dtype, contiguous, seeded.

    Args:
        dtype: NumPy dtype of the arrays that calls return.
        seed: seed of the generator.
        values: ``(low, high)`` of floating and complex components; an op's ``values``. Integers
            are drawn from -4 to 4 (0 to 8 when unsigned), so that ties and zeros occur.
        size: scale for samplers that want a larger case, 1 by default.
    """

    def __init__(
        self,
        dtype: Any = np.float64,
        seed: int = 0,
        values: tuple[float, float] | None = None,
        size: int = 1,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.low, self.high = values or (-2.0, 2.0)
        self.size = size
        self.rng = np.random.default_rng(seed)

    def __call__(self, shape: Any, *, low: float | None = None, high: float | None = None) -> Any:
        """Array of the dtype of this ``make``; ``low`` and ``high`` narrow the value domain."""
        low, high = self.low if low is None else low, self.high if high is None else high
        kind = self.dtype.kind
        if kind == "b":
            return self.mask(shape)
        if kind in "iu":
            start = int(np.ceil(low * 2)) if kind == "i" else max(int(np.ceil(low)), 0)
            stop = max(int(np.floor(high * 2)) if kind == "i" else 8, start)
            return np.asarray(self.rng.integers(start, stop + 1, shape)).astype(self.dtype)
        x = self.rng.uniform(low, high, shape)
        if kind == "c":
            x = x + 1j * self.rng.uniform(low, high, shape)
        return np.asarray(x).astype(self.dtype)

    def float(self, shape: Any) -> Any:
        """Floating values: of the dtype of this ``make`` when floating, else float64."""
        x = np.asarray(self.rng.uniform(self.low, self.high, shape))
        return x.astype(self.dtype if self.dtype.kind not in "biuc" else np.float64)

    def positive(self, shape: Any) -> Any:
        """Values of this dtype that are above zero (divisors, logarithms, scales)."""
        if self.dtype.kind in "biu":
            return np.asarray(self.rng.integers(1, 5, shape)).astype(self.dtype)
        return self(shape, low=0.25, high=2.0)

    def index(self, shape: Any, high: int) -> Any:
        """int64 indices in ``[0, high)``."""
        return np.asarray(self.rng.integers(0, high, shape), dtype=np.int64)

    def distinct(self, shape: Any, high: int, dim: int = -1) -> Any:
        """int64 indices in ``[0, high)``, no two alike along ``dim``: places that are written."""
        return distinct(self.rng, shape, high, dim)

    def mask(self, shape: Any) -> Any:
        """Random booleans."""
        return np.asarray(self.rng.integers(0, 2, shape).astype(np.bool_))


Sampler = Callable[[Any], Iterator[Sample]]


def unary(make: Any) -> Iterator[Sample]:
    """``op(self)``: one array of every shape class."""
    for shape in SHAPES:
        yield Sample(make(shape))


def pairs(make: Any) -> Iterator[Sample]:
    """``op(self, other)``: equal shapes, every way of broadcasting, and a Python scalar."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make(a), make(b))
    yield Sample(make((3, 5)), 2)


def positive_pairs(make: Any) -> Iterator[Sample]:
    """Like :func:`pairs` with the second operand above zero (divisors, exponents, shifts)."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make(a), make.positive(b))
    yield Sample(make((3, 5)), 2)


def powers(make: Any) -> Iterator[Sample]:
    """``pow``: positive bases with any exponent, any base with whole exponents."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make.positive(a), make.positive(b))
    yield Sample(make.positive((3, 5)), np.zeros((), make.dtype))
    for exponent in (1, 2, 3):
        yield Sample(make((3, 5)), exponent)


def tensor_pairs(make: Any) -> Iterator[Sample]:
    """Like :func:`pairs` without a Python number."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make(a), make(b))


int_pairs = tensor_pairs


def triples(make: Any) -> Iterator[Sample]:
    """``op(a, b, c)``: the shapes of :func:`pairs` with a third operand that broadcasts too."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make(a), make(b), make(a))
        yield Sample(make(a), make(b), make(()))


def selections(make: Any) -> Iterator[Sample]:
    """``where(condition, self, other)``."""
    for a, b in BROADCAST_SHAPES:
        yield Sample(make.mask(a), make(a), make(b))
        yield Sample(make.mask(b), make(a), make(()))
    yield Sample(make.mask((3, 5)), 1.5, -2)


def with_options(*options: dict[str, Any], shapes: Any = SHAPES) -> Sampler:
    """Sampler of ``op(self, **option)``: every shape with the first option, few with the rest."""

    def sampler(make: Any) -> Iterator[Sample]:
        for i, option in enumerate(options or ({},)):
            for shape in shapes if i == 0 else ((), (0,), (17,), (3, 5)):
                yield Sample(make(shape), **option)

    return sampler


def reductions(make: Any) -> Iterator[Sample]:
    """``op(self, dim, keepdim)``: all dims, each dim, pairs of dims, with and without keepdim."""
    for shape in SHAPES:
        yield Sample(make(shape))
    planes: tuple[tuple[int, ...], ...] = ((3, 5), (2, 3, 5), (2, 3, 4, 5))
    for plane, keepdim in itertools.product(planes, (False, True)):
        for dim in range(-len(plane), len(plane)):
            yield Sample(make(plane), dim, keepdim)
        yield Sample(make(plane), (0, -1), keepdim)
    yield Sample(make(()), 0)
    yield Sample(make((4, 4)), 1)
    yield Sample(make((3, 257)), -1)
    yield Sample(make((257, 3)), 0)
    yield Sample(make((2, 3, 4, 5)), (1, 2))


def nonempty_reductions(make: Any) -> Iterator[Sample]:
    """Like :func:`reductions` without empty inputs, for ops that have no neutral element."""
    for sample in reductions(make):
        if sample.args[0].size:
            yield sample
    yield Sample(make((0, 3)), 1)


def dim_reductions(make: Any) -> Iterator[Sample]:
    """``op(self, dim, keepdim)`` for a single required dim over at least one element."""
    for shape in ((), (1,), (5,), (257,), (4, 4), (3, 5), (2, 3, 5), (2, 3, 4, 5)):
        for dim in range(len(shape) or 1):
            yield Sample(make(shape), dim, False)
        yield Sample(make(shape), -1, True)
    yield Sample(make((0, 3)), 1, False)


def scans(make: Any) -> Iterator[Sample]:
    """``op(self, dim)`` with the input's shape as result: cumulative ops and softmax."""
    for shape in SHAPES:
        for dim in range(len(shape) or 1):
            yield Sample(make(shape), dim)
    yield Sample(make((2, 3, 5)), -2)
    yield Sample(make((3, 257)), -1)


rows = scans
