"""The raw data of the layout ``sparse_csr``: a checked CSR triple.

Compressed sparse row storage (Saad, *Iterative Methods for Sparse Linear Systems*, section 3.4):
row ``i`` holds ``values[crow[i]:crow[i+1]]`` in the columns ``col[crow[i]:crow[i+1]]``. The
invariants are PyTorch's: both index arrays have one integer type, ``crow`` runs from 0 to nnz
without decreasing, and the columns of a row are strictly increasing.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DimError, DTypeError, ShapeError, numpy_dtype

__all__ = ["CSR", "Pattern", "in_main_memory"]

_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


class Pattern:
    """Where the stored elements are: the two index arrays and the shape.

    The arrays are NumPy's, or those of the device the matrix was moved to. What is worked out from
    a pattern (:attr:`rows`, :meth:`transposed`) is for NumPy's.

    A pattern never changes (its arrays are read-only), so every matrix derived elementwise from
    another (its negation, its gradient) shares the pattern together with what was worked out
    from it: the row of each element and the pattern of the transpose.

    Attributes:
        turned_from: on a device, the pattern that this one is the transpose of, or None: turned
            back a matrix shares that one. The order of the elements is not kept there, as other
            streams would not wait for it.
    """

    __slots__ = (
        "_counts", "_rows", "_transposed", "col_indices", "crow_indices", "shape", "turned_from",
    )  # fmt: skip

    def __init__(
        self,
        crow_indices: Any,
        col_indices: Any,
        shape: tuple[int, int],
        *,
        check: bool = True,
    ) -> None:
        self.crow_indices = read_only(crow_indices)
        self.col_indices = read_only(col_indices)
        self.shape = shape
        self.turned_from: Pattern | None = None
        self._counts: np.ndarray | None = None
        self._rows: np.ndarray | None = None
        self._transposed: tuple[Pattern, np.ndarray] | None = None
        if check:
            check_pattern(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the checks: what comes out of a file is not to be trusted.
        return Pattern, (self.crow_indices, self.col_indices, self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> Pattern:
        return self

    @property
    def nnz(self) -> int:
        """Number of stored elements, explicit zeros included."""
        return int(self.col_indices.shape[0])

    @property
    def counts(self) -> np.ndarray:
        """Stored elements per row, ``(shape[0],)``."""
        if self._counts is None:
            self._counts = np.diff(self.crow_indices)
        return self._counts

    @property
    def rows(self) -> np.ndarray:
        """The row of each stored element, ``(nnz,)``, in the type of the indices."""
        if self._rows is None:
            rows = np.arange(self.shape[0], dtype=self.col_indices.dtype)
            self._rows = np.repeat(rows, self.counts)
        return self._rows

    def transposed(self) -> tuple[Pattern, np.ndarray]:
        """The transpose's pattern and the order in which it takes this pattern's values."""
        if self._transposed is None:
            # A stable sort by column leaves the rows inside a column in increasing order.
            order = np.argsort(self.col_indices, kind="stable")
            counts = np.bincount(self.col_indices, minlength=self.shape[1])
            crow = offsets(counts, self.col_indices.dtype)
            other = Pattern(crow, self.rows[order], self.shape[::-1], check=False)
            inverse = np.empty_like(order)
            inverse[order] = np.arange(len(order))
            other._transposed = (self, inverse)
            self._transposed = (other, order)
        return self._transposed

    def same(self, other: Pattern) -> bool:
        """Whether both patterns store the same places."""
        return self is other or (
            self.shape == other.shape
            and self.nnz == other.nnz
            and np.array_equal(self.crow_indices, other.crow_indices)
            and np.array_equal(self.col_indices, other.col_indices)
        )


def in_main_memory(array: Any) -> bool:
    """Whether an array is NumPy's own, and not one of a device, which may be made after it."""
    return isinstance(array, np.ndarray) and array.device == "cpu"


def read_only(index: Any) -> Any:
    """A contiguous array that cannot be written to: patterns are shared and remembered.

    The array of another device stays what it is: no operator writes to it.
    """
    if not in_main_memory(index):
        return index
    index = np.ascontiguousarray(index) if index.ndim == 1 else index
    index = index.view()
    index.flags.writeable = False
    return index


def offsets(counts: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``crow_indices`` of rows that hold ``counts`` elements each."""
    crow = np.zeros(len(counts) + 1, dtype=dtype)
    np.cumsum(counts, out=crow[1:])
    return crow


class CSR:
    """A two-dimensional array in compressed sparse row format.

    Args:
        crow_indices: ``(rows + 1,)`` int32 or int64, where each row starts.
        col_indices: ``(nnz,)`` of the same type, the column of each element.
        values: ``(nnz,)``, any dtype; its dtype is the matrix's.
        shape: ``(rows, columns)``.

    Raises:
        ShapeError: lengths or numbers of dimensions do not fit together.
        DTypeError: the indices are not both int32 or both int64.
        DimError: a column index lies outside the matrix; names the row and the index.
        ArgumentError: ``crow_indices`` does not run from 0 to nnz without decreasing, or the
            columns of a row are not strictly increasing; names the row.
    """

    __slots__ = ("pattern", "values")

    def __init__(
        self, crow_indices: Any, col_indices: Any, values: Any, shape: Sequence[int]
    ) -> None:
        pattern = Pattern(np.asarray(crow_indices), np.asarray(col_indices), size_of(shape))
        self._init(pattern, np.asarray(values))

    @classmethod
    def of(cls, pattern: Pattern, values: Any) -> CSR:
        """A matrix with a pattern that was checked before."""
        self = cls.__new__(cls)
        self._init(pattern, values)
        return self

    def _init(self, pattern: Pattern, values: Any) -> None:
        check_values(values, pattern.nnz)
        self.pattern = pattern
        self.values = values

    @property
    def crow_indices(self) -> Any:
        """Where each row starts, ``(rows + 1,)``."""
        return self.pattern.crow_indices

    @property
    def col_indices(self) -> Any:
        """The column of each element, ``(nnz,)``."""
        return self.pattern.col_indices

    @property
    def shape(self) -> tuple[int, int]:
        """``(rows, columns)``."""
        return self.pattern.shape

    @property
    def ndim(self) -> int:
        """Always 2: batches are not stored in this layout."""
        return 2

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """Number of stored elements, explicit zeros included."""
        return self.pattern.nnz

    def __reduce__(self) -> tuple[Any, ...]:
        return CSR.of, (self.pattern, self.values)

    def __deepcopy__(self, memo: dict[int, Any]) -> CSR:
        return CSR.of(self.pattern, self.values.copy())

    def astype(self, dtype: Any) -> CSR:
        """The same matrix with its values converted; the dispatcher promotes through this."""
        wanted, values = numpy_dtype(dtype), self.values
        if values.dtype.kind == "c" and wanted.kind != "c":  # NumPy would warn of what is dropped
            values = values.real if wanted.kind != "b" else values != 0
        return CSR.of(self.pattern, values.astype(wanted, copy=False))

    def __repr__(self) -> str:
        return (
            f"CSR(crow_indices={self.crow_indices!r}, col_indices={self.col_indices!r}, "
            f"values={self.values!r}, shape={self.shape})"
        )


def size_of(shape: Sequence[int]) -> tuple[int, int]:
    """``shape`` as two non-negative ints; raises ShapeError otherwise."""
    size = tuple(operator.index(n) for n in shape)
    if len(size) != 2 or min(size) < 0:
        raise ShapeError(
            f"size {size} is not the shape of a matrix",
            fix="sparse_csr holds 2-d tensors: give size=(rows, columns)",
        )
    return size


def check_lengths(crow: Any, col: Any, rows: int) -> None:
    """Raise unless the shapes of the index arrays are those of a matrix with so many rows."""
    for name, index in (("crow_indices", crow), ("col_indices", col)):
        if len(index.shape) != 1:
            raise ShapeError(
                f"{name} has {len(index.shape)} dimensions, expected 1",
                fix="sparse_csr holds 2-d tensors, whose index arrays are 1-d",
            )
    if crow.shape[0] != rows + 1:
        raise ShapeError(
            f"crow_indices has {crow.shape[0]} entries, but {rows} rows need {rows + 1}",
            fix="crow_indices holds the start of each row and, last, the number of elements",
        )


def check_values(values: Any, stored: int) -> None:
    """Raise unless there is one value for each stored element."""
    if tuple(values.shape) != (stored,):
        raise ShapeError(
            f"values has the shape {tuple(values.shape)}, but there are {stored} column indices",
            fix="give one value per column index, as a 1-d array",
        )


def check_pattern(pattern: Pattern) -> None:
    """Raise for the first invariant of the CSR format that does not hold."""
    crow, col = pattern.crow_indices, pattern.col_indices
    rows, columns = pattern.shape
    check_lengths(crow, col, rows)
    for name, index in (("crow_indices", crow), ("col_indices", col)):
        if index.dtype not in _INDEX_TYPES:
            raise DTypeError(
                f"{name} has dtype {index.dtype}, expected int32 or int64",
                fix=f"convert it: {name}.astype('int64')",
            )
    if crow.dtype != col.dtype:
        raise DTypeError(
            f"crow_indices is {crow.dtype} and col_indices is {col.dtype}",
            fix="use one index type for both",
        )
    _check_rows(crow, len(col))
    _check_columns(pattern, columns)


def _check_rows(crow: np.ndarray, nnz: int) -> None:
    if crow[0] != 0:
        raise ArgumentError(f"crow_indices[0] is {crow[0]}, expected 0")
    if crow[-1] != nnz:
        raise ArgumentError(
            f"crow_indices[{len(crow) - 1}] is {crow[-1]}, but there are {nnz} column indices",
            fix="the last entry of crow_indices is the number of stored elements",
        )
    falls = np.flatnonzero(crow[1:] < crow[:-1])
    if len(falls):
        row = int(falls[0])
        raise ArgumentError(
            f"row {row} starts at {crow[row]} and ends at {crow[row + 1]}: "
            f"crow_indices decreases at index {row + 1}"
        )


def _check_columns(pattern: Pattern, columns: int) -> None:
    col = pattern.col_indices
    outside = np.flatnonzero((col < 0) | (col >= columns))
    if len(outside):
        k = int(outside[0])
        raise DimError(
            f"col_indices[{k}] is {col[k]} (row {pattern.rows[k]}), "
            f"outside a matrix of {columns} columns"
        )
    same_row = pattern.rows[1:] == pattern.rows[:-1]
    wrong = np.flatnonzero(same_row & (col[1:] <= col[:-1]))
    if len(wrong):
        k = int(wrong[0])
        what = "repeats" if col[k + 1] == col[k] else "follows"
        raise ArgumentError(
            f"row {pattern.rows[k]}: column {col[k + 1]} {what} column {col[k]} "
            f"(col_indices[{k}:{k + 2}])",
            fix="sort the columns of each row and add up duplicates",
        )
