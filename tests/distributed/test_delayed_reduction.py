"""DistributedDataParallel with parameters whose gradients are averaged at the end of a pass."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.nn.parallel import DistributedDataParallel
from coredispatch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.first, self.body, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.recompute = recompute

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = checkpoint(self.body, x, use_reentrant=True) if self.recompute else self.body(x)
        return self.last(x)


def trained(model: Any, batches: list[Any]) -> None:
    optimizer = cd.optim.SGD(model.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("names", [["body", "last"], ["last"], ["first", "body", "last"]])
@pytest.mark.parametrize("trigger", ["first", "last"])
def test_training_is_that_of_one_process(recompute: bool, names: list[str], trigger: str) -> None:
    cd.manual_seed(0)
    plain = Net(recompute)
    start = copy.deepcopy(plain)
    batches = [cd.randn(6, 3) for _ in range(3)]
    trained(plain, batches)

    def program(rank: int) -> None:
        net = copy.deepcopy(start)
        named = [(n, p) for n, p in net.named_parameters() if n.partition(".")[0] in names]
        model = DistributedDataParallel(
            net,
            delay_all_reduce_named_params=named,
            param_to_hook_all_reduce=getattr(net, trigger).weight,
        )
        trained(model, [x[3 * rank : 3 * rank + 3] for x in batches])
        for name, value in net.state_dict().items():
            cd.testing.assert_close(value, plain.state_dict()[name])
        with pytest.raises(RuntimeError, match="not pickled\n  fix: "):
            pickle.dumps(model)

    dist.threads.spawn(program, nprocs=2)


def test_what_is_refused() -> None:
    def program(rank: int) -> None:
        net = Net()
        named = list(net.named_parameters())[:1]
        with pytest.raises(ValueError, match="need to be set at the same time"):
            DistributedDataParallel(net, delay_all_reduce_named_params=named)
        with pytest.raises(ValueError, match="need to be set at the same time"):
            DistributedDataParallel(net, param_to_hook_all_reduce=net.last.weight)
        with pytest.raises(ValueError, match="'w' is no parameter of the module"):
            DistributedDataParallel(
                net,
                delay_all_reduce_named_params=[("w", nn.Parameter(cd.ones(1)))],
                param_to_hook_all_reduce=net.last.weight,
            )

    dist.threads.spawn(program, nprocs=1)
