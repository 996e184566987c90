"""Uneven inputs of what is no DistributedDataParallel: optimizers, and classes of the user."""

from __future__ import annotations

from typing import Any

from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.join import Join, Joinable, JoinHook
from coredispatch.distributed.optim import ZeroRedundancyOptimizer
from coredispatch.nn.parallel import DistributedDataParallel as DDP


def test_a_sharded_optimizer_steps_on_ranks_without_input() -> None:
    def train(rank: int, sharded: bool) -> list[float]:
        with seeded(0):
            model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        model = DDP(model)
        if sharded:
            opt: Any = ZeroRedundancyOptimizer(model.parameters(), cd.optim.SGD, lr=0.1)
        else:
            opt = cd.optim.SGD(model.parameters(), lr=0.1)
        with Join([model, opt] if sharded else [model]):
            for step in range(2 + 2 * rank):
                opt.zero_grad()
                model(cd.full((2, 3), step + rank + 1.0)).square().mean().backward()
                opt.step()
        return [float(p.sum()) for p in model.parameters()]

    plain = dist.threads.spawn(train, (False,), nprocs=2)
    sharded = dist.threads.spawn(train, (True,), nprocs=2)
    assert sharded[0] == sharded[1] == plain[1]


class _Counter(Joinable):
    """The example of PyTorch's tutorial on uneven inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.most = cd.zeros(1)

    def __call__(self) -> None:
        Join.notify_join_context(self)
        own = cd.ones(1)
        dist.all_reduce(own)
        self.count = self.count + own

    def join_hook(self, **kwargs: Any) -> JoinHook:
        counter = self

        class Hook(JoinHook):
            def main_hook(self) -> None:
                dist.all_reduce(cd.zeros(1))

            def post_hook(self, is_last_joiner: bool) -> None:
                if kwargs.get("share"):
                    rank = cd.tensor([dist.get_rank() if is_last_joiner else -1])
                    dist.all_reduce(rank, dist.ReduceOp.MAX)
                    counter.most = counter.count.clone()
                    dist.broadcast(counter.most, src=int(rank))

        return Hook()

    @property
    def join_device(self) -> Any:
        return cd.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


def test_a_class_of_the_user() -> None:
    def program(rank: int) -> tuple[float, float]:
        counter = _Counter()
        with Join([counter], share=True):
            for _ in range(5 * (rank + 1)):
                counter()
        return counter.count.item(), counter.most.item()

    assert dist.threads.spawn(program, nprocs=2) == [(10.0, 15.0), (15.0, 15.0)]
