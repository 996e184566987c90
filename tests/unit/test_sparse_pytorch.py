"""Sparse matrices under PyTorch's names, beside PyTorch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")
pytest.importorskip("coredispatch_sparse")

ROWS, COLUMNS = [0, 2, 1, 0, 2, 0], [1, 0, 2, 1, 3, 0]
NUMBERS = [1.0, -2.0, 3.0, 4.0, 5.0, 6.0]


def both(program: Any) -> None:
    for a, b in zip(program(cd), program(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def array(x: Any) -> Any:
    return x.detach().numpy()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_coordinates() -> None:
    def program(library: Any) -> Any:
        values = library.tensor(NUMBERS, requires_grad=True)
        sparse = library.sparse_coo_tensor([ROWS, COLUMNS], values, (3, 4))
        x = library.arange(8.0).reshape(4, 2)
        out = library.sparse.mm(sparse, x)
        (out * out).sum().backward()
        own = sparse.detach().coalesce()
        found = [array(out), array(values.grad), array(own.indices()), array(own.values())]
        found += [array(own.to_dense()), array(library.spmm(own, x)), array(own @ x)]
        found += [array(library.sparse.sum(own)), array(own.t().to_dense())]
        found.append(array(library.sparse.sum(own, 0).to_dense()))
        found.append(array(library.sparse.addmm(library.ones(3, 2), own, x, beta=2, alpha=3)))
        small = library.sparse_coo_tensor([[1], [2]], [3.0])
        found += [array(small.to_dense()), own._nnz(), own._values().shape, own._indices().shape]
        found.append(library.sparse_coo_tensor((2, 3)).to_dense().sum().item())
        dense = library.tensor([[0.0, 2.0], [3.0, 0.0]])
        found += [array(dense.to_sparse().indices()), array(dense.to_sparse().values())]
        csr = library.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3))
        return [*found, array(csr.to_dense()), array(csr.crow_indices())]

    both(program)
    with pytest.raises(IndexError, match="larger size"):
        cd.sparse_coo_tensor([[5], [0]], [1.0], (3, 4))
    with pytest.raises((RuntimeError, ValueError), match="matrices"):
        cd.sparse_coo_tensor([[0], [0], [0]], [1.0])


@pytest.mark.filterwarnings("ignore")
def test_a_graph_convolution() -> None:
    """Kipf and Welling's layer, as it is written everywhere."""

    def program(library: Any) -> Any:
        indices = library.from_numpy(np.vstack([ROWS, COLUMNS]).astype(np.int64))
        values = library.from_numpy(np.array(NUMBERS, np.float32))
        adjacency = library.sparse.FloatTensor(indices, values, library.Size((4, 4)))
        weight = library.nn.Parameter(library.linspace(-1, 1, 6).reshape(3, 2))
        x = library.arange(12.0).reshape(4, 3) / 10
        optimizer = library.optim.Adam([weight], lr=0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            out = library.spmm(adjacency, library.mm(x, weight)).relu()
            out.pow(2).mean().backward()
            optimizer.step()
            found.append(array(out))
        return found

    both(program)


def test_sparse_adam() -> None:
    def program(library: Any) -> Any:
        p = library.nn.Parameter(library.linspace(-1, 1, 8).reshape(4, 2))
        optimizer = library.optim.SparseAdam([p], lr=0.1)
        found = []
        for step in range(4):
            gradient = np.zeros((4, 2), np.float32)
            gradient[step % 3] = [1.0 + step, -0.5]
            p.grad = library.tensor(gradient).to_sparse()
            optimizer.step()
            found.append(array(p).copy())
        found.append(array(optimizer.state[p]["exp_avg"]))
        return found

    both(program)
    p = cd.nn.Parameter(cd.ones(2, 2))
    p.grad = cd.ones(2, 2)
    with pytest.raises(RuntimeError, match="dense gradients"):
        cd.optim.SparseAdam([p]).step()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_compressed_layouts() -> None:
    def program(library: Any) -> Any:
        values = library.tensor([1.0, 2.0, 3.0, 4.0])
        csc = library.sparse_csc_tensor([0, 1, 2, 4], [0, 1, 0, 1], values)
        x = library.arange(6.0).reshape(3, 2)
        found = [array(csc.to_dense()), array(csc @ x)]
        found.append(
            array(library.sparse_csc_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (3, 2)).to_dense())
        )
        blocks = library.arange(12.0).reshape(3, 2, 2)
        bsr = library.sparse_bsr_tensor([0, 1, 3], [1, 0, 2], blocks)
        bsc = library.sparse_bsc_tensor([0, 1, 3], [1, 0, 2], blocks, (6, 6))
        found += [array(bsr.to_dense()), array(bsc.to_dense())]
        for name, parts in (
            ("csr", values),
            ("csc", values),
            ("bsr", blocks[:2]),
            ("bsc", blocks[:2]),
        ):
            number = 2 if name[0] == "b" else 4
            starts = [0, 1, 2] if number == 2 else [0, 2, 4]
            places = [0, 1] if number == 2 else [0, 1, 0, 1]
            made = library.sparse_compressed_tensor(
                starts, places, parts, layout=getattr(library, f"sparse_{name}")
            )
            found.append(array(made.to_dense()))
        dense = library.tensor([[0.0, 2.0], [3.0, 0.0]])
        found += [array(dense.to_sparse(layout=library.sparse_csc).to_dense())]
        found += [array(dense.to_sparse_csc().to_dense()), array(dense.to_sparse(2).to_dense())]
        diagonals = library.arange(1.0, 7.0).reshape(2, 3)
        offsets = library.tensor([-1, 1])
        found.append(array(library.sparse.spdiags(diagonals, offsets, (3, 4)).to_dense()))
        return found

    both(program)
    values = cd.tensor([1.0, 2.0], requires_grad=True)
    cd.sparse_csc_tensor([0, 1, 2], [0, 1], values).to_dense().square().sum().backward()
    assert values.grad.tolist() == [2, 4]  # PyTorch has no derivative here
    with pytest.raises(RuntimeError, match="compressed tensor layout"):
        cd.sparse_compressed_tensor([0, 1], [0], [1.0])
    with pytest.raises(RuntimeError, match="blocks, height, width"):
        cd.sparse_bsr_tensor([0, 1], [0], [1.0])
    with pytest.raises((RuntimeError, ValueError), match="not sparse"):
        cd.eye(2).to_sparse(layout=cd.strided)
    with pytest.raises((RuntimeError, ValueError), match="dense rows"):
        cd.eye(2).to_sparse(1)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_products() -> None:
    def program(library: Any) -> Any:
        a = library.tensor([[0.0, 0.0, 3.0], [4.0, 0.0, 5.0]]).to_sparse()
        x, own = library.arange(6.0).reshape(3, 2), library.eye(2).to_sparse()
        found = [array(library.smm(a, x).to_dense()), array(a.smm(x).to_dense())]
        for scale in ({}, {"beta": 2, "alpha": 0.5}):
            found.append(array(library.sspaddmm(own, a, x, **scale).to_dense()))
        csr, b = library.eye(2).to_sparse_csr(), library.ones(2, 2)
        sampled = library.sparse.sampled_addmm(csr, b, b, beta=0.5, alpha=2.0)
        with library.sparse.check_sparse_tensor_invariants():
            return [*found, array(sampled.to_dense()), own.smm(b).is_sparse]

    both(program)
    assert cd.sparse.check_sparse_tensor_invariants.is_enabled()
