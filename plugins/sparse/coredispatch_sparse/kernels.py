"""NumPy kernels on CSR arrays.

No kernel ever builds the dense form of a sparse operand. Sums over rows never go through
``np.add.reduceat`` with the row starts as they are: for an empty row it would return the next
row's first element instead of zero, so empty rows are left out first.
"""

from __future__ import annotations

import numpy as np

from coredispatch.plugin import ShapeError
from coredispatch_sparse.csr import CSR, Pattern, offsets

__all__ = [
    "QUIET",
    "add",
    "matmul",
    "sampled_product",
    "scale",
    "sum_rows",
    "to_dense",
    "to_sparse_csr",
    "transpose",
]

#: infinities and NaN are results like any other: NumPy's warnings stay off inside a kernel
QUIET = np.errstate(all="ignore")

# Elements of a gathered block: it should stay in the second-level cache. Measured best between
# 2**15 and 2**17 on AVX-512 machines with 1-2 MB of it.
_BLOCK = 1 << 16
# Below this many columns one reduceat over all rows beats a batched product per row length.
_NARROW = 4


def accumulation_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for the two-byte floating types, the dtype itself for all others."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def to_sparse_csr(dense: np.ndarray) -> CSR:
    """The nonzero elements of a matrix (NaN counts as nonzero), indices in int64."""
    if dense.ndim != 2:
        raise ShapeError(
            f"a sparse_csr tensor has 2 dimensions, got the shape {dense.shape}",
            fix="reshape to a matrix first",
        )
    rows, col = np.nonzero(dense)
    crow = offsets(np.bincount(rows, minlength=dense.shape[0]), np.dtype(np.int64))
    return CSR.of(Pattern(crow, col, dense.shape, check=False), dense[rows, col])


def to_dense(a: CSR) -> np.ndarray:
    """The matrix with zeros where nothing is stored."""
    out = np.zeros(a.shape, dtype=a.dtype)
    out[a.pattern.rows, a.col_indices] = a.values
    return out


def transpose(a: CSR) -> CSR:
    """The transpose, again in CSR; its pattern is worked out once per pattern."""
    pattern, order = a.pattern.transposed()
    return CSR.of(pattern, a.values[order])


@QUIET
def scale(a: CSR, factor: np.ndarray | float) -> CSR:
    """Every stored value times a scalar, in the dtype of the values."""
    return CSR.of(a.pattern, np.multiply(a.values, factor).astype(a.dtype, copy=False))


@QUIET
def add(a: CSR, b: CSR) -> CSR:
    """The sum; its pattern is the union of both (the shared one where they agree)."""
    if a.pattern.same(b.pattern):
        return CSR.of(a.pattern, np.add(a.values, b.values))
    if a.shape != b.shape:
        raise ShapeError(
            f"sparse_csr tensors of shapes {a.shape} and {b.shape} cannot be added",
            fix="sparse operands do not broadcast: give both the same shape",
        )
    columns = a.shape[1]
    places_a = a.pattern.rows.astype(np.int64) * columns + a.col_indices
    places_b = b.pattern.rows.astype(np.int64) * columns + b.col_indices
    places = np.union1d(places_a, places_b)
    values = np.zeros(len(places), dtype=np.result_type(a.values, b.values))
    values[np.searchsorted(places, places_a)] = a.values
    values[np.searchsorted(places, places_b)] += b.values
    rows, col = np.divmod(places, columns)
    index = np.promote_types(a.col_indices.dtype, b.col_indices.dtype)
    crow = offsets(np.bincount(rows, minlength=a.shape[0]), index)
    return CSR.of(Pattern(crow, col.astype(index, copy=False), a.shape, check=False), values)


def sum_rows(pattern: Pattern, terms: np.ndarray) -> np.ndarray:
    """Add up ``terms`` (one or more numbers per stored element, ``(nnz, ...)``) row by row.

    Returns ``(rows, ...)`` in the dtype of ``terms``; empty rows are zero.
    """
    out = np.zeros((pattern.shape[0], *terms.shape[1:]), dtype=terms.dtype)
    filled = np.flatnonzero(pattern.counts)
    if len(filled):
        starts = pattern.crow_indices[filled]
        out[filled] = np.add.reduceat(terms, starts, axis=0, dtype=terms.dtype)
    return out


@QUIET
def matmul(a: CSR, b: np.ndarray) -> np.ndarray:
    """``a @ b`` for ``b`` of shape ``(columns,)`` or ``(columns, n)``.

    Half-precision inputs are accumulated in float32 and rounded once.
    """
    dtype = np.result_type(a.dtype, b.dtype)
    wide = accumulation_dtype(dtype)
    values = a.values.astype(wide, copy=False)
    b = np.ascontiguousarray(b, dtype=wide)
    if b.ndim == 1:
        out = sum_rows(a.pattern, values * b[a.col_indices])
    elif b.shape[1] <= _NARROW:
        out = sum_rows(a.pattern, values[:, None] * b[a.col_indices])
    else:
        out = _matmul_by_length(a.pattern, values, b)
    return out.astype(dtype, copy=False)


def _matmul_by_length(pattern: Pattern, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Batched vector-matrix products over rows that hold equally many elements.

    Two to three times faster than multiplying and then adding up, because the products are
    never written to memory. There are at most sqrt(2 nnz) different lengths.
    """
    n = b.shape[1]
    out = np.zeros((pattern.shape[0], n), dtype=b.dtype)
    counts = pattern.counts
    lengths = np.unique(counts)
    for length in lengths[lengths > 0].tolist():
        rows = np.flatnonzero(counts == length)
        within = np.arange(length)
        step = max(1, _BLOCK // (length * n))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            at = pattern.crow_indices[some][:, None] + within
            gathered = b[pattern.col_indices[at]]
            out[some] = np.matmul(values[at][:, None, :], gathered)[:, 0]
    return out


@QUIET
def sampled_product(pattern: Pattern, x: np.ndarray, y: np.ndarray) -> CSR:
    """``x @ y.T`` at the places of ``pattern`` only (SDDMM, sampled dense-dense product).

    ``x`` is ``(rows, n)`` and ``y`` ``(columns, n)``; both may be 1-d, which stands for n = 1.
    """
    dtype = np.result_type(x.dtype, y.dtype)
    wide = accumulation_dtype(dtype)
    x = np.asarray(x, dtype=wide)
    y = np.asarray(y, dtype=wide)
    rows, col = pattern.rows, pattern.col_indices
    if x.ndim == 1:
        return CSR.of(pattern, (x[rows] * y[col]).astype(dtype, copy=False))
    values = np.empty(pattern.nnz, dtype=wide)
    step = max(1, _BLOCK // max(1, x.shape[1]))
    for first in range(0, pattern.nnz, step):
        part = slice(first, first + step)
        np.einsum("ij,ij->i", x[rows[part]], y[col[part]], out=values[part])
    return CSR.of(pattern, values.astype(dtype, copy=False))


def restrict(a: CSR, pattern: Pattern) -> CSR:
    """The elements of ``a`` at the places of ``pattern``; zero where ``a`` stores nothing."""
    if a.pattern.same(pattern):
        return CSR.of(pattern, a.values)
    columns = a.shape[1]
    stored = a.pattern.rows.astype(np.int64) * columns + a.col_indices
    wanted = pattern.rows.astype(np.int64) * columns + pattern.col_indices
    values = np.zeros(pattern.nnz, dtype=a.dtype)
    if len(stored):
        at = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
        found = stored[at] == wanted
        values[found] = a.values[at[found]]
    return CSR.of(pattern, values)
