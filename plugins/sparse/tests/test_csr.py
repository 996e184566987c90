"""The CSR class: what it accepts, and what each error names."""

from __future__ import annotations

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import ArgumentError, DimError, DTypeError, ShapeError
from coredispatch_sparse.csr import CSR

pytestmark = pytest.mark.once


def make(crow, col, values=None, shape=(3, 4), index=np.int64):
    if values is None:
        values = np.ones(len(col), np.float32)
    return CSR(np.array(crow, index), np.array(col, index), values, shape)


def test_accepts_and_reports():
    a = make([0, 2, 2, 3], [0, 3, 1])
    assert a.shape == (3, 4)
    assert a.nnz == 3
    assert a.dtype == np.float32
    assert a.ndim == 2
    assert a.pattern.rows.tolist() == [0, 0, 2]
    assert a.pattern.counts.tolist() == [2, 0, 1]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_accepts_no_elements(shape):
    a = make([0] * (shape[0] + 1), [], shape=shape)
    assert a.shape == shape
    assert a.nnz == 0


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_index_types_are_kept(index):
    a = make([0, 1, 1, 2], [1, 0], index=index)
    assert a.pattern.rows.dtype == index
    assert a.pattern.transposed()[0].crow_indices.dtype == index


@pytest.mark.parametrize(
    ("crow", "col", "error", "words"),
    [
        ([0, 2, 2, 3], [0, 4, 1], DimError, ["col_indices[1] is 4", "row 0", "4 columns"]),
        ([0, 2, 2, 3], [0, 3, -1], DimError, ["col_indices[2] is -1", "row 2"]),
        ([0, 2, 2, 3], [3, 0, 1], ArgumentError, ["row 0", "column 0 follows column 3"]),
        ([0, 0, 2, 3], [1, 1, 1], ArgumentError, ["row 1", "column 1 repeats"]),
        ([0, 2, 1, 3], [0, 1, 1], ArgumentError, ["row 1 starts at 2 and ends at 1"]),
        ([1, 2, 2, 3], [0, 1, 1], ArgumentError, ["crow_indices[0] is 1"]),
        ([0, 2, 2, 2], [0, 1, 1], ArgumentError, ["crow_indices[3] is 2", "3 column indices"]),
        ([0, 2, 3], [0, 1, 1], ShapeError, ["3 entries", "3 rows need 4"]),
    ],
)
def test_broken_invariants_are_named(crow, col, error, words):
    with pytest.raises(error) as raised:
        make(crow, col)
    for word in words:
        assert word in str(raised.value)


def test_columns_may_fall_from_one_row_to_the_next():
    make([0, 2, 4, 4], [2, 3, 0, 1])


def test_wrong_types_and_dimensions():
    with pytest.raises(DTypeError, match="float64"):
        make([0, 1, 1, 1], [0], index=np.float64)
    with pytest.raises(DTypeError, match="one index type"):
        CSR(np.zeros(1, np.int32), np.zeros(0, np.int64), np.zeros(0), (0, 3))
    with pytest.raises(ShapeError, match="2 dimensions"):
        CSR(np.zeros((2, 3), np.int64), np.zeros(0, np.int64), np.zeros(0), (2, 3))
    with pytest.raises(ShapeError, match="one value per column index"):
        make([0, 1, 1, 2], [1, 0], np.ones(3))
    with pytest.raises(ShapeError, match="not the shape of a matrix"):
        make([0, 1], [0], shape=(1, 2, 3))


def test_parts_that_do_not_fit_are_refused_where_nothing_is_computed():
    for device in ("cpu", "meta"):
        crow, col = (cd.tensor(n, device=device) for n in ([0, 1, 2], [0, 1]))
        parts = cd.ops.csr_assemble(crow, col, cd.ones(2, device=device), (2, 3))
        assert parts.shape == (2, 3)
        with pytest.raises(ShapeError, match=r"values has the shape \(3,\)"):
            cd.ops.csr_assemble(crow, col, cd.ones(3, device=device), (2, 3))
        with pytest.raises(ShapeError, match="4 rows need 5"):
            cd.ops.csr_assemble(crow, col, cd.ones(2, device=device), (4, 3))
