"""Names without a promise that programs of other projects use all the same."""

from __future__ import annotations

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.optim import _apply_optimizer_in_backward, _get_in_backward_optimizers


def test_calls_in_one_block_and_the_older_names_of_collectives() -> None:
    def program(rank: int) -> list[list[float]]:
        a, b, gathered = cd.ones(2) * (rank + 1), cd.ones(1) * rank, cd.empty(2)
        with dist._coalescing_manager(async_ops=True) as calls:
            dist.all_reduce(a)
            calls.append(dist.all_reduce(b, async_op=True))
        calls.wait()
        with dist._coalescing_manager() as calls:  # which waits for what nobody appended
            dist.all_gather_into_tensor(gathered, b + rank, async_op=True)
        assert [work.is_completed() for work in calls.works] == [True]
        own, part = cd.empty(2), cd.empty(1)
        dist._all_gather_base(own, cd.ones(1) * rank)
        dist._reduce_scatter_base(part, cd.tensor([1.0, 2.0]))
        return [t.tolist() for t in (a, b, gathered, own, part)]

    with pytest.warns(FutureWarning) as caught:
        found_by_rank = dist.threads.spawn(program, nprocs=2)
    texts = " ".join(str(warning.message) for warning in caught)
    assert "distributed.all_gather_into_tensor" in texts
    assert "distributed.reduce_scatter_tensor" in texts
    for rank, found in enumerate(found_by_rank):
        assert found == [[3.0, 3.0], [1.0], [1.0, 2.0], [0.0, 1.0], [2.0 * (rank + 1)]]


def test_optimizers_that_step_in_the_backward_pass() -> None:
    def trained(within: bool) -> list[object]:
        cd.manual_seed(0)
        model = cd.nn.Sequential(cd.nn.Linear(3, 4), cd.nn.Tanh(), cd.nn.Linear(4, 1))
        if within:
            _apply_optimizer_in_backward(cd.optim.Adam, model.parameters(), {"lr": 0.1})
            assert len(_get_in_backward_optimizers(model)) == 4
        optimizer = cd.optim.Adam(model.parameters(), lr=0.1)
        for step in range(3):
            model(cd.ones(2, 3) * (step + 1)).square().sum().backward()
            if within:
                assert all(p.grad is None for p in model.parameters())
            else:
                optimizer.step()
                optimizer.zero_grad()
        return [p.tolist() for p in model.parameters()]

    assert trained(True) == trained(False)
