"""Sparse gradients of embeddings, and the optimizers that step with them, against dense ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F

pytest.importorskip("coredispatch_sparse")


def table() -> Any:
    cd.manual_seed(0)
    return cd.randn(7, 3, requires_grad=True)


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_gradient_is_that_of_the_dense_table(padding: Any, scaled: bool) -> None:
    index = cd.tensor([[1, 4, 1], [2, 2, 6]])
    found = []
    for sparse in (False, True):
        weight = table()
        out = F.embedding(index, weight, padding, scale_grad_by_freq=scaled, sparse=sparse)
        (out * cd.arange(18.0).reshape(2, 3, 3)).sum().backward()
        found.append(weight.grad)
    dense, sparse = found
    assert sparse.is_sparse and not dense.is_sparse
    np.testing.assert_allclose(sparse.to_dense(), dense, 1e-6)
    used = {1, 2, 4, 6} - ({2} if padding == 2 else {6} if padding == -1 else set())
    assert set(sparse.coalesce().indices()[0].tolist()) == used


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode: str) -> None:
    cd.manual_seed(0)
    bags = [nn.EmbeddingBag(6, 2, mode=mode, sparse=sparse) for sparse in (False, True)]
    bags[1].load_state_dict(bags[0].state_dict())
    for bag in bags:
        bag(cd.tensor([1, 2, 4, 2]), cd.tensor([0, 3])).square().sum().backward()
    assert bags[1].weight.grad.is_sparse
    np.testing.assert_allclose(bags[1].weight.grad.to_dense(), bags[0].weight.grad, 1e-6)


def test_gradients_of_several_passes_add_up() -> None:
    weight = table()
    for index in ([1, 2], [2, 5]):
        F.embedding(cd.tensor(index), weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse
    assert weight.grad.to_dense().sum(1).tolist() == [0.0, 3.0, 6.0, 0.0, 0.0, 3.0, 0.0]


OPTIMIZERS = {
    "sgd": lambda p: cd.optim.SGD(p, lr=0.1),
    "maximize": lambda p: cd.optim.SGD(p, lr=0.1, maximize=True),
    "momentum": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda p: cd.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_steps_are_those_by_dense_gradients(name: str) -> None:
    # With all that these optimizers keep 0 elsewhere, dense and sparse steps are the same.
    ends = []
    for sparse in (False, True):
        net = nn.Embedding(5, 2, sparse=sparse)
        with cd.no_grad():
            net.weight.copy_(cd.arange(10.0).reshape(5, 2) / 10)
        optimizer = OPTIMIZERS[name]([net.weight])
        for index in ([0, 1], [1, 3], [0, 0]):
            optimizer.zero_grad()
            net(cd.tensor(index)).square().sum().backward()
            optimizer.step()
        ends.append(net.weight.detach().numpy())
    np.testing.assert_allclose(ends[1], ends[0], 1e-5, 1e-6)


def test_sparse_adam_moves_the_rows_used() -> None:
    net = nn.Embedding(5, 2, sparse=True)
    before = net.weight.detach().clone()
    optimizer = cd.optim.SparseAdam(net.parameters(), lr=0.1)
    net(cd.tensor([1, 3])).sum().backward()
    optimizer.step()
    moved = (net.weight.detach() - before).abs().sum(1)
    np.testing.assert_allclose(moved, [0, 0.2, 0, 0.2, 0], 1e-5, 1e-6)


def test_what_does_not_go_together() -> None:
    weight = table()
    F.embedding(cd.tensor([1]), weight, sparse=True).sum().backward()
    for make in (cd.optim.SGD, cd.optim.Adagrad):
        with pytest.raises(RuntimeError, match="not compatible with sparse"):
            make([weight], lr=0.1, weight_decay=0.1).step()
    with pytest.raises(cd.MissingKernel):
        cd.optim.Adam([weight]).step()


def test_without_the_plugin_it_says_what_to_install() -> None:
    code = (
        "import coredispatch as cd\n"
        "try: cd.nn.Embedding(3, 2, sparse=True)\n"
        "except RuntimeError as e: print(e)\n"
    )
    environment = {**os.environ, "COREDISPATCH_PLUGINS": "none"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "pip install coredispatch-sparse" in found.stdout
