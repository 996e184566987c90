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
    for dtype in (cd.float16, cd.int64, cd.bool):
        wide = (cd.arange(6) % 4).reshape(2, 3).to(dtype)
        matrix, other = half.to(dtype).to_sparse_csr().to("cuda"), wide.to("cuda")
        products = matrix @ other, other.t() @ matrix, other[:, 0] @ matrix, matrix.t() @ other
        here = half.to(dtype)
        wanted = here @ wide, wide.t() @ here, wide[:, 0] @ here, here.t() @ wide
        for product, expected in zip(products, wanted, strict=True):
            cd.testing.assert_close(product.cpu(), expected)
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


@pytest.mark.parametrize(
    "dtype", [cd.float32, cd.float16, cd.complex64, cd.int64, cd.bool], ids=str
)
@pytest.mark.parametrize("shape", [(2, 4), (3, 0), (0, 3)], ids=str)
def test_matrices_are_made_on_the_device(cusparse, dtype, shape):
    dense = (cd.arange(shape[0] * shape[1]) % 3).reshape(shape).to(dtype)
    wanted = dense.to_sparse_csr()
    parts = wanted.crow_indices(), wanted.col_indices(), wanted.values()
    made = cd.sparse_csr_tensor(*(part.to("cuda") for part in parts), size=shape)
    for found in (dense.to("cuda").to_sparse_csr(), made):
        assert found.device.type == "cuda" and found.dtype is dtype
        for part, one in zip(parts, ("crow_indices", "col_indices", "values"), strict=True):
            cd.testing.assert_close(getattr(found, one)().cpu(), part)
        cd.testing.assert_close(found.to_dense().cpu(), dense)
    cd.testing.assert_close(dense.to("cuda").to_sparse().to_dense().cpu(), dense)


def test_gradients_reach_what_a_matrix_was_made_of(cusparse):
    dense = cd.tensor([[0, 1.0], [2, 0]]).to("cuda").requires_grad_()
    values = cd.tensor([3.0, 4.0]).to("cuda").requires_grad_()
    crow, col = (cd.tensor(x).to("cuda") for x in ([0, 1, 2], [0, 1]))
    made = cd.sparse_csr_tensor(crow, col, values, size=(2, 2))
    factor = cd.tensor([[1.0], [10.0]]).to("cuda")
    (dense.to_sparse_csr() @ factor + made @ factor).sum().backward()
    assert dense.grad.cpu().tolist() == [[0, 10], [1, 0]]
    assert values.grad.cpu().tolist() == [1, 10]


def test_what_is_no_matrix_is_refused_on_the_device(cusparse):
    with pytest.raises(cd.ShapeError, match="2 dimensions"):
        cd.ones(3, device="cuda").to_sparse_csr()
    crow, col, values = (cd.tensor(x).to("cuda") for x in ([0, 1, 2], [0, 5], [1.0, 2.0]))
    with pytest.raises(cd.DimError, match=r"col_indices\[1\] is 5"):
        cd.sparse_csr_tensor(crow, col, values, size=(2, 3))


@pytest.mark.parametrize("dtype", [cd.float32, cd.int64, cd.complex64], ids=str)
def test_sums_of_matrices(cusparse, dtype):
    a, b = cd.tensor([[[0, 1, 0], [2, 0, 0]], [[5, -1, 0], [0, 0, 3]]]).to(dtype)
    here = [x.to_sparse_csr() for x in (a, b, cd.zeros_like(a))]
    there = [x.to("cuda") for x in here]
    for i, k in ((0, 1), (1, 0), (0, 0), (0, 2), (2, 2)):
        for form in (cd.add, cd.sub):
            found, wanted = form(there[i], there[k]), form(here[i], here[k])
            for one in ("crow_indices", "col_indices", "values"):
                cd.testing.assert_close(getattr(found, one)().cpu(), getattr(wanted, one)())
    with pytest.raises(cd.ShapeError, match="do not broadcast"):
        there[0] + a[:1].to_sparse_csr().to("cuda")
    with pytest.raises(cd.MissingKernel, match="to_dense"):
        there[0] + a.to("cuda")


def test_a_sparse_parameter_is_trained_on_the_device(cusparse):
    ends = []
    for device in ("cpu", "cuda"):
        weight = cd.tensor([[0, 1.0], [2, 0]]).to_sparse_csr().to(device).requires_grad_()
        optimizer = cd.optim.SGD([weight], lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            (weight @ cd.ones(2, 1, device=device)).pow(2).sum().backward()
            optimizer.step()
        ends.append(weight.detach().to_dense().cpu())
    cd.testing.assert_close(ends[1], ends[0])
    assert cusparse
