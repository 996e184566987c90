"""Searching sorted sequences, counting, and distinct elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod
from typing import Any, Literal

import numpy as np

from coredispatch.ops.elementwise import comparison
from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.extrema import amax, amin
from coredispatch.ops.reduction.sorting import sort
from coredispatch.ops.reduction.sums import any, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import filled
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import dot, exact, require_int, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Value, composite
from coredispatch.registry.model.dtypes import bool_, float32, float64, int32, int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.sizes import as_size
from coredispatch.registry.model.value import dtype_of

# ---- sorted sequences -------------------------------------------------------------------------


def _insertion_shape(sorted_sequence: Any, values: Any, *_: Any) -> tuple[int, ...]:
    shape = tuple(getattr(values, "shape", ()))
    rows = tuple(sorted_sequence.shape)
    if not rows:
        raise ShapeError(
            "the sorted sequence needs at least one dimension",
            fix="give a vector, or rows of sorted numbers",
        )
    if len(rows) > 1 and rows[:-1] != shape[:-1]:
        raise ShapeError(
            f"all but the last dimension must agree: sequences {rows}, values {shape}",
            fix="give one row of values for each row of sequences",
        )
    return shape


def _sortable(x: Any) -> Any:
    # ml_dtypes sorts NaN to nowhere in particular
    return x.astype(np.float64) if x.dtype.kind == "V" else x


def _sorted(x: Any) -> Any:
    return np.sort(_sortable(x)).astype(x.dtype)


def _insertion_samples(make: Any) -> Iterator[Sample]:
    for shape in ((), (5,), (3, 4), (0,)):
        yield Sample(_sorted(make((17,))), make(shape))
        yield Sample(_sorted(make((17,))), make(shape), right=True)
    yield Sample(_sorted(make((3, 5))), make((3, 4)))
    yield Sample(make((0,)), make((3,)))
    for shape in ((17,), (3, 5)):
        x = make(shape)
        yield Sample(x, make((3, 4)), sorter=np.argsort(_sortable(x), axis=-1, kind="stable"))


def _insertion_reference(
    sorted_sequence: Any,
    values: Any,
    right: bool = False,
    sorter: Any = None,
    side: Literal["left", "right"] | None = None,
    **_: Any,
) -> Any:
    side = "right" if right else side or "left"
    if sorter is not None:
        sorted_sequence = np.take_along_axis(sorted_sequence, sorter, -1)
    if not np.array_equal(np.sort(sorted_sequence), sorted_sequence, equal_nan=True):
        raise ValueError("the sequence is not sorted: any place may be found")
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side)
    width = sorted_sequence.shape[-1]
    rows = [
        np.searchsorted(s, v, side)
        for s, v in zip(
            sorted_sequence.reshape(-1, width), values.reshape(-1, values.shape[-1]), strict=True
        )
    ]
    return np.array(rows).reshape(values.shape)


@composite(
    out=_insertion_shape,
    dtype=lambda *args: int32 if args[2] else int64,
    reference=_insertion_reference,
    samples=_insertion_samples,
    takes="real",
    differentiable=False,
    tolerance=exact,
    method=False,
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where elements of ``input`` would have to be inserted to keep the order.

    Args:
        sorted_sequence: 1-d, or rows (last dim) whose leading dims are those of ``input``.
        input: a tensor of any shape (1-d sequences), or a number.
        out_int32: int32 indices instead of int64.
        right, side: after equal elements ("right") instead of before ("left").
        sorter: indices that sort ``sorted_sequence``, where it is not sorted.

    Returns:
        Indices in ``[0, n]`` in the shape of ``input``.
    """
    if side not in (None, "left", "right"):
        raise ArgumentError(f"side={side!r} is not 'left' or 'right'", fix="use 'left' or 'right'")
    if right and side == "left":
        raise ArgumentError("right=True and side='left' say the opposite", fix="use one of them")
    if sorter is not None:
        sorted_sequence = lazy.gather(sorted_sequence, -1, sorter)
    _insertion_shape(sorted_sequence, input)
    after = right or side == "right"
    value = lazy.unsqueeze(input, -1) if isinstance(input, Value) else input
    if sorted_sequence.ndim > 1:
        sorted_sequence = lazy.unsqueeze(sorted_sequence, -2)
    relation = comparison.le if after else comparison.lt
    passed = relation(sorted_sequence, value)
    if isinstance(input, Value) and dtype_of(input).is_floating_point and not after:
        # NaN sorts last: it passes every number.
        passed = comparison.logical_or(
            passed,
            comparison.logical_and(
                comparison.isnan(value), comparison.logical_not(comparison.isnan(sorted_sequence))
            ),
        )
    elif isinstance(input, Value) and dtype_of(input).is_floating_point:
        passed = comparison.logical_or(passed, comparison.isnan(value))
    out = sum(passed, -1)
    return lazy.to_dtype(out, int32) if out_int32 else out


@composite(
    reference=lambda self, boundaries, right=False, **_: _insertion_reference(
        boundaries, self, right
    ),
    samples=lambda make: (
        Sample(make(s), _sorted(make((17,))), right=r)
        for s in ((), (5,), (3, 4), (0,))
        for r in (False, True)
    ),
    differentiable=False,
    tolerance=exact,
    takes="real",
)
def bucketize(
    self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Index of the bucket between sorted 1-d ``boundaries`` each element falls into.

    Element ``x`` is in bucket i if ``boundaries[i-1] < x <= boundaries[i]``, with ``right`` if
    ``boundaries[i-1] <= x < boundaries[i]``.
    """
    if boundaries.ndim != 1:
        raise ShapeError(
            f"boundaries must be 1-d, got {boundaries.ndim} dimensions",
            fix="use searchsorted for rows of boundaries",
        )
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


@bucketize.overload
def _(self: Scalar, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return bucketize(
        lazy.full((), self, device=boundaries.device), boundaries, out_int32=out_int32, right=right
    )


# ---- counting ---------------------------------------------------------------------------------


@composite(
    reference=lambda self, weights=None, minlength=0: np.bincount(self, weights, minlength),
    samples=lambda make: (
        Sample(make.index((17,), 5)),
        Sample(make.index((17,), 5), make.float((17,))),
        Sample(make.index((0,), 5), minlength=3),
    ),
    dtypes="int",
    differentiable=False,
    tolerance=dot,
)
def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, ..., max(self) occurs in a 1-d tensor of non-negative integers.

    With ``weights`` the sum of the weights of each, in float64 (float32 weights: float32). The
    result has at least ``minlength`` elements.
    """
    require_int("bincount", self)
    if self.ndim != 1:
        raise ShapeError(
            f"bincount needs a 1-d tensor, got {self.ndim} dimensions",
            fix="reshape it with reshape(-1)",
        )
    count = as_size(minlength, "minlength")
    if self.numel():
        if amin(self).item() < 0:
            raise ArgumentError(
                "bincount needs non-negative integers", fix="subtract the least element first"
            )
        count = max(count, amax(self).item() + 1)
    if weights is None:
        values = lazy.ones_like(self, dtype=int64)
    else:
        values = weights if weights.dtype is float32 else lazy.to_dtype(weights, float64)
    zeros = filled(values, (count,), 0)
    return lazy.scatter_add(zeros, 0, lazy.to_dtype(self, int64), values)


def _cells(self: Any, bins: int, *_: Any) -> tuple[int, ...]:
    if as_size(bins, "bins") == 0:
        raise ArgumentError("bins must be positive, got 0", fix="use at least 1")
    return (bins,)


@composite(
    takes="real",
    out=_cells,
    dtype=same,
    samples=lambda make: (
        Sample(make((17,)), 4, -2, 2),
        Sample(make((3, 5)), 5),
    ),
    dtypes="float",
    differentiable=False,
    tolerance=exact,
)
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of elements in ``bins`` cells of equal width between ``min`` and ``max``.

    The last cell includes ``max``; elements outside are not counted. ``min == max`` means the
    range of the elements.
    """
    _cells(self, bins)
    low, high = min, max
    if low == high and self.numel():
        low, high = amin(self).item(), amax(self).item()
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise ArgumentError(f"max={high} must not be below min={low}", fix="swap min and max")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ArgumentError(f"the range [{low}, {high}] is not finite", fix="give min and max")
    x = lazy.reshape(self, (-1,))
    x = lazy.to_dtype(x, widest(x))  # the edges of narrow cells would be rounded
    inside = comparison.logical_and(comparison.ge(x, low), comparison.le(x, high))
    cell = lazy.floor(mul(div(sub(x, low), high - low), bins))
    cell = lazy.to_dtype(lazy.clamp(comparison.where(inside, cell, 0), 0, bins - 1), int64)
    zeros = filled(self, (bins,), 0)
    return lazy.scatter_add(zeros, 0, cell, lazy.to_dtype(inside, dtype_of(self)))


@composite(
    takes="real",
    reference=lambda elements, test_elements, assume_unique=False, invert=False: np.isin(
        elements, test_elements, invert=invert
    ),
    samples=lambda make: (
        Sample(make((3, 5)), make((4,))),
        Sample(make((17,)), make((2, 3)), invert=True),
    ),
    differentiable=False,
    tolerance=exact,
    method=False,
)
def isin(
    elements: Tensor | Scalar,
    test_elements: Tensor | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """Whether each element is among ``test_elements``, as bool in the shape of ``elements``."""
    tests = (
        lazy.reshape(test_elements, (-1,)) if isinstance(test_elements, Value) else test_elements
    )
    probe = lazy.unsqueeze(elements, -1) if isinstance(elements, Value) else elements
    equal = comparison.eq(probe, tests)
    found = any(equal, -1) if isinstance(test_elements, Value) else lazy.squeeze(equal, -1)
    return comparison.logical_not(found) if invert else found


# ---- distinct elements ------------------------------------------------------------------------


def _rows(x: Any, dim: int) -> Any:
    """Slices of ``x`` along ``dim`` as rows of a matrix."""
    moved = lazy.movedim(x, dim, 0)
    return lazy.reshape(moved, (x.shape[dim], prod(moved.shape[1:])))


def _runs(rows: Any) -> tuple[Any, Any, Any]:
    """Starts of runs of equal consecutive rows: (indices of starts, run number, run lengths)."""
    n = rows.shape[0]
    if n == 0:
        empty = lazy.zeros((0,), dtype=int64, device=rows.device)
        return empty, empty, empty
    first = lazy.ones((1,), dtype=bool_, device=rows.device)
    changed = any(comparison.ne(lazy.narrow(rows, 0, 1, n - 1), lazy.narrow(rows, 0, 0, n - 1)), 1)
    starts = lazy.cat([first, changed], 0)
    number = sub(lazy.cumsum(starts, 0), 1)
    index = lazy.reshape(lazy.nonzero(starts), (-1,))
    end = filled(index, (1,), n)
    counts = sub(lazy.cat([lazy.narrow(index, 0, 1, index.shape[0] - 1), end], 0), index)
    return index, number, counts


_TRIPLE = {
    "dtypes": "real",
    "differentiable": False,
    "tolerance": exact,
    "namespace": (),
    "method": False,
    "samples": lambda make: (
        Sample(make((17,)), None),
        Sample(make((3, 5)), None),
        Sample(make((6, 2)), 0),
        Sample(make((2, 5)), 1),
    ),
}


@composite(**_TRIPLE)
def unique_all(self: Tensor, dim: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct elements (slices along ``dim``) in order, the index of each element's value in
    them, and how often each occurs.
    """
    if dim is None:
        flat = lazy.reshape(self, (-1, 1))
        order = sort(lazy.reshape(self, (-1,)))[1]
        shape = self.shape
    else:
        flat = _rows(self, dim)
        order = _lexicographic(flat)
        shape = (self.shape[dim],)
    start, number, counts = _runs(lazy.index_select(flat, 0, order))
    inverse = lazy.scatter(lazy.zeros_like(order), 0, order, number)
    chosen = lazy.index_select(order, 0, start)
    source = lazy.reshape(self, (-1,)) if dim is None else self
    values = lazy.index_select(source, 0 if dim is None else dim, chosen)
    if dtype_of(values).is_floating_point:
        values = add(values, 0)  # -0.0 and 0.0 are one value: 0.0
    return values, lazy.reshape(inverse, shape), counts


def _lexicographic(rows: Any) -> Any:
    """The order that sorts rows by their first, then second, ... column."""
    order = lazy.arange(0, rows.shape[0], 1, dtype=int64, device=rows.device)
    for column in range(rows.shape[1] - 1, -1, -1):
        keys = lazy.index_select(lazy.select(rows, 1, column), 0, order)
        order = lazy.index_select(order, 0, sort(keys)[1])
    return order


@composite(**_TRIPLE)
def unique_runs(self: Tensor, dim: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Like :func:`unique_all` for runs of equal neighbours."""
    rows = lazy.reshape(self, (-1, 1)) if dim is None else _rows(self, dim)
    start, number, counts = _runs(rows)
    source = lazy.reshape(self, (-1,)) if dim is None else self
    values = lazy.index_select(source, 0 if dim is None else dim, start)
    shape = self.shape if dim is None else (self.shape[dim],)
    return values, lazy.reshape(number, shape), counts


def _chosen(found: Any, inverse: bool, counts: bool) -> Any:
    values, where, count = found
    result = [values, *([where] if inverse else []), *([count] if counts else [])]
    return result[0] if len(result) == 1 else tuple(result)


@composite(
    reference=lambda self: np.unique(self, equal_nan=False) + self.dtype.type(0),
    samples=lambda make: (Sample(make((17,))), Sample(make((3, 5)))),
    takes="real",
    differentiable=False,
    tolerance=exact,
)
def unique(self: Tensor) -> Tensor:
    """The distinct elements in ascending order, 1-d.

    ``unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None)`` also
    returns, if asked, for each element its index in the result, and how often each occurs; with
    ``dim`` it compares whole slices. The result is sorted whatever ``sorted`` says.
    """
    return unique_all(self, None)[0]


@unique.overload
def _(
    self: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return _chosen(unique_all(self, dim), return_inverse, return_counts)


@composite(
    samples=lambda make: (Sample(make((17,))), Sample(make((3, 5)))),
    takes="real",
    differentiable=False,
    tolerance=exact,
)
def unique_consecutive(self: Tensor) -> Tensor:
    """The elements with repetitions in a row removed, 1-d.

    ``unique_consecutive(self, return_inverse=False, return_counts=False, dim=None)`` as in
    :func:`unique`.
    """
    return unique_runs(self, None)[0]


@unique_consecutive.overload
def _(
    self: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return _chosen(unique_runs(self, dim), return_inverse, return_counts)
