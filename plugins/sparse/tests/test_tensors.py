"""Sparse tensors through the public interface: what works, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import coredispatch as cd
import coredispatch_sparse as sparse
from coredispatch.plugin import (
    ArgumentError,
    DimError,
    DTypeError,
    MissingKernel,
    OpError,
    ShapeError,
    to_raw,
)

DENSE = [[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, -4.0, 0.0]]


@pytest.fixture
def dense():
    return cd.tensor(DENSE)


@pytest.fixture
def a(dense):
    return dense.to_sparse_csr()


def test_details(a):
    assert a.layout == "sparse_csr"
    assert a.is_sparse
    assert sparse.is_sparse_csr(a)
    assert tuple(a.shape) == (3, 4)
    assert a.ndim == 2
    assert a.dtype is cd.float32
    assert a.device.type == "cpu"
    assert sparse.nnz(a) == 4
    assert a.crow_indices().tolist() == [0, 2, 2, 4]
    assert a.col_indices().tolist() == [1, 3, 0, 2]
    assert a.values().tolist() == [1.0, 2.0, 3.0, -4.0]


def test_conversions(a, dense):
    assert a.to_dense().tolist() == DENSE
    assert dense.to_dense() is dense
    assert a.to_sparse_csr() is a
    assert a.to_dense().layout == "strided"
    with pytest.raises(ShapeError, match="2 dimensions"):
        cd.zeros(2, 3, 4).to_sparse_csr()


def test_construction_from_lists_and_tensors(a):
    parts = [0, 2, 2, 4], [1, 3, 0, 2], [1.0, 2.0, 3.0, -4.0]
    b = sparse.sparse_csr_tensor(*parts, size=(3, 4))
    assert b.dtype is cd.get_default_dtype()
    assert b.to_dense().tolist() == DENSE
    assert tuple(sparse.sparse_csr_tensor(*parts).shape) == (3, 4)
    c = sparse.sparse_csr_tensor(a.crow_indices(), a.col_indices(), a.values(), (3, 6))
    assert tuple(c.shape) == (3, 6)
    d = sparse.sparse_csr_tensor(*parts, dtype=cd.float64, requires_grad=True)
    assert d.dtype is cd.float64
    assert d.requires_grad
    assert d.is_leaf
    empty = sparse.sparse_csr_tensor([0], [], [])
    assert tuple(empty.shape) == (0, 0)


def test_construction_copies_its_parts():
    values = cd.tensor([1.0, 2.0])
    a = sparse.sparse_csr_tensor([0, 1, 2], [0, 1], values, (2, 2))
    values.fill_(9.0)
    assert a.values().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        (([0, 1, 2], [0, 5], [1.0, 1.0], (2, 2)), DimError, "row 1"),
        (([0, 2, 2], [1, 0], [1.0, 1.0], (2, 2)), ArgumentError, "row 0: column 0 follows"),
        (([0, 2, 1], [1, 0], [1.0, 1.0], (2, 2)), ArgumentError, "crow_indices"),
        (([0, 1, 2], [0, 1], [1.0], (2, 2)), ShapeError, "one value per column"),
        (([0, 1, 2], [0, 1], [1.0, 1.0], (2, 2, 2)), ShapeError, "not the shape of a matrix"),
        (([0.0, 1.0, 2.0], [0, 1], [1.0, 1.0], (2, 2)), DTypeError, "crow_indices"),
    ],
)
def test_errors_name_the_call_and_the_place(parts, error, words):
    with pytest.raises(error, match=words) as raised:
        sparse.sparse_csr_tensor(*parts)
    assert "csr_assemble" in str(raised.value)


def test_products(a, dense):
    b = cd.arange(8.0).reshape(4, 2)
    for product in (a @ b, a.matmul(b), cd.matmul(a, b), cd.spmm(a, b), sparse.spmm(a, b)):
        assert product.layout == "strided"
        assert product.tolist() == (dense @ b).tolist()
    v = cd.arange(4.0)
    assert (a @ v).tolist() == (dense @ v).tolist()
    left = cd.arange(6.0).reshape(2, 3)
    assert (left @ a).tolist() == (left @ dense).tolist()
    assert (cd.arange(3.0) @ a).tolist() == (cd.arange(3.0) @ dense).tolist()
    assert cd.mm(a, b).tolist() == (dense @ b).tolist()
    assert cd.mv(a, v).tolist() == (dense @ v).tolist()


def test_product_errors(a):
    with pytest.raises(ShapeError):
        a @ cd.ones(3, 2)
    with pytest.raises(ShapeError):
        cd.ones(2, 4) @ a
    with pytest.raises(MissingKernel):
        a @ a.T
    with pytest.raises(MissingKernel):
        a @ cd.ones(2, 4, 3)


def test_product_promotes(a):
    out = a @ cd.ones(4, 2, dtype=cd.float64)
    assert out.dtype is cd.float64
    assert (a.to(cd.float64) @ cd.ones(4, 2, dtype=cd.float64)).dtype is cd.float64


def test_transpose(a, dense):
    for t in (a.T, a.t(), a.mT, a.transpose(0, 1), a.permute(1, 0)):
        assert t.layout == "sparse_csr"
        assert t.to_dense().tolist() == dense.T.tolist()
    assert a.permute(0, 1).to_dense().tolist() == DENSE


def test_scalars(a, dense):
    assert (a * 2).to_dense().tolist() == (dense * 2).tolist()
    assert (2.5 * a).to_dense().tolist() == (dense * 2.5).tolist()
    assert (a / 4).to_dense().tolist() == (dense / 4).tolist()
    assert (-a).to_dense().tolist() == (-dense).tolist()
    assert (a * cd.tensor(3.0)).to_dense().tolist() == (dense * 3).tolist()
    assert to_raw(a * 2).pattern is to_raw(a).pattern


def test_sums_of_sparse_tensors(a, dense):
    b = cd.tensor([[1.0, 1.0, 0, 0], [0, 5, 0, 0], [0, 0, 4, 0]]).to_sparse_csr()
    total = a + b
    assert total.layout == "sparse_csr"
    assert total.to_dense().tolist() == (dense + b.to_dense()).tolist()
    assert (a - b).to_dense().tolist() == (dense - b.to_dense()).tolist()
    assert (a + a * 2).to_dense().tolist() == (dense * 3).tolist()
    with pytest.raises(ShapeError):
        a + a.T


def test_clone_and_detach_and_cast(a):
    assert a.clone().to_dense().tolist() == DENSE
    assert a.detach().to_dense().tolist() == DENSE
    assert a.to(cd.float64).dtype is cd.float64
    assert a.to(cd.float64).values().dtype is cd.float64


def test_in_place_arithmetic_replaces_the_values(a, dense):
    a *= 2
    a += a
    assert a.to_dense().tolist() == (dense * 4).tolist()
    alias = a.detach()
    with pytest.raises(OpError, match="live view"):
        a *= 2
    del alias
    turned = a.T
    a *= 0.5
    assert turned.to_dense().tolist() == (dense.T * 4).tolist()
    a *= 2
    b = cd.eye(3, 4).to_sparse_csr()
    b.copy_(a)
    assert b.to_dense().tolist() == (dense * 4).tolist()
    with pytest.raises(MissingKernel):
        dense.copy_(a)
    with pytest.raises(MissingKernel):
        dense += a


REFUSED = {
    "exp": lambda a, x: a.exp(),
    "sparse + strided": lambda a, x: a + x,
    "strided + sparse": lambda a, x: x + a,
    "sparse + number": lambda a, x: a + 1,
    "strided - sparse": lambda a, x: x - a,
    "sparse * strided": lambda a, x: a * x,
    "sparse * sparse": lambda a, x: a * a,
    "number / sparse": lambda a, x: 1 / a,
    "sparse / strided": lambda a, x: a / x,
    "floor division": lambda a, x: cd.div(a, 2, rounding_mode="floor"),
    "softmax": lambda a, x: a.softmax(1),
    "sum": lambda a, x: a.sum(),
    "relu": lambda a, x: a.relu(),
    "index": lambda a, x: a[0],
    "cat": lambda a, x: cd.cat([a, x]),
    "comparison": lambda a, x: a > 0,
    "where": lambda a, x: cd.where(x > 0, a, x),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("grad", [False, True])
def test_nothing_is_made_dense_silently(case, grad, a, dense):
    if grad:
        a.requires_grad_()
    with pytest.raises(MissingKernel) as raised:
        REFUSED[case](a, dense)
    assert "sparse_csr" in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 10


def test_mask(dense, a):
    x = cd.arange(12.0).reshape(3, 4)
    got = x.sparse_mask(a)
    assert to_raw(got).pattern is to_raw(a).pattern
    assert got.values().tolist() == [1.0, 3.0, 8.0, 10.0]
    assert (a * 2).sparse_mask(a).values().tolist() == (a.values() * 2).tolist()
    other = cd.eye(3, 4).to_sparse_csr()
    assert a.sparse_mask(other).to_dense().tolist() == [
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, -4, 0],
    ]
    with pytest.raises(ShapeError):
        cd.ones(4, 3).sparse_mask(a)


def test_sampled_product(a, dense):
    x, y = cd.arange(6.0).reshape(3, 2), cd.arange(8.0).reshape(2, 4)
    got = sparse.sampled_matmul(a, x, y)
    assert got.to_dense().tolist() == ((x @ y) * (dense != 0)).tolist()
    with pytest.raises(ShapeError):
        sparse.sampled_matmul(a, y, x)


def saved(tensor):
    buffer = io.BytesIO()
    cd.save({"tensor": tensor}, buffer)
    buffer.seek(0)
    return cd.load(buffer)["tensor"]


COPIES = {
    "saved": saved,
    "pickled": lambda t: pickle.loads(pickle.dumps(t)),
    "deep": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
def test_saving_and_copying(how, a):
    other = COPIES[how](a)
    assert other.layout == "sparse_csr"
    assert other.to_dense().tolist() == DENSE
    assert not to_raw(other).crow_indices.flags.writeable
    assert COPIES[how](a.requires_grad_()).requires_grad


def forged(tensors, change):
    """What loads from a file whose records were changed."""
    buffer = io.BytesIO()
    cd.save(tensors, buffer)
    forged = io.BytesIO()
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "format.json":
                index = json.loads(data)
                change(index["tensors"])
                data = json.dumps(index).encode()
            target.writestr(name, data)
    forged.seek(0)
    return cd.load(forged)


def test_a_saved_pattern_is_checked(a):
    def columns(records):
        records[0]["parts"]["size"]["value"] = [3, 1]

    def values(records):
        records[0]["parts"]["values"] = {"value": "text"}

    def missing(records):
        del records[0]["parts"]["col_indices"]

    for change in (columns, values, missing):
        with pytest.raises(RuntimeError, match=r"the file.*(tensors\[0\]|block)"):
            forged(a, change)


def test_nothing_in_a_file_shares_memory_with_a_pattern(a):
    shared = [cd.from_numpy(to_raw(a).col_indices), a]
    first, second = forged(shared, lambda records: None)
    first.fill_(10**9)  # what was checked must stay as it was checked
    assert second.to_dense().tolist() == DENSE


def test_repr(a):
    assert repr(a) == (
        "tensor(crow_indices=tensor([0, 2, 2, 4]),\n"
        "       col_indices=tensor([1, 3, 0, 2]),\n"
        "       values=tensor([ 1.,  2.,  3., -4.]), size=(3, 4), nnz=4,\n"
        "       layout=sparse_csr)"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "complex64"])
def test_dtypes(dtype):
    dtype = getattr(cd, dtype)
    dense = cd.tensor(DENSE).to(dtype)
    a = dense.to_sparse_csr()
    assert a.dtype is dtype
    b = cd.arange(8).reshape(4, 2).to(dtype)
    out = a @ b
    assert out.dtype is dtype
    np.testing.assert_array_equal(
        out.to(cd.complex128).numpy(),
        (cd.tensor(DENSE) @ cd.arange(8.0).reshape(4, 2)).numpy(),
    )


def test_explain_names_the_row(a):
    text = str(cd.explain("matmul", a, cd.ones(4, 2)))
    assert "matmul [sparse_csr, cpu] from sparse" in text
    text = str(cd.explain("matmul", a.requires_grad_(), cd.ones(4, 2)))
    assert "matmul [autograd, sparse_csr] from sparse" in text


def test_large_products_run_compiled_or_not_with_one_result():
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((200, 150)) * (rng.random((200, 150)) < 0.1)
    b = rng.standard_normal((150, 64))
    a = cd.from_numpy(dense).to_sparse_csr()
    np.testing.assert_allclose((a @ cd.from_numpy(b)).numpy(), dense @ b, rtol=1e-12, atol=1e-12)
    c = rng.standard_normal((64, 200))
    np.testing.assert_allclose((cd.from_numpy(c) @ a).numpy(), c @ dense, rtol=1e-12, atol=1e-12)
