"""Shapes and dtypes of what the sparse operators give, from their arguments."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import DType, ShapeError, to_raw
from coredispatch_sparse.csr import check_lengths, check_values, size_of

__all__ = [
    "assembled",
    "index_dtype",
    "matrix",
    "product",
    "sampled",
    "second_dtype",
    "stored",
    "transposed",
    "values_dtype",
]


def matrix(self: Any, *_: Any) -> tuple[int, ...]:
    """The shape of a matrix."""
    if len(self.shape) != 2:
        raise ShapeError(
            f"a sparse_csr tensor has 2 dimensions, got the shape {tuple(self.shape)}",
            fix="reshape to a matrix first",
        )
    return tuple(self.shape)


def transposed(self: Any) -> tuple[int, ...]:
    """The shape of the transpose."""
    return matrix(self)[::-1]


def product(self: Any, other: Any) -> tuple[int, ...]:
    """The shape of a product with a strided vector or matrix."""
    rows, columns = matrix(self)
    if len(other.shape) not in (1, 2) or other.shape[0] != columns:
        raise ShapeError(
            f"a sparse_csr tensor of shape {(rows, columns)} times a tensor of shape "
            f"{tuple(other.shape)}",
            fix=f"the dense factor is ({columns},) or ({columns}, n)",
        )
    return (rows, *other.shape[1:])


def sampled(self: Any, x: Any, y: Any) -> tuple[int, ...]:
    """The shape of a pattern that a product is sampled at."""
    rows, columns = matrix(self)
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[0]:
        raise ShapeError(f"factors of shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if (x.shape[0], y.shape[1]) != (rows, columns):
        raise ShapeError(
            f"the product of {tuple(x.shape)} and {tuple(y.shape)} is no {(rows, columns)} matrix",
            fix="the factors' product has the shape of the sparse tensor",
        )
    return (rows, columns)


def assembled(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> tuple[int, ...]:
    """The size that was given, of parts whose lengths fit it."""
    rows, columns = size_of(size)
    check_lengths(crow_indices, col_indices, rows)
    check_values(values, col_indices.shape[0])
    return (rows, columns)


def values_dtype(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> DType:
    """The dtype of the values that were given."""
    return DType.of(values.dtype)


def second_dtype(self: Any, values: Any) -> DType:
    """The dtype of the second argument."""
    return DType.of(values.dtype)


def stored(self: Any, *_: Any) -> tuple[int, ...]:
    """One length: how many elements are stored."""
    return (to_raw(self).nnz,)


def index_dtype(self: Any) -> DType:
    """The dtype of the indices."""
    return DType.of(to_raw(self).col_indices.dtype)
