"""Slices of a tensor read and written by number: one index vector along one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.indexing.rules import index_selected, require_index, rows_fit
from coredispatch.ops.indexing.subscripts import getitem, getitem_backward, index_put
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.inspection import least
from coredispatch.ops.support.rules import dot, exact, normalize_dim, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import bool_
from coredispatch.registry.model.errors import DimError, DTypeError

__all__ = ["index_add", "index_copy", "index_fill", "index_select", "take"]


def _row_choices(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), 0, make.index((3,), 5))
    yield Sample(make((5,)), 0, make.index((), 5))
    yield Sample(make((4, 4)), 1, make.index((7,), 4))
    yield Sample(make((2, 3, 5)), -2, make.index((4,), 3))
    yield Sample(make((3, 5)), 0, make.index((0,), 3))


@composite(
    out=index_selected,
    dtype=same,
    reference=lambda self, dim, index: np.take(self, np.atleast_1d(index), dim),
    samples=_row_choices,
    errors=lambda make: [
        (Sample(make((3, 4)), 0, np.array([3])), DimError),
        (Sample(make((3, 4)), 0, np.array([[1]])), DimError),
    ],
    tolerance=exact,
)
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along ``dim`` that ``index`` (a vector, int64 or int32) names; a copy."""
    index_selected(self, dim, index)
    if self.ndim == 0:
        return index_select(shape.reshape(self, (1,)), 0, index).reshape(())
    _not_negative(index)
    where = (*(slice(None),) * normalize_dim(dim, self.ndim), shape.reshape(index, (-1,)))
    return getitem(self, where)


def _not_negative(index: Any) -> None:
    if index.numel() and least(index) < 0:
        raise DimError(f"index {least(index)} is negative", fix="count from the front")


def _index_select_grad(grad: Any, self_shape: Any, dim: Any, index: Any) -> Any:
    if not self_shape:
        return shape.reshape(grad, ())
    where = (*(slice(None),) * normalize_dim(dim, len(self_shape)), shape.reshape(index, (-1,)))
    return getitem_backward(grad, where, self_shape)


index_select.vjp(self=_index_select_grad)


def _row_writes(make: Any) -> Iterator[Sample]:
    """Without repeated places: which of several values stays is not defined."""
    yield Sample(make((5,)), 0, make.distinct((5,), 5), make((5,)))
    yield Sample(make((4, 4)), 1, make.distinct((1,), 4), make((4, 1)))
    yield Sample(make((2, 3, 5)), -2, make.distinct((2,), 3), make((2, 2, 5)))


def _row_adds(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), 0, make.index((2,), 5), make((2,)))
    yield Sample(make((4, 4)), 1, make.index((1,), 4), make((4, 1)))
    yield Sample(make((2, 3, 5)), -2, make.index((2,), 3), make((2, 2, 5)))
    yield Sample(make((3, 5)), 0, make.index((4,), 3), make((4, 5)))
    yield Sample(make((2, 3, 5)), 2, make.index((3,), 5), make((2, 3, 3)))


def _index_add_reference(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    out = self.copy()
    np.add.at(np.moveaxis(out, dim, 0), index, np.moveaxis(source, dim, 0) * alpha)
    return out


def _rows(self: Any, dim: int, index: Any, from_the_end: bool = False) -> tuple[Any, ...]:
    require_index(index)
    if not from_the_end:
        _not_negative(index)
    return (*(slice(None),) * normalize_dim(dim, self.ndim), shape.reshape(index, (-1,)))


def _put(self: Any, dim: int, index: Any, values: Any, accumulate: bool = False) -> Any:
    """``index_put`` along ``dim``; a tensor without dimensions is a vector of one element."""
    if self.ndim:
        return index_put(self, _rows(self, dim, index), values, accumulate)
    normalize_dim(dim, 0)
    vector = shape.reshape(self, (1,))
    return shape.reshape(index_put(vector, _rows(vector, 0, index), values, accumulate), ())


@composite(
    out=rows_fit,
    dtype=same,
    reference=_index_add_reference,
    samples=_row_adds,
    tolerance=dot,
    inplace=True,
    fits=("alpha",),
    stores=("source",),
)
def index_add(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1
) -> Tensor:
    """``self`` with ``alpha`` times the slices of ``source`` added to the slices of ``index``."""
    rows_fit(self, dim, index, source)
    terms = source if alpha == 1 else source * alpha
    if self.dtype is bool_:  # a product with a number is an integer
        terms = lazy.to_dtype(terms, bool_)
    return _put(self, dim, index, terms, True)


def _index_add_source_grad(grad: Any, dim: Any, index: Any, source_shape: Any, alpha: Any) -> Any:
    rows = shape.reshape(index_select(grad, dim, index), source_shape)
    return rows if alpha == 1 else rows * alpha


index_add.vjp(self=lambda grad: grad, source=_index_add_source_grad)


def _index_copy_reference(self: Any, dim: int, index: Any, source: Any) -> Any:
    out = self.copy()
    np.moveaxis(out, dim, 0)[index] = np.moveaxis(source, dim, 0)
    return out


@composite(
    out=rows_fit,
    dtype=same,
    reference=_index_copy_reference,
    samples=_row_writes,
    tolerance=exact,
    inplace=True,
    stores=("source",),
)
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``self`` with the slices that ``index`` names taken from ``source``."""
    rows_fit(self, dim, index, source)
    return _put(self, dim, index, source)


index_copy.vjp(
    self=lambda grad, dim, index: lazy.index_fill(grad, dim, index, 0),
    source=lambda grad, dim, index, source_shape: shape.reshape(
        index_select(grad, dim, index), source_shape
    ),
)


def _row_fills(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), 0, make.index((5,), 5), 1)
    yield Sample(make((4, 4)), 1, make.index((1,), 4), 1)
    yield Sample(make((2, 3, 5)), -2, make.index((2,), 3), 1)
    yield Sample(make((4, 4)), 1, np.array([-1, 0, -4]), 1)


def _index_fill_reference(self: Any, dim: int, index: Any, value: Any) -> Any:
    out = self.copy()
    np.moveaxis(out, dim, 0)[index] = value
    return out


@composite(
    out=lambda self, dim, index, value: rows_fit(self, dim, index),
    dtype=same,
    reference=_index_fill_reference,
    samples=_row_fills,
    errors=lambda make: [
        (Sample(make((3, 4)), 0, np.array([3]), 1), DimError),
        (Sample(make((3, 4)), 1, np.array([0, -5]), 1), DimError),
    ],
    tolerance=exact,
    inplace=True,
    fits=("value",),
)
def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | Scalar) -> Tensor:
    """``self`` with ``value`` (a number or 0-dim tensor) in the slices that ``index`` names.

    Negative indices count from the end, here alone among its siblings, as in PyTorch.
    """
    vector = self if self.ndim else shape.reshape(self, (1,))
    where = _rows(vector, normalize_dim(dim, vector.ndim), index, from_the_end=True)
    return shape.reshape(index_put(vector, where, value, False), tuple(self.shape))


index_fill.vjp(
    self=lambda grad, dim, index: index_fill(grad, dim, index, 0),
    # What was written twice is one element.
    value=lambda grad, dim, index: lazy.sum(lazy.sub(grad, index_fill(grad, dim, index, 0))),
)


def _taken_shape(self: Any, index: Any) -> tuple[int, ...]:
    require_index(index)
    return tuple(index.shape)


def _takes(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), make.index((3,), 5))
    yield Sample(make((3, 5)), make.index((2, 4), 15))
    yield Sample(make((3, 5)), make.index((), 15))
    yield Sample(make((3, 5)), np.array([-1, 14, 0, -15]))  # places named twice, from either end


@composite(
    out=_taken_shape,
    dtype=same,
    reference=lambda self, index: np.take(self, index),
    samples=_takes,
    errors=lambda make: [
        (Sample(make((3, 4)), np.array([12])), DimError),
        (Sample(make((3, 4)), np.array([True])), DTypeError),
        (Sample(make((3, 4)), np.array([0.0])), DTypeError),
    ],
    tolerance=exact,
)
def take(self: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened ``self`` that ``index`` names, in the shape of ``index``."""
    require_index(index)
    flat = shape.reshape(self, (self.numel(),))
    return shape.reshape(getitem(flat, (shape.reshape(index, (-1,)),)), tuple(index.shape))


def _take_grad(grad: Any, self_shape: Any, index: Any) -> Any:
    if not index.ndim:
        grad, index = shape.reshape(grad, (1,)), index.reshape((1,))
    flat = getitem_backward(grad, (index,), (prod(self_shape),))
    return shape.reshape(flat, self_shape)


take.vjp(self=_take_grad)
