"""``sparse_csr_tensor``: from index and value data, or from tensors, to a sparse tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import DType, Tensor, default_dtype, from_raw, numpy_dtype, to_raw
from coredispatch_sparse.ops import csr_assemble

__all__ = ["sparse_csr_tensor"]


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A sparse tensor in CSR format (``torch.sparse_csr_tensor``).

    Args:
        crow_indices: ``(rows + 1,)`` integers, where each row starts; tensor, array or list.
        col_indices: ``(nnz,)`` integers, strictly increasing inside each row.
        values: ``(nnz,)`` numbers. A tensor that requires grad receives its gradient.
        size: (rows, columns); without it, as many columns as the largest index needs.
        dtype: of the values; without it theirs (the default dtype for Python floats).
        requires_grad: make the result a leaf that requires grad. Its gradient is sparse.

    Everything is copied. Raises ShapeError, DTypeError, DimError or ArgumentError naming the row
    or index where the parts are not a CSR matrix.
    """
    crow, col = as_index(crow_indices), as_index(col_indices)
    stored = as_values(values)
    if dtype is not None and stored.dtype is not DType.of(dtype):
        stored = stored.to(DType.of(dtype))
    if size is None:
        columns = np.asarray(to_raw(col))
        size = (max(len(to_raw(crow)) - 1, 0), int(columns.max()) + 1 if columns.size else 0)
    result = csr_assemble(crow, col, stored, tuple(size))
    return result.requires_grad_() if requires_grad else result


def as_index(data: Any) -> Tensor:
    """Index data as a tensor; Python ints become int64, an integer array keeps its type."""
    if isinstance(data, Tensor):
        return data
    array = np.asarray(data)
    return from_raw(array.astype(np.int64) if array.size == 0 else array, backend="cpu")


def as_values(data: Any) -> Tensor:
    """Values as a tensor; Python floats get the default dtype, an array keeps its type."""
    if isinstance(data, Tensor):
        return data
    array = np.asarray(data)
    if not isinstance(data, np.ndarray) and array.dtype == np.float64:
        array = array.astype(numpy_dtype(default_dtype()))
    return from_raw(array, backend="cpu")
