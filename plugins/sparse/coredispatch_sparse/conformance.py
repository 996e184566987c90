"""What the conformance suite asks of CSR beside what it asks of every layout, and its faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError
from coredispatch_sparse.layout import unpack
from coredispatch_sparse.ops import (
    col_indices,
    crow_indices,
    csr_assemble,
    sparse_mask,
    to_sparse_csr,
)

__all__ = ["CASES", "FAULTS"]


def matrix(case: Any) -> np.ndarray:
    """A matrix with an empty first row and one in the middle."""
    array = case.rng.uniform(-2, 2, (6, 5)).astype(np.float32)
    array[case.rng.random(array.shape) < 0.6] = 0.0
    array[[0, 3]] = 0.0
    array[5, 4] = 1.5
    return array


def empty_rows(case: Any) -> None:
    """Row pointers count the elements of every row, of empty ones too."""
    dense = matrix(case)
    rows = crow_indices(to_sparse_csr(case.tensor(dense))).tolist()
    wanted = [0, *np.cumsum((dense != 0).sum(1)).tolist()]
    case.expect(rows == wanted, f"row pointers {rows}, not {wanted}")


def product(case: Any) -> None:
    """The product with a matrix is the dense one."""
    dense = matrix(case)
    other = case.rng.uniform(-1, 1, (5, 3)).astype(np.float32)
    result = case.array(to_sparse_csr(case.tensor(dense)) @ case.tensor(other))
    error = np.abs(result - dense.astype(np.float64) @ other).max()
    case.expect(error < 1e-5, f"the product is off by {error}")


def stored_gradient(case: Any) -> None:
    """The gradient of a product reaches the dense leaf at the places that were stored."""
    dense = matrix(case)
    leaf = case.tensor(dense).requires_grad_(True)
    (to_sparse_csr(leaf) @ case.tensor(np.ones((5, 2), np.float32))).sum().backward()
    found = case.array(leaf.grad) * (dense != 0)
    case.expect(np.array_equal(found, np.where(dense != 0, 2.0, 0.0)), f"gradient {found}")


def stored_count(case: Any) -> None:
    """``_nnz`` counts what is stored, explicit zeros included."""
    dense = matrix(case)
    sparse: Any = to_sparse_csr(case.tensor(dense))
    first: Any = to_sparse_csr(case.tensor(dense[:1]))
    found = [sparse._nnz(), (sparse * 0.0)._nnz(), first._nnz()]
    count = int((dense != 0).sum())
    case.expect(found == [count, count, 0], f"{found} elements are stored, not {[count, count, 0]}")


def unsorted_columns(case: Any) -> None:
    """Columns of a row that do not increase are refused by name, wherever they come in."""
    values = np.array([1.0, 2.0, 3.0], np.float32)
    for what, columns in (("follows", [0, 3, 1]), ("repeats", [0, 1, 1])):
        parts = np.array([0, 1, 3]), np.array(columns)

        def assembled(parts: Any = parts) -> Any:
            crow, columns = map(case.tensor, parts)
            return csr_assemble(crow, columns, case.tensor(values), (2, 4))

        def loaded(parts: Any = parts) -> Any:
            named = dict(zip(("crow_indices", "col_indices"), parts, strict=True))
            return unpack({**named, "values": values, "size": [2, 4]})

        for way in (assembled, loaded):
            try:
                way()
            except ArgumentError as error:
                told = f"row 1: column 1 {what}" in str(error)
                case.expect(told, f"refused, without naming the row and the columns: {error}")
            else:
                case.expect(False, f"columns {columns} are taken: one {what} the other")


def sorted_results(case: Any) -> None:
    """What kernels make has increasing columns, none of them twice."""
    first, second = (to_sparse_csr(case.tensor(matrix(case))) for _ in range(2))
    results = {
        "the transpose": first.mT,
        "the sum": first + second,
        "the difference": first - second,
        "a sum with itself": first + first,
        "the part under a mask": sparse_mask(first, second),
        "twice the transpose": first.mT.mT,
    }
    for what, result in results.items():
        rows, columns = case.array(crow_indices(result)), case.array(col_indices(result))
        parts = np.split(columns, rows[1:-1])
        rising = all(bool((np.diff(part) > 0).all()) for part in parts)
        case.expect(rising, f"{what} has rows whose columns do not increase: {columns.tolist()}")


CASES: dict[str, Callable[[Any], None]] = {
    "empty-rows": empty_rows,
    "stored-count": stored_count,
    "product": product,
    "unsorted-columns": unsorted_columns,
    "sorted-results": sorted_results,
    "stored-gradient": stored_gradient,
}


# ---- faults that the self-test plants ---------------------------------------------------------


def shifted_rows(correct: Any, raws: Any) -> Any:
    """The row before an empty one loses its elements to it."""
    result = correct(*raws)
    rows = result.crow_indices
    empty = np.flatnonzero(rows[1:] == rows[:-1])
    if empty.size:
        rows.flags.writeable = True
        rows[empty[-1]] = rows[max(empty[-1] - 1, 0)]
    return result


def dropped_last(correct: Any, raws: Any) -> Any:
    """The product forgets the last stored element."""
    left, right = raws
    if getattr(left, "nnz", 0) < 2:
        return correct(*raws)
    values = left.values.copy()
    values[-1] = 0
    return correct(type(left).of(left.pattern, values), right)


def sum_of_patterns(correct: Any, raws: Any) -> Any:
    """The sum of two patterns keeps the first one's only."""
    a, b = raws
    if not hasattr(a, "pattern") or not hasattr(b, "pattern") or a.pattern.same(b.pattern):
        return correct(*raws)
    whole = correct(*raws)
    from coredispatch_sparse.kernels import restrict

    return restrict(whole, a.pattern)


def columns_unread(correct: Any, raws: Any) -> Any:
    """A matrix is assembled of columns in any order."""
    crow, col, values, size = raws
    from coredispatch_sparse.csr import CSR, Pattern

    return CSR.of(Pattern(crow.copy(), col.copy(), tuple(size), check=False), values.copy())


def rows_backwards(correct: Any, raws: Any) -> Any:
    """The sum holds the right numbers, the columns of each row from the last to the first."""
    result = correct(*raws)
    if not hasattr(result, "pattern"):
        return result
    order = np.lexsort((-result.col_indices, result.pattern.rows))
    pattern = type(result.pattern)
    turned = pattern(result.crow_indices, result.col_indices[order], result.shape, check=False)
    return type(result).of(turned, result.values[order])


def first_column_uncounted(correct: Any, raws: Any) -> Any:
    """The number of stored elements leaves the first column out."""
    (self,) = raws
    return int((self.col_indices > 0).sum())


#: name -> (operator, key whose kernel is at fault, fault, what the case that notices says)
FAULTS: dict[str, tuple[str, str, Callable[[Any, Any], Any], str]] = {
    "CSR empty-row shift": ("csr_from_dense", "cpu", shifted_rows, "row pointers"),
    "CSR product without its last element": (
        "matmul",
        "sparse_csr",
        dropped_last,
        "product is off|output 0",
    ),
    "CSR of columns in any order": (
        "csr_assemble",
        "cpu",
        columns_unread,
        "are taken",
    ),
    "CSR count without a column": (
        "_nnz",
        "sparse_csr",
        first_column_uncounted,
        "elements are stored",
    ),
    "CSR sum with rows backwards": ("add", "sparse_csr", rows_backwards, "do not increase"),
    "CSR sum with the first pattern": ("add", "sparse_csr", sum_of_patterns, "output 0"),
}
