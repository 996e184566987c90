"""Sequences of numbers and matrices made of nothing but sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn
from coredispatch.ops.creation.factories import full, given_or_default, number, sized
from coredispatch.ops.shape import joining
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType, Scalar, Tensor
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import exact, ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import default_dtype, int64, scalar_dtype
from coredispatch.registry.model.errors import ShapeError
from coredispatch.registry.model.scalars import arange_bounds, single_number
from coredispatch.registry.model.sizes import as_size, as_sizes, is_int

__all__ = [
    "arange",
    "closed_range",
    "eye",
    "linspace",
    "logspace",
    "tril_indices",
    "triu_indices",
    "vander",
]


def _arange_shape(
    start: Any, end: Any, step: Any, dtype: DType | None = None, *_: Any
) -> tuple[int, ...]:
    start, end, step = arange_bounds(start, end, step, dtype)
    if all(is_int(v) for v in (start, end, step)):
        return (-((start - end) // step),)
    return (math.ceil((end - start) / step),)


def _arange_dtype(start: Any, end: Any, step: Any, dtype: Any, *_: Any) -> DType:
    if dtype is not None:
        return dtype
    bounds = [number(v) for v in (start, end, step) if v is not None]
    return int64 if all(is_int(v) for v in bounds) else default_dtype()


def _ranges(make: Any) -> Iterator[Sample]:
    for bounds in ((5,), (0,), (2, 7), (2, 9, 3), (9, 2, -2), (0.5, 3), (0.0, 1.0, 0.25)):
        yield Sample(*bounds)
    yield Sample(0.3, 60.3, 0.06)  # a step that no dtype has: what adds it up drifts away


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


@composite(
    name="range",
    reference=lambda start=0, end=None, step=1, dtype=None: np.arange(
        0 if end is None else start, (start if end is None else end) + step / 2, step
    ),
    samples=lambda make: (
        Sample(*bounds) for bounds in ((2, 7), (2, 9, 3), (9, 2, -2), (0.5, 3), (0.0, 1.0, 0.25))
    ),
    tolerance=ulp(1),
    differentiable=False,
    factory=True,
)
def closed_range(
    start: Scalar = 0,
    end: Scalar | None = None,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Like :func:`arange`, with ``end`` included and floating by default."""
    warn(
        "torch.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end)."
    )
    start, end, step = arange_bounds(start, end, step)
    exact = all(is_int(v) for v in (start, end, step))  # doubles would lose their last bits
    count = 1 + ((end - start) // step if exact else math.floor((end - start) / step))
    drawn = int64 if exact else widest(device)
    values = arange(count, dtype=drawn, device=device) * step + start
    return values.to_dtype(dtype or default_dtype())


def _steps_shape(start: Any, end: Any, steps: int, *_: Any) -> tuple[int, ...]:
    return (as_size(steps, "steps"),)


def _linspace_dtype(start: Any, end: Any, steps: int, dtype: DType | None = None, *_: Any) -> DType:
    if dtype is not None:
        return dtype
    ends = [scalar_dtype(single_number(end, "end")), scalar_dtype(single_number(start, "start"))]
    return default_dtype().to_complex() if any(d.is_complex for d in ends) else default_dtype()


@composite(
    out=_steps_shape,
    dtype=_linspace_dtype,
    fits=("start", "end"),
    reference=np.linspace,
    # A step that no dtype has, many times: what adds it up drifts away.
    samples=lambda make: (
        Sample(*line) for line in (*((-1.0, 2.5, n) for n in (0, 1, 2, 17)), (0.5, 7.7, 1001))
    ),
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

    Without ``dtype`` the default floating one, or its complex partner for complex ends. Counted
    from the nearer end, so that the result is symmetric. Raises :class:`ArgumentError`
    for negative ``steps``.
    """
    _steps_shape(start, end, steps)
    dtype = _linspace_dtype(start, end, steps, dtype)
    start, end = single_number(start, "start"), single_number(end, "end")
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    i = arange(steps, dtype=widest(device), device=device)
    half = (steps + 1) // 2
    values = joining.cat([i[:half] * step + start, (i[half:] - (steps - 1)) * step + end])
    return values.to_dtype(dtype)


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
    """``base ** linspace(start, end, steps)``; for an integer dtype ``start`` and ``end`` are cut
    off to integers."""
    if dtype is not None and dtype.category < 2:  # as PyTorch does
        start, end = int(single_number(start, "start")), int(single_number(end, "end"))
    within = widest(device)
    exponents = linspace(start, end, steps, dtype=within, device=device)
    powers = full((steps,), float(base), dtype=within, device=device) ** exponents
    return powers.to_dtype(dtype or default_dtype())


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
        as_sizes((row, col), "(row, col)")
        below = sum(min(max(i + offset + (not upper), 0), col) for i in range(row))
        return (2, row * col - below if upper else below)

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
        row, col = as_sizes((row, col), "(row, col)")
        total = shape(row, col, offset)[1]
        # Nothing is looked for: how many elements a row has is known from its number.
        rows = arange(row, device=device)
        first = (rows + offset).clamp(0, col) if upper else lazy.zeros_like(rows)
        end = lazy.full_like(rows, col) if upper else (rows + offset + 1).clamp(0, col)
        ends = (end - first).cumsum(0)
        place = arange(total, device=device)
        i = lazy.searchsorted(ends, place, right=True)
        j = place + (end - ends).index_select(0, i)  # columns end where rows do
        return lazy.stack([i, j]).to_dtype(dtype or int64)

    side = "above" if upper else "below"
    indices.__doc__ = (
        f"Row and column numbers, (2, n) int64, of the elements on and {side} diagonal number "
        "``offset`` of a (row, col) matrix, in row-major order."
    )
    return indices


tril_indices = _triangle_indices("tril_indices", upper=False)


triu_indices = _triangle_indices("triu_indices", upper=True)


def _vander_reference(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    # np.vander multiplies column by column: its rounding errors add up.
    exponents = np.arange(len(x) if N is None else N, dtype=np.float64)
    return x[:, None] ** (exponents if increasing else exponents[::-1])


@composite(
    reference=_vander_reference,
    samples=lambda make: (Sample(make((n,))) for n in (1, 4, 5)),
    tolerance=ulp(16),
    dtypes="float",
)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde matrix, (len(x), N): column j holds ``x ** j`` (``x ** (N-1-j)`` by default)."""
    if x.ndim != 1:
        raise ShapeError(f"x must be a vector, and has shape {tuple(x.shape)}", fix="give a vector")
    count = len(x) if N is None else as_size(N, "N")
    exponents = arange(count, dtype=int64, device=x.device)
    if not increasing:
        exponents = (count - 1) - exponents
    return x.unsqueeze(-1) ** exponents
