"""Local SGD: models that are trained apart and averaged now and then."""

from __future__ import annotations

from typing import Any

import pytest
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from coredispatch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from coredispatch.distributed.algorithms.model_averaging.utils import average_parameters
from coredispatch.distributed.optim import PostLocalSGDOptimizer
from coredispatch.nn.parallel import DistributedDataParallel as DDP

RANKS, STEPS, WARM_UP, PERIOD = 4, 9, 3, 2


def model() -> nn.Module:
    with seeded(1):
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def loss(net: Any, rank: int, step: int) -> Any:
    return net(cd.full((2, 3), 0.1 * step + rank, dtype=cd.float64)).square().mean()


def expected(groups: list[list[int]]) -> list[Any]:
    """Computed one rank after the other; `groups` average their gradients after the warm-up."""
    nets = [model() for _ in range(RANKS)]
    optimizers = [cd.optim.SGD(net.parameters(), 0.1, momentum=0.5) for net in nets]
    for step in range(STEPS):
        for rank, net in enumerate(nets):
            optimizers[rank].zero_grad()
            loss(net, rank, step).backward()
        with cd.no_grad():
            for group in [list(range(RANKS))] if step < WARM_UP else groups:
                for params in zip(*[nets[rank].parameters() for rank in group], strict=True):
                    mean = cd.stack([p.grad for p in params]).mean(0)
                    for param in params:
                        param.grad.copy_(mean)
            for optimizer in optimizers:
                optimizer.step()
            if step >= WARM_UP and (step - WARM_UP) % PERIOD == 0:
                for params in zip(*[net.parameters() for net in nets], strict=True):
                    mean = cd.stack(list(params)).mean(0)
                    for param in params:
                        param.copy_(mean)
    return [list(net.parameters()) for net in nets]


@pytest.mark.parametrize("together", [True, False])
def test_training(together: bool) -> None:
    want = expected([[0, 1], [2, 3]] if together else [[0], [1], [2], [3]])

    def train(rank: int) -> None:
        subgroup, _ = dist.new_subgroups(2)
        net = DDP(model())
        state = PostLocalSGDState(None, subgroup, WARM_UP, post_local_gradient_allreduce=together)
        net.register_comm_hook(state, post_localSGD_hook)
        inner = cd.optim.SGD(net.parameters(), 0.1, momentum=0.5)
        optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(PERIOD, WARM_UP))
        for step in range(STEPS):
            optimizer.zero_grad()
            loss(net, rank, step).backward()
            optimizer.step()
            if step == 4:  # a checkpoint has the averager's step
                saved = optimizer.state_dict()
                assert saved["step"] == 5
                inner = cd.optim.SGD(net.parameters(), 0.1, momentum=0.5)
                optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(PERIOD, WARM_UP))
                optimizer.load_state_dict(saved)
        for mine, other in zip(net.parameters(), want[rank], strict=True):
            cd.testing.assert_close(mine, other)

    dist.threads.spawn(train, nprocs=RANKS)


def test_what_is_averaged() -> None:
    def program(rank: int) -> list[float]:
        first, second, frozen = (nn.Parameter(cd.full((2,), rank + i + 0.0)) for i in range(3))
        half = nn.Parameter(cd.full((1,), float(rank), dtype=cd.float64))
        for param in (first, second, half):
            param.grad = cd.zeros_like(param)
        averager = PeriodicModelAverager(2, process_group=dist.group.WORLD)
        averager.average_parameters([{"params": [first]}, {"params": [second, frozen, half]}])
        averager.average_parameters([{"params": [first.detach().fill_(rank)]}])  # not yet
        pair = dist.new_group([0, 1])
        average_parameters([frozen], pair)
        with pytest.raises(NotImplementedError, match="is not supported"):
            averager.average_parameters(["weight"])
        return [float(p[0]) for p in (first, second, frozen, half)]

    found = dist.threads.spawn(program, nprocs=3)
    assert found == [[0.0, 2.0, 2.5, 1.0], [1.0, 2.0, 2.5, 1.0], [2.0, 2.0, 4.0, 1.0]]


def test_wrong_periods() -> None:
    def program(rank: int) -> None:
        with pytest.raises(ValueError, match="positive value, not 0"):
            PeriodicModelAverager(0)
        with pytest.raises(ValueError, match="non-negative number, not -1"):
            PeriodicModelAverager(2, -1)
        with pytest.warns(UserWarning, match="When period is 1"):
            averager = PeriodicModelAverager(1)
        optimizer = PostLocalSGDOptimizer(cd.optim.SGD(model().parameters(), 0.1), averager)
        with pytest.warns(UserWarning, match="does not contain a step counter"):
            optimizer.load_state_dict(optimizer.optim.state_dict())

    dist.threads.spawn(program, nprocs=1)
