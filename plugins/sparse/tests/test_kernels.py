"""NumPy kernels on CSR arrays against SciPy and against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from coredispatch_sparse import kernels
from coredispatch_sparse.csr import CSR

pytestmark = pytest.mark.once

# Rows without elements stand first, in the middle, in pairs and last: every place where a
# reduceat over unfiltered row starts would shift a neighbour's value into the empty row.
EMPTY_ROWS = [
    [[0, 0, 0], [1, 0, 2], [0, 3, 0]],
    [[1, 0, 2], [0, 0, 0], [0, 3, 0]],
    [[1, 0, 2], [0, 0, 0], [0, 0, 0], [0, 3, 0]],
    [[1, 0, 2], [0, 3, 0], [0, 0, 0]],
    [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
    [[0, 0, 0], [0, 0, 4], [0, 0, 0]],
]


def random(rng, rows, columns, density=0.3, dtype=np.float64):
    dense = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density)
    return np.round(dense * 8).astype(dtype)


@pytest.mark.parametrize("dense", EMPTY_ROWS)
@pytest.mark.parametrize("n", [None, 1, 2, 7])
def test_empty_rows_do_not_shift(dense, n):
    dense = np.array(dense, np.float64)
    a = kernels.to_sparse_csr(dense)
    b = np.arange(1.0, 4.0) if n is None else np.arange(1.0, 3 * n + 1).reshape(3, n)
    np.testing.assert_array_equal(kernels.matmul(a, b), dense @ b)
    np.testing.assert_array_equal(kernels.sum_rows(a.pattern, a.values), dense.sum(1))
    np.testing.assert_array_equal(kernels.to_dense(a), dense)
    np.testing.assert_array_equal(kernels.to_dense(kernels.transpose(a)), dense.T)


SHAPES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 17), (17, 1), (5, 7), (33, 20), (40, 300)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [None, 0, 1, 4, 5, 33])
def test_matmul_matches_scipy(shape, n):
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(7)
    dense = random(rng, *shape)
    b = np.round(rng.standard_normal((shape[1],) if n is None else (shape[1], n)) * 8)
    got = kernels.matmul(kernels.to_sparse_csr(dense), b)
    # Small integers: the order of summation cannot matter.
    np.testing.assert_array_equal(got, sparse.csr_array(dense) @ b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64", "bool"])
def test_matmul_dtypes(dtype):
    rng = np.random.default_rng(3)
    dense = random(rng, 6, 9).astype(dtype)
    b = random(rng, 9, 6, 0.8).astype(dtype)
    got = kernels.matmul(kernels.to_sparse_csr(dense), b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, dense @ b)


@pytest.mark.parametrize("n", [1, 5])
def test_half_precision_accumulates_in_float32(n):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16):
        # In the two-byte type itself the running sum would stick at 256 or 2048.
        row = np.full((1, 4096), 1, dtype)
        got = kernels.matmul(kernels.to_sparse_csr(row), np.full((4096, n), 1, dtype))
        assert got.dtype == dtype
        assert got.astype(np.float32).tolist() == [[4096.0] * n]


def test_matmul_takes_strided_operands():
    rng = np.random.default_rng(4)
    dense = random(rng, 6, 8)
    b = random(rng, 12, 16, 0.9)
    a = kernels.to_sparse_csr(dense)
    np.testing.assert_array_equal(kernels.matmul(a, b.T[:8, ::2]), dense @ b.T[:8, ::2])


def test_large_blocks_are_cut():
    rng = np.random.default_rng(5)
    dense = random(rng, 300, 50, 0.5)
    b = random(rng, 50, 700, 0.9)
    np.testing.assert_array_equal(kernels.matmul(kernels.to_sparse_csr(dense), b), dense @ b)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [None, 0, 1, 9])
def test_sampled_product(shape, n):
    rng = np.random.default_rng(1)
    dense = random(rng, *shape)
    a = kernels.to_sparse_csr(dense)
    x = random(rng, shape[0], n or 1, 0.9)
    y = random(rng, shape[1], n or 1, 0.9)
    if n is None:
        got = kernels.sampled_product(a.pattern, x[:, 0], y[:, 0])
    else:
        x, y = x[:, :n], y[:, :n]
        got = kernels.sampled_product(a.pattern, x, y)
    assert got.pattern is a.pattern
    np.testing.assert_array_equal(kernels.to_dense(got), (x @ y.T) * (dense != 0))


def test_transpose_is_remembered_and_undone():
    dense = random(np.random.default_rng(2), 7, 11)
    a = kernels.to_sparse_csr(dense)
    t = kernels.transpose(a)
    CSR(t.crow_indices, t.col_indices, t.values, t.shape)  # the invariants hold
    back = kernels.transpose(t)
    assert back.pattern is a.pattern
    np.testing.assert_array_equal(back.values, a.values)


def test_add_same_and_different_patterns():
    rng = np.random.default_rng(6)
    x, y = random(rng, 9, 5), random(rng, 9, 5)
    a, b = kernels.to_sparse_csr(x), kernels.to_sparse_csr(y)
    union = kernels.add(a, b)
    CSR(union.crow_indices, union.col_indices, union.values, union.shape)
    np.testing.assert_array_equal(kernels.to_dense(union), x + y)
    assert kernels.add(a, kernels.scale(a, 2.0)).pattern is a.pattern


def test_explicit_zeros_stay_stored():
    a = CSR(np.array([0, 2]), np.array([0, 1]), np.array([0.0, 1.0]), (1, 2))
    assert kernels.scale(a, 0.0).nnz == 2
    assert kernels.transpose(a).nnz == 2


def test_not_a_number_is_stored():
    a = kernels.to_sparse_csr(np.array([[np.nan, 0.0, -0.0]]))
    assert a.nnz == 1
