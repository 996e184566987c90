"""Sparse products on CUDA: by cuSPARSE where it takes them, over SciPy dressed as CuPy's."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from numpy_stand_in import MACHINE
from stand_in_arrays import run

import coredispatch as cd

pytest.importorskip("coredispatch_sparse")
scipy_sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture
def cusparse(stand_in, monkeypatch):
    """``cupyx.scipy.sparse`` with what the rows ask of it; the calls it got."""
    calls = []

    class csr_matrix:
        def __init__(self, parts, shape, transposed=False):
            values, columns, rows = parts
            if values.dtype.char not in "fdFD":
                raise ValueError(f"{values.dtype} is not supported")
            self.parts, self.shape, self.transposed = parts, shape, transposed

        @property
        def T(self):
            return csr_matrix(self.parts, self.shape, not self.transposed)

        def __matmul__(self, dense):
            calls.append(dense.shape)

            def product(values, columns, rows, dense):
                matrix = scipy_sparse.csr_matrix((values, columns, rows), shape=self.shape)
                return np.ascontiguousarray((matrix.T if self.transposed else matrix) @ dense)

            return run(product, *self.parts, dense)

    library = types.ModuleType("cupyx.scipy.sparse")
    library.csr_matrix = csr_matrix
    monkeypatch.setitem(sys.modules, "cupy", stand_in.cupy)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", library)
    return calls


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.complex64], ids=str)
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 0)], ids=str)
def test_products_are_cusparse_s_and_wait_for_nothing(cusparse, dtype, shape):
    matrix = cd.tensor([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0]]).to(dtype)
    dense = cd.arange(float(np.prod(shape))).reshape(shape).to(dtype)
    sparse = matrix.to_sparse_csr().to("cuda")
    MACHINE.syncs.clear()
    found = sparse @ dense.to("cuda")
    assert MACHINE.syncs == []
    cd.testing.assert_close(found.cpu(), matrix @ dense)
    turned = dense.t() if dense.ndim == 2 else dense
    other = matrix.t().contiguous().to_sparse_csr().to("cuda")
    cd.testing.assert_close((turned.to("cuda") @ other).cpu(), turned @ matrix.t())
    assert len(cusparse) == (0 if 0 in shape else 2)


def test_what_cusparse_does_not_take_is_made_of_operators(cusparse):
    half = cd.tensor([[0, 1.0], [2, 0]]).half()
    found = half.to_sparse_csr().to("cuda") @ half.to("cuda")
    cd.testing.assert_close(found.cpu(), half @ half)
    assert cusparse == []
    with pytest.raises(cd.ShapeError, match="inner dimensions"):
        half.float().to_sparse_csr().to("cuda") @ cd.ones(3, device="cuda")


def test_gradients_of_both_factors(cusparse):
    matrix = cd.tensor([[0, 1.0], [2, 0]])
    gradients = []
    for device in ("cpu", "cuda"):
        sparse = matrix.to_sparse_csr().to(device).requires_grad_()
        dense = cd.ones(2, 3, device=device, requires_grad=True)
        (sparse @ dense).pow(2).sum().backward()
        gradients.append((sparse.grad.to_dense().cpu(), dense.grad.cpu()))
    for here, there in zip(*gradients, strict=True):
        cd.testing.assert_close(there, here)
    assert cusparse
