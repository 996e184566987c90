"""Factories: tensors made of sizes and numbers.

A factory has no tensor argument, so its ``device`` names the backend. Without ``dtype`` the
result has the default floating dtype, or the one the numbers call for (:func:`full`,
:func:`arange`). The ``*_like`` forms take shape, dtype and device from a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops import joining
from coredispatch.ops.annotations import Device, DType, IntList, Scalar, Tensor
from coredispatch.ops.rules import exact, same_shape, ulp
from coredispatch.ops.samples import Sample, unary
from coredispatch.registry import composite, primitive
from coredispatch.registry.dtypes import default_dtype, float64, int64, scalar_dtype
from coredispatch.registry.errors import ArgumentError

# ---- rules --------------------------------------------------------------------------------------


def sized(size: Any, *_: Any) -> tuple[int, ...]:
    """Shape rule of ``op(size, ...)``; raises :class:`ArgumentError` for a negative length."""
    if any(n < 0 for n in size):
        raise ArgumentError(f"size {tuple(size)} has a negative dimension", fix="use sizes >= 0")
    return tuple(size)


def given_or_default(*args: Any) -> DType:
    """Dtype rule of factories: the ``dtype`` argument, else the default floating dtype."""
    return next((a for a in args if isinstance(a, DType)), default_dtype())


def given_or_same(self: Any, *args: Any) -> DType:
    """Dtype rule of ``*_like``: the ``dtype`` argument, else the tensor's."""
    return next((a for a in args if isinstance(a, DType)), DType.of(self.dtype))


def number(x: Any) -> Any:
    """A Python number; one-element tensors give theirs."""
    return x.item() if hasattr(x, "item") else x


def _sizes(make: Any) -> Iterator[Sample]:
    for size in ((), (0,), (1,), (17,), (3, 5), (2, 0, 3), (2, 3, 4, 5)):
        yield Sample(size)


def _filled_sizes(make: Any) -> Iterator[Sample]:
    for sample in _sizes(make):
        yield Sample(*sample.args, 1.5)
    yield Sample((2, 3), 7)
    yield Sample((2, 3), True)


def _bad_sizes(make: Any) -> Iterator[tuple[Sample, type[Exception]]]:
    yield Sample((2, -1)), ArgumentError


def _full_dtype(size: Any, fill_value: Any, dtype: Any, *_: Any) -> DType:
    return scalar_dtype(number(fill_value)) if dtype is None else dtype


# ---- constants ----------------------------------------------------------------------------------


@primitive(
    out=sized,
    dtype=_full_dtype,
    reference=np.full,
    samples=_filled_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def full(
    size: IntList, fill_value: Scalar, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of shape ``size`` with ``fill_value`` everywhere.

    Without ``dtype``: bool for a bool, int64 for an int, the default floating dtype (or its
    complex partner) otherwise. Raises :class:`ArgumentError` for a negative size.
    """


@composite(
    out=sized,
    dtype=given_or_default,
    reference=np.zeros,
    samples=_sizes,
    errors=_bad_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def zeros(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` filled with 0, of the default floating dtype if none is given."""
    return full(size, 0, dtype=dtype or default_dtype(), device=device)


@composite(
    out=sized,
    dtype=given_or_default,
    reference=np.ones,
    samples=_sizes,
    errors=_bad_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def ones(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` filled with 1, of the default floating dtype if none is given."""
    return full(size, 1, dtype=dtype or default_dtype(), device=device)


@composite(out=sized, dtype=given_or_default, differentiable=False, factory=True)
def empty(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` whose elements are whatever was in memory (or 0)."""
    return full(size, 0, dtype=dtype or default_dtype(), device=device)


@composite(
    out=same_shape,
    dtype=given_or_same,
    reference=lambda self, fill_value: np.full_like(self, fill_value),
    samples=lambda make: (Sample(s.args[0], 1) for s in unary(make)),
    tolerance=exact,
    differentiable=False,
    method=False,
)
def full_like(self: Tensor, fill_value: Scalar, *, dtype: DType | None = None) -> Tensor:
    """A tensor with the shape, dtype and device of ``self`` and ``fill_value`` everywhere.

    The keywords ``dtype`` and ``device`` replace those of ``self``.
    """
    return full(tuple(self.shape), fill_value, dtype=dtype or self.dtype, device=self.device)


@composite(
    out=same_shape,
    dtype=given_or_same,
    reference=np.zeros_like,
    samples=unary,
    tolerance=exact,
    differentiable=False,
    method=False,
)
def zeros_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """A tensor of zeros with the shape, dtype and device of ``self``."""
    return full(tuple(self.shape), 0, dtype=dtype or self.dtype, device=self.device)


@composite(
    out=same_shape,
    dtype=given_or_same,
    reference=np.ones_like,
    samples=unary,
    tolerance=exact,
    differentiable=False,
    method=False,
)
def ones_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """A tensor of ones with the shape, dtype and device of ``self``."""
    return full(tuple(self.shape), 1, dtype=dtype or self.dtype, device=self.device)


@composite(out=same_shape, dtype=given_or_same, differentiable=False, method=False)
def empty_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """A tensor with the shape, dtype and device of ``self`` and arbitrary elements."""
    return empty(tuple(self.shape), dtype=dtype or self.dtype, device=self.device)


def _accept_device(like: Any, factory: Any) -> None:
    """Let a ``*_like`` op take PyTorch's other keywords; they change device or are defaults."""

    @like.overload
    def _(
        self: Tensor,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        memory_format: object = None,
        layout: object = None,
        requires_grad: bool = False,
    ) -> Tensor:
        made = factory(tuple(self.shape), dtype=dtype or self.dtype, device=device or self.device)
        return made.requires_grad_() if requires_grad else made


_accept_device(zeros_like, zeros)
_accept_device(ones_like, ones)
_accept_device(empty_like, empty)


@full_like.overload
def _(
    self: Tensor,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    memory_format: object = None,
    layout: object = None,
    requires_grad: bool = False,
) -> Tensor:
    made = full(
        tuple(self.shape), fill_value, dtype=dtype or self.dtype, device=device or self.device
    )
    return made.requires_grad_() if requires_grad else made


# ---- sequences ----------------------------------------------------------------------------------


def arange_bounds(start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    """Start, end and step as numbers; one bound alone is the end.

    Raises :class:`ArgumentError` when the step does not lead from start to end.
    """
    start, end, step = number(start), number(end), number(step)
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(
            f"step {step} does not lead from {start} to {end}",
            fix="use a step of the sign of end - start",
        )
    return start, end, step


def _arange_shape(start: Any, end: Any, step: Any, *_: Any) -> tuple[int, ...]:
    start, end, step = arange_bounds(start, end, step)
    if all(isinstance(v, int) for v in (start, end, step)):
        return (-((start - end) // step),)
    return (math.ceil((end - start) / step),)


def _arange_dtype(start: Any, end: Any, step: Any, dtype: Any, *_: Any) -> DType:
    if dtype is not None:
        return dtype
    bounds = [number(v) for v in (start, end, step) if v is not None]
    return int64 if all(isinstance(v, int) for v in bounds) else default_dtype()


def _ranges(make: Any) -> Iterator[Sample]:
    for bounds in ((5,), (0,), (2, 7), (2, 9, 3), (9, 2, -2), (0.5, 3), (0.0, 1.0, 0.25)):
        yield Sample(*bounds)


@primitive(
    out=_arange_shape,
    dtype=_arange_dtype,
    reference=np.arange,
    samples=_ranges,
    tolerance=ulp(1),
    differentiable=False,
    factory=True,
)
def arange(
    start: Scalar = 0,
    end: Scalar | None = None,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """The numbers ``start, start + step, ...`` below ``end``: ``ceil((end-start)/step)`` of them.

    ``arange(n)`` counts from 0. Without ``dtype``: int64 if all three are ints, else the default
    floating dtype. Raises :class:`ArgumentError` for a step that leads away from ``end``.
    """


@composite(name="range", differentiable=False, factory=True)
def closed_range(
    start: Scalar = 0,
    end: Scalar | None = None,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Like :func:`arange`, with ``end`` included and floating by default."""
    start, end, step = arange_bounds(start, end, step)
    count = math.floor((end - start) / step) + 1
    values = arange(count, dtype=float64, device=device) * step + start
    return values.to_dtype(dtype or default_dtype())


def _steps_shape(start: Any, end: Any, steps: int, *_: Any) -> tuple[int, ...]:
    if steps < 0:
        raise ArgumentError(f"steps must not be negative, got {steps}", fix="use steps >= 0")
    return (steps,)


@composite(
    out=_steps_shape,
    dtype=given_or_default,
    reference=np.linspace,
    samples=lambda make: (Sample(-1.0, 2.5, n) for n in (0, 1, 2, 17)),
    tolerance=ulp(2),
    differentiable=False,
    factory=True,
)
def linspace(
    start: Scalar,
    end: Scalar,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """``steps`` numbers evenly spaced from ``start`` to ``end``, both included, 1-d.

    Counted from the nearer end, so that the result is symmetric. Raises :class:`ArgumentError`
    for negative ``steps``.
    """
    _steps_shape(start, end, steps)
    start, end = number(start), number(end)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    i = arange(steps, dtype=float64, device=device)
    half = (steps + 1) // 2
    values = joining.cat([i[:half] * step + start, (i[half:] - (steps - 1)) * step + end])
    return values.to_dtype(dtype or default_dtype())


@composite(
    out=_steps_shape,
    dtype=given_or_default,
    reference=lambda start, end, steps, base=10.0: np.logspace(start, end, steps, base=base),
    samples=lambda make: (Sample(-1.0, 1.5, n) for n in (0, 1, 2, 17)),
    tolerance=ulp(8),
    differentiable=False,
    factory=True,
)
def logspace(
    start: Scalar,
    end: Scalar,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """``base ** linspace(start, end, steps)``."""
    exponents = linspace(start, end, steps, dtype=float64, device=device)
    powers = full((steps,), float(base), dtype=float64, device=device) ** exponents
    return powers.to_dtype(dtype or default_dtype())


# ---- matrices -----------------------------------------------------------------------------------


def _eye_shape(n: int, m: int | None = None, *_: Any) -> tuple[int, ...]:
    return sized((n, n if m is None else m))


@composite(
    out=_eye_shape,
    dtype=given_or_default,
    reference=np.eye,
    samples=lambda make: (Sample(*s) for s in ((0,), (1,), (5,), (3, 5), (5, 3), (2, 0))),
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """The (n, m) matrix with ones on its diagonal; ``m`` is ``n`` where not given."""
    rows, columns = _eye_shape(n, m)
    row = arange(rows, device=device)
    return (row.unsqueeze(1) == arange(columns, device=device)).to_dtype(dtype or default_dtype())


def _triangle_indices(name: str, upper: bool) -> Any:
    def shape(row: int, col: int, offset: int = 0, *_: Any) -> tuple[int, ...]:
        make = np.triu_indices if upper else np.tril_indices
        return (2, len(make(row, offset, col)[0]))

    @composite(
        name=name,
        out=shape,
        dtype=lambda row, col, offset, dtype, *_: dtype or int64,
        reference=lambda row, col, offset=0: np.stack(
            (np.triu_indices if upper else np.tril_indices)(row, offset, col)
        ),
        samples=lambda make: (Sample(*s) for s in ((3, 3), (3, 5, 1), (5, 3, -1), (0, 2))),
        tolerance=exact,
        differentiable=False,
        factory=True,
    )
    def indices(
        row: int,
        col: int,
        offset: int = 0,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
    ) -> Tensor:
        i = arange(row, device=device).unsqueeze(1)
        j = arange(col, device=device)
        inside = j - i >= offset if upper else j - i <= offset
        return inside.nonzero().t().to_dtype(dtype or int64)

    side = "above" if upper else "below"
    indices.__doc__ = (
        f"Row and column numbers, (2, n) int64, of the elements on and {side} diagonal number "
        "``offset`` of a (row, col) matrix, in row-major order."
    )
    return indices


tril_indices = _triangle_indices("tril_indices", upper=False)
triu_indices = _triangle_indices("triu_indices", upper=True)


@composite(
    reference=np.vander,
    samples=lambda make: (Sample(make((n,))) for n in (1, 4, 5)),
    tolerance=ulp(16),
    dtypes="float",
)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde matrix, (len(x), N): column j holds ``x ** j`` (``x ** (N-1-j)`` by default)."""
    count = len(x) if N is None else N
    exponents = arange(count, dtype=int64, device=x.device)
    if not increasing:
        exponents = (count - 1) - exponents
    return x.unsqueeze(-1) ** exponents


__all__ = [
    "arange",
    "closed_range",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "given_or_default",
    "given_or_same",
    "linspace",
    "logspace",
    "number",
    "ones",
    "ones_like",
    "sized",
    "tril_indices",
    "triu_indices",
    "vander",
    "zeros",
    "zeros_like",
]
