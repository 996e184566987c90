"""The compiled kernels against the NumPy ones."""

from __future__ import annotations

import numpy as np
import pytest

from coredispatch_sparse import kernels

pytest.importorskip("numba")

from coredispatch_sparse import numba_kernels

pytestmark = pytest.mark.once

SHAPES = [(0, 3), (3, 0), (1, 1), (5, 7), (33, 20), (40, 300)]


def random(rng, rows, columns, density, dtype):
    dense = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density)
    return np.round(dense * 8).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [None, 1, 2, 17])
def test_products_agree(dtype, shape, n):
    rng = np.random.default_rng(8)
    # A third of the elements, and rows without any.
    dense = random(rng, *shape, 0.3, dtype)
    dense[::3] = 0
    a = kernels.to_sparse_csr(dense)
    b = random(rng, shape[1], n or 1, 0.9, dtype)
    if n is None:
        b = b[:, 0]
    got = numba_kernels.matmul(a, b)
    assert got.dtype == dtype
    # Small integers: the order of summation cannot matter.
    np.testing.assert_array_equal(got, kernels.matmul(a, b))
    if n is not None:
        x = random(rng, shape[0], n, 0.9, dtype)
        sampled = numba_kernels.sampled_product(a.pattern, x, b)
        assert sampled.pattern is a.pattern
        np.testing.assert_array_equal(
            sampled.values, kernels.sampled_product(a.pattern, x, b).values
        )


def test_not_a_number_and_infinity_pass_through():
    a = kernels.to_sparse_csr(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    b = np.array([[np.inf, 1.0], [np.nan, 1.0], [-np.inf, 0.0]])
    got = numba_kernels.matmul(a, b)
    np.testing.assert_array_equal(got, [[np.nan, 3.0], [-np.inf, 0.0]])


def test_int32_indices_and_strided_values():
    dense = np.diag(np.arange(1.0, 6.0))
    a = kernels.to_sparse_csr(dense)
    from coredispatch_sparse.csr import CSR

    values = np.repeat(a.values, 2)[::2]
    narrow = CSR(a.crow_indices.astype(np.int32), a.col_indices.astype(np.int32), values, a.shape)
    np.testing.assert_array_equal(numba_kernels.matmul(narrow, np.eye(5)), dense)
