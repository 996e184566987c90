"""Sparse tensors between ranks: ``all_reduce``, and gradients of tables in training."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.ddp_comm_hooks import default_hooks
from coredispatch.nn.parallel import DistributedDataParallel

pytest.importorskip("coredispatch_sparse")


def sparse_of(rank: int, dtype: Any = cd.float32) -> Any:
    """Elements of rank r: some of its own, some that all have, on rank 1 none."""
    if rank == 1:
        return cd.sparse_coo_tensor((3, 4), dtype=dtype)
    places = cd.tensor([[0, 1, 2], [rank, 1, 3]])
    return cd.sparse_coo_tensor(places, cd.tensor([1, 2, 3 + rank], dtype=dtype), (3, 4))


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.bfloat16, cd.int64, cd.complex64])
def test_all_reduce(ranks: int, dtype: Any) -> None:
    expected = sum(sparse_of(rank, dtype).to_dense() for rank in range(ranks))

    def program(rank: int) -> None:
        x = sparse_of(rank, dtype)
        assert dist.all_reduce(x) is None
        assert x.is_sparse and x.is_coalesced() and x.dtype == dtype
        assert cd.equal(x.to_dense(), expected)
        y = sparse_of(rank, dtype)
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        assert cd.equal(y.to_dense(), expected) and work.result()[0] is y
        if dtype.is_floating_point:
            z = sparse_of(rank, dtype)
            dist.all_reduce(z, dist.ReduceOp.AVG)
            cd.testing.assert_close(z.to_dense(), expected / ranks)

    dist.threads.spawn(program, nprocs=ranks)


def test_leaves_empty_ones_and_what_is_refused() -> None:
    def program(rank: int) -> None:
        leaf = sparse_of(0).requires_grad_()
        dist.all_reduce(leaf)
        assert leaf.requires_grad and cd.equal(
            leaf.detach().to_dense(), 2 * sparse_of(0).to_dense()
        )
        none = cd.sparse_coo_tensor((0, 4))
        dist.all_reduce(none)
        assert none.shape == (0, 4)
        for op in (dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            with pytest.raises(RuntimeError, match="all_reduce of a sparse tensor.*\n  fix: "):
                dist.all_reduce(sparse_of(0), op)
        with pytest.raises(RuntimeError, match="rank . of the group has a sparse .*shape"):
            dist.all_reduce(cd.sparse_coo_tensor((2 + rank, 2)))
        with pytest.raises(RuntimeError, match="another dtype"):
            dist.all_reduce(cd.sparse_coo_tensor((2, 2), dtype=[cd.int32, cd.float32][rank]))
        with pytest.raises(dist.DistBackendError, match="the ranks call differently"):
            dist.all_reduce(sparse_of(0) if rank else cd.ones(3, 4))

    dist.threads.spawn(program, nprocs=2)


def test_the_functional_form() -> None:
    def program(rank: int) -> None:
        x = sparse_of(rank)
        total = dist.nn.functional.all_reduce(x)
        assert cd.equal(total.to_dense(), sum(sparse_of(r).to_dense() for r in range(3)))
        assert cd.equal(x.to_dense(), sparse_of(rank).to_dense())

    dist.threads.spawn(program, nprocs=3)


class Net(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3, sparse=sparse)
        self.bag = nn.EmbeddingBag(5, 3, mode="sum", sparse=sparse)
        self.out = nn.Linear(3, 2)

    def forward(self, x: Any, use: bool = True) -> Any:
        found = self.bag(x % 5)
        return self.out(found + self.table(x).sum(1) if use else found)


def batch(rank: int, step: int) -> Any:
    return cd.tensor([[rank, 1, 2], [step, 6 - rank, rank]])


def trained(model: Any, batches: list[list[Any]], **kwargs: Any) -> None:
    """Steps of SGD; of one step the losses of several batches are averaged."""
    optimizer = cd.optim.SGD(model.parameters(), lr=0.1)
    for parts in batches:
        optimizer.zero_grad()
        loss = sum(model(part, **kwargs).square().sum() for part in parts) / len(parts)
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    "options",
    [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True},
     {"static_graph": True}, {"bucket_cap_mb": 1e-5}],
)  # fmt: skip
def test_training_is_that_of_one_process(options: dict[str, Any]) -> None:
    cd.manual_seed(0)
    plain, start = Net(False), Net(True)
    start.load_state_dict(plain.state_dict())
    trained(plain, [[batch(rank, step) for rank in range(3)] for step in range(4)])

    def program(rank: int) -> None:
        model = DistributedDataParallel(copy.deepcopy(start), **options)
        trained(model, [[batch(rank, step)] for step in range(4)])
        assert model.module.table.weight.grad.is_sparse and model.module.bag.weight.grad.is_sparse
        for name, value in model.module.state_dict().items():
            cd.testing.assert_close(value, plain.state_dict()[name])

    dist.threads.spawn(program, nprocs=3)


def test_sums_over_passes_unused_tables_hooks_and_one_rank() -> None:
    cd.manual_seed(0)
    start = Net(True)

    def gradient(rank: int, steps: int) -> Any:
        model = copy.deepcopy(start)
        for step in range(steps):
            model(batch(rank, step)).sum().backward()
        return model.table.weight.grad.to_dense()

    def program(rank: int) -> None:
        size = dist.get_world_size()
        model = DistributedDataParallel(copy.deepcopy(start), find_unused_parameters=True)
        model.register_comm_hook(None, default_hooks.allreduce_hook)
        with model.no_sync():
            model(batch(rank, 0)).sum().backward()
        model(batch(rank, 1)).sum().backward()
        weight = model.module.table.weight
        expected = sum(gradient(r, 2) for r in range(size)) / size
        cd.testing.assert_close(weight.grad.to_dense(), expected)
        model.zero_grad()
        model(batch(rank, 0), use=False).sum().backward()
        assert weight.grad is None
        model(batch(rank, 0), use=rank == 0).sum().backward()
        cd.testing.assert_close(weight.grad.to_dense(), gradient(0, 1) / size)

    for ranks in (1, 2):
        dist.threads.spawn(program, nprocs=ranks)


def test_ranks_without_input_and_a_table_by_hand() -> None:
    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(cd.ones(4, 2))

        def forward(self, x: Any) -> Any:
            return nn.functional.embedding(x, self.weight, sparse=True)

    cd.manual_seed(0)
    start = Net(True)

    def program(rank: int) -> None:
        model = DistributedDataParallel(copy.deepcopy(start))
        with model.join():
            trained(model, [[batch(rank, step)] for step in range(1 + 2 * rank)])
        every = [cd.empty(7, 3) for _ in range(2)]
        dist.all_gather(every, model.module.table.weight)
        cd.testing.assert_close(every[0], every[1])
        with pytest.raises(RuntimeError, match="is sparse.*\n  fix: Embedding"):
            DistributedDataParallel(ByHand())(cd.tensor([1])).sum().backward()

    dist.threads.spawn(program, nprocs=2)


def test_a_rank_without_input_adds_nothing_to_a_table() -> None:
    def program(rank: int) -> None:
        table = nn.Embedding(4, 2, sparse=True)
        net = DistributedDataParallel(table)
        found = []
        with net.join():
            for step in range(1 + 2 * rank):  # rank 0 has left after the first step
                net.zero_grad()
                net(cd.tensor([rank, step])).sum().backward()
                found.append(table.weight.grad.to_dense()[:, 0].tolist())
        if rank:
            assert found[1:] == [[0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]]

    dist.threads.spawn(program, nprocs=2)
