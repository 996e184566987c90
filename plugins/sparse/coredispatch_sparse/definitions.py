"""What the sparse operators are tried with, and what they mean, on NumPy's dense arrays.

An array that stands for a sparse tensor is marked with :func:`coredispatch.plugin.laid_out`; its
zeros are the places that are not stored. References loop over stored elements only: what is not
stored takes no part, not even in ``0 * infinity``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.plugin import Sample, laid_out

__all__ = [
    "assemble",
    "assemblies",
    "columns",
    "dense_matrices",
    "either",
    "matrices",
    "matrices_and_masks",
    "matrices_and_values",
    "matrix_products",
    "product",
    "products",
    "row_pointers",
    "sampled",
    "sampled_product",
    "sampled_products",
    "sparse",
    "sparse_product",
    "sparse_sum_of_product",
    "stored",
    "stored_count",
    "strided",
    "sums_of_products",
    "transposed",
    "with_values",
]

LAYOUT = "sparse_csr"
SHAPES = ((1, 1), (4, 4), (3, 5), (17, 9), (2, 70), (0, 3), (3, 0))


# ---- samples ----------------------------------------------------------------------------------


def thin(make: Any, array: Any) -> Any:
    """The array with half of its elements zero, the first row among them, and no other zeros."""
    kept = make.rng.random(array.shape) < 0.5
    kept[:1] = array.shape[0] == 1
    filled = np.where(array == 0, np.ones((), array.dtype), array)  # a zero would not be stored
    return np.where(kept, filled, np.zeros((), array.dtype)).astype(array.dtype)


def csr(make: Any, shape: tuple[int, int]) -> Any:
    """A thinned matrix that stands for a sparse tensor."""
    return laid_out(thin(make, make(shape)), LAYOUT)


def matrices(make: Any) -> Iterator[Sample]:
    """``op(sparse)``: square, wide, tall, with empty rows, and without elements."""
    for shape in SHAPES:
        yield Sample(csr(make, shape))


def dense_matrices(make: Any) -> Iterator[Sample]:
    """``op(strided)``: the same shapes, with zeros and full."""
    for shape in SHAPES:
        yield Sample(thin(make, make(shape)))
    yield Sample(make((5, 4)))


def either(make: Any) -> Iterator[Sample]:
    """``op(sparse)`` and ``op(strided)`` of matrices."""
    yield from matrices(make)
    yield from dense_matrices(make)


def matrices_and_masks(make: Any) -> Iterator[Sample]:
    """``op(self, mask)``: a sparse mask, ``self`` sparse and strided."""
    for shape in ((4, 4), (3, 5), (17, 9), (0, 3)):
        yield Sample(make(shape), csr(make, shape))
        yield Sample(csr(make, shape), csr(make, shape))


def products(make: Any) -> Iterator[Sample]:
    """``op(sparse, strided)``: vectors, narrow matrices and wide ones."""
    for rows, inner in ((4, 4), (3, 5), (17, 9), (0, 3), (3, 0)):
        yield Sample(csr(make, (rows, inner)), make((inner,)))
        yield Sample(csr(make, (rows, inner)), make((inner, 3)))
        yield Sample(csr(make, (rows, inner)), make((inner, 17)))


def matrix_products(make: Any) -> Iterator[Sample]:
    """``op(sparse, strided)`` of matrices."""
    for rows, inner in ((4, 4), (3, 5), (17, 9), (0, 3)):
        yield Sample(csr(make, (rows, inner)), make((inner, 3)))


def sums_of_products(make: Any) -> Iterator[Sample]:
    """``op(sparse, sparse, strided, beta=, alpha=)``."""
    for rows, inner in ((4, 4), (3, 5), (17, 9)):
        operands = csr(make, (rows, 3)), csr(make, (rows, inner)), make((inner, 3))
        yield Sample(*operands)
        yield Sample(*operands, beta=2, alpha=3)


def sampled_products(make: Any) -> Iterator[Sample]:
    """``op(sparse pattern, x, y)``."""
    for rows, inner, width in ((4, 4, 4), (3, 2, 5), (17, 6, 9), (3, 1, 5), (0, 2, 3)):
        yield Sample(csr(make, (rows, width)), make((rows, inner)), make((inner, width)))


def matrices_and_values(make: Any) -> Iterator[Sample]:
    """``op(sparse, values)`` with as many values as are stored."""
    for shape in SHAPES:
        matrix = csr(make, shape)
        count = int(np.count_nonzero(np.asarray(matrix)))
        yield Sample(matrix, thin_free(make, count))


def thin_free(make: Any, count: int) -> Any:
    """Numbers of which none is zero."""
    numbers = make((count,))
    return np.where(numbers == 0, np.ones((), numbers.dtype), numbers).astype(numbers.dtype)


def assemblies(make: Any) -> Iterator[Sample]:
    """``op(crow_indices, col_indices, values, size)``."""
    for shape in SHAPES:
        pattern = thin(make, np.ones(shape))
        rows = row_pointers(pattern)
        yield Sample(rows, columns(pattern), thin_free(make, int(rows[-1])), shape)


# ---- definitions ------------------------------------------------------------------------------


def sparse(self: Any) -> Any:
    """The elements that are not zero, sparse."""
    return laid_out(self, LAYOUT)


def strided(self: Any) -> Any:
    """The elements, strided."""
    return np.array(self, subok=False)


def transposed(self: Any) -> Any:
    """The transpose, sparse."""
    return laid_out(np.asarray(self).T, LAYOUT)


def stored(self: Any) -> Any:
    """The elements that are not zero, row by row."""
    dense = np.asarray(self)
    return dense[dense != 0]


def row_pointers(self: Any) -> Any:
    """How many elements stand before each row, and in all."""
    counts = (np.asarray(self) != 0).sum(1)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def stored_count(self: Any) -> int:
    """How many elements are not zero."""
    return int(np.count_nonzero(np.asarray(self)))


def coordinates(self: Any) -> Any:
    """Row and column of every element that is not zero."""
    return np.stack(np.nonzero(np.asarray(self))).astype(np.int64)


def columns(self: Any) -> Any:
    """The column of every element that is not zero."""
    return np.nonzero(np.asarray(self))[1].astype(np.int64)


def with_values(self: Any, values: Any) -> Any:
    """Other numbers at the places of ``self``."""
    dense = np.asarray(self)
    out = np.zeros(dense.shape, values.dtype)
    out[dense != 0] = values
    return laid_out(out, LAYOUT)


def assemble(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> Any:
    """A matrix put together element by element."""
    out = np.zeros(size, values.dtype)
    for row in range(size[0]):
        for at in range(int(crow_indices[row]), int(crow_indices[row + 1])):
            out[row, int(col_indices[at])] = values[at]
    return laid_out(out, LAYOUT)


def sampled(self: Any, mask: Any) -> Any:
    """The elements of ``self`` at the places of ``mask``."""
    dense = np.asarray(self)
    return laid_out(np.where(np.asarray(mask) != 0, dense, np.zeros((), dense.dtype)), LAYOUT)


def product(self: Any, other: Any) -> Any:
    """The sum over the stored elements of each row of ``self``."""
    left, right = np.asarray(self), np.asarray(other)
    out = np.zeros((left.shape[0], *right.shape[1:]), np.result_type(left, right))
    for row in range(left.shape[0]):
        at = np.flatnonzero(left[row])
        if at.size:
            out[row] = left[row, at] @ right[at]
    return out


def sparse_product(self: Any, other: Any) -> Any:
    """:func:`product`, sparse."""
    return laid_out(product(self, other), LAYOUT)


def sparse_sum_of_product(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * self + alpha * product``, sparse."""
    return laid_out(beta * np.asarray(self) + alpha * product(mat1, mat2), LAYOUT)


def sampled_product(self: Any, x: Any, y: Any) -> Any:
    """``x @ y`` where ``self`` stores something."""
    full = np.asarray(x) @ np.asarray(y)
    return laid_out(np.where(np.asarray(self) != 0, full, np.zeros((), full.dtype)), LAYOUT)
