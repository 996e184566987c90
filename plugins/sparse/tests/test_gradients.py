"""Derivatives: against differences, against dense, and sparse where they should be."""

from __future__ import annotations

import numpy as np
import pytest

import coredispatch as cd
import coredispatch_sparse as sparse
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.plugin import to_raw

CROW, COL, SIZE = [0, 2, 2, 3, 5], [0, 2, 1, 0, 2], (4, 3)


def values():
    return cd.tensor([1.5, -2.0, 0.5, 3.0, -1.0], dtype=cd.float64, requires_grad=True)


def matrix(stored):
    return sparse.sparse_csr_tensor(CROW, COL, stored, SIZE)


def right(*shape, dtype=cd.float64):
    rng = np.random.default_rng(1)
    x = cd.from_numpy(rng.standard_normal(shape)).to(dtype)
    return x.requires_grad_()


FUNCTIONS = {
    "sparse @ matrix": (lambda v, b: matrix(v) @ b, (3, 2)),
    "sparse @ column": (lambda v, b: matrix(v) @ b, (3, 1)),
    "sparse @ vector": (lambda v, b: matrix(v) @ b, (3,)),
    "transpose @ matrix": (lambda v, b: matrix(v).T @ b, (4, 2)),
    "matrix @ sparse": (lambda v, b: b @ matrix(v), (2, 4)),
    "vector @ sparse": (lambda v, b: b @ matrix(v), (4,)),
    "scaled": (lambda v, b: (matrix(v) * 2.5 / 4) @ b, (3, 2)),
    "negated": (lambda v, b: -matrix(v) @ b, (3, 2)),
    "to_dense": (lambda v, b: matrix(v).to_dense() @ b, (3, 2)),
    "values": (lambda v, b: matrix(v).values() * b, (5,)),
    "sum of two": (lambda v, b: (matrix(v) + matrix(v * v)) @ b, (3, 2)),
    "difference of patterns": (lambda v, b: (matrix(v) - other()) @ b, (3, 2)),
    "masked": (lambda v, b: b.sparse_mask(matrix(v)) @ b.T, (4, 3)),
    "sampled": (lambda v, b: sparse.sampled_matmul(matrix(v), b, b[:3].T) @ b[:3], (4, 3)),
    "to_sparse_csr": (lambda v, b: (b * (b > 0)).to_sparse_csr() @ v[:3], (4, 3)),
    "used twice": (lambda v, b: matrix(v) @ (matrix(v).T @ (matrix(v) @ b)), (3, 2)),
}


def other():
    return cd.eye(4, 3, dtype=cd.float64).to_sparse_csr()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivative(name):
    function, shape = FUNCTIONS[name]
    inputs = (values(), right(*shape))
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


def test_complex_product():
    v = values().detach().to(cd.complex128) * (1 + 2j)
    b = right(3, 2).detach().to(cd.complex128) * (2 - 1j)
    assert gradcheck(lambda v, b: matrix(v) @ b, (v.requires_grad_(), b.requires_grad_()))


def test_gradient_of_a_sparse_leaf_is_sparse_with_its_pattern():
    a = matrix(values().detach()).requires_grad_()
    b = right(3, 2)
    loss = (a @ b).square().sum()
    loss.backward()
    assert a.grad.layout == "sparse_csr"
    assert to_raw(a.grad).pattern is to_raw(a).pattern
    dense = a.detach().to_dense().requires_grad_()
    (dense @ b.detach()).square().sum().backward()
    expected = dense.grad * (dense != 0)
    np.testing.assert_allclose(a.grad.to_dense().numpy(), expected.numpy())
    np.testing.assert_allclose(
        b.grad.numpy(), (2 * dense.T @ (dense @ b)).detach().numpy(), atol=1e-12
    )


def test_gradients_accumulate():
    a = matrix(values().detach()).requires_grad_()
    b = right(3, 2).detach()
    (a @ b).sum().backward()
    once = a.grad.values().tolist()
    (a @ b).sum().backward()
    assert a.grad.layout == "sparse_csr"
    np.testing.assert_allclose(a.grad.values().numpy(), 2 * np.array(once))


def test_only_what_is_asked_for_is_computed():
    a = matrix(values().detach())
    b = right(3, 2)
    (a @ b).sum().backward()
    assert a.grad is None
    np.testing.assert_allclose(
        b.grad.numpy(), a.to_dense().numpy().sum(0)[:, None].repeat(2, axis=1)
    )


def test_values_are_trained():
    stored = cd.zeros(5, requires_grad=True)
    target = cd.tensor([[1.0, 0, 2], [0, 0, 0], [0, 3, 0], [4, 0, 5]])
    optimizer = cd.optim.SGD([stored], lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (matrix(stored) @ cd.eye(3) - target).square().sum()
        loss.backward()
        optimizer.step()
    np.testing.assert_allclose(stored.detach().numpy(), [1, 2, 3, 4, 5], atol=1e-4)


def test_no_grad_records_nothing():
    a = matrix(values())
    with cd.no_grad():
        assert not (a @ cd.ones(3, 2, dtype=cd.float64)).requires_grad


def test_a_sparse_parameter_is_trained():
    weight = cd.nn.Parameter(matrix(cd.zeros(5)))
    target = cd.tensor([[1.0, 0, 2], [0, 0, 0], [0, 3, 0], [4, 0, 5]])
    optimizer = cd.optim.SGD([weight], lr=0.2, momentum=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        (weight @ cd.eye(3) - target).square().sum().backward()
        optimizer.step()
    assert weight.layout == "sparse_csr"
    np.testing.assert_allclose(weight.detach().values().numpy(), [1, 2, 3, 4, 5], atol=1e-4)


def test_large_products_have_the_same_gradients():
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((300, 200)) * (rng.random((300, 200)) < 0.1)
    b = rng.standard_normal((200, 64))
    left = cd.from_numpy(dense).to_sparse_csr().requires_grad_()
    factor = cd.from_numpy(b).requires_grad_()
    (left @ factor).square().sum().backward()
    grad = 2 * dense @ b
    np.testing.assert_allclose(
        left.grad.to_dense().numpy(), (grad @ b.T) * (dense != 0), rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(factor.grad.numpy(), dense.T @ grad, rtol=1e-10, atol=1e-10)


def test_autocast_lowers_the_product():
    a = matrix(cd.ones(5)).requires_grad_()
    b = cd.ones(3, 2, requires_grad=True)
    with cd.autocast("cpu", dtype=cd.bfloat16):
        out = a @ b
    assert out.dtype is cd.bfloat16
    out.to(cd.float32).sum().backward()
    assert a.grad.dtype is cd.float32
    assert a.grad.layout == "sparse_csr"
    assert b.grad.dtype is cd.float32


def test_gradients_of_a_table_are_zeroed_in_place() -> None:
    table = cd.nn.Embedding(4, 2, sparse=True)
    optimizer = cd.optim.SGD(table.parameters(), lr=0.1)
    for row in (1, 2):
        table(cd.tensor([row])).sum().backward()
        grad = table.weight.grad
        assert grad.to_dense().sum(1).tolist() == [2.0 * (i == row) for i in range(4)]
        optimizer.zero_grad(set_to_none=False)
        assert table.weight.grad is grad and grad.is_sparse
        assert grad.to_dense().abs().sum().item() == 0.0
    with pytest.raises(cd.OpError, match="fill_"):
        cd.eye(2).to_sparse().fill_(2.0)
