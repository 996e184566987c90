"""``utils.checkpoint`` in sharded modules: what backward computes again has whole parameters."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import fully_shard
from coredispatch.distributed.tensor import DTensor
from coredispatch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, where: str, reentrant: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 5), nn.Linear(5, 4)
        self.scale = nn.Parameter(cd.full((4,), 1.1))
        self.where, self.reentrant = where, reentrant

    def inner(self, x: Any) -> Any:
        return self.down(self.up(x).tanh()) * self.scale

    def forward(self, x: Any) -> Any:
        if self.where == "inside":
            return x + checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return x + self.inner(x)


class Model(nn.Module):
    """Its second block is called twice; embed and head are in the unit of the model itself."""

    def __init__(self, where: str, reentrant: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 3)
        self.first, self.second = Block(where, reentrant), Block(where, reentrant)
        self.where, self.reentrant = where, reentrant

    def forward(self, x: Any) -> Any:
        if self.where == "of the model":
            x = checkpoint(self.embed, x, use_reentrant=self.reentrant)
        else:
            x = self.embed(x)
        for block in (self.second, self.first, self.second):
            if self.where == "outside":
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            else:
                x = block(x)
        return self.head(x)


def sgd(model: Any) -> Any:
    return cd.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: Any, x: Any, y: Any, optimizer: Any = None) -> None:
    optimizer = optimizer or sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("where", ["nowhere", "inside", "outside", "of the model"])
def test_recomputed_parts_give_the_gradients_of_one_process(where: str, reentrant: bool) -> None:
    cd.manual_seed(0)
    plain = Model(where, reentrant).double()
    x, y = cd.randn(8, 4, dtype=cd.float64), cd.randn(8, 3, dtype=cd.float64)
    x.requires_grad_(reentrant)  # what a reentrant checkpoint needs
    kept = copy.deepcopy(plain)
    train(plain, x, y)

    def program(rank: int) -> None:
        model: Any = copy.deepcopy(kept)
        for block in (model.first, model.second):
            fully_shard(block)
        fully_shard(model)
        half = slice(4 * rank, 4 * rank + 4)
        train(model, x.detach()[half].requires_grad_(reentrant), y[half])
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert isinstance(ours, DTensor)
            cd.testing.assert_close(ours.full_tensor().detach(), theirs.detach())

    dist.threads.spawn(program, nprocs=2)


def test_training_goes_on_after_an_error_in_backward() -> None:
    cd.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = cd.randn(8, 4, dtype=cd.float64), cd.randn(8, 3, dtype=cd.float64)
    kept = copy.deepcopy(plain)
    train(plain, x, y)

    def refuse(grad: Any) -> None:
        raise ValueError("the gradient is refused")

    def program(rank: int) -> None:
        model: Any = copy.deepcopy(kept)
        fully_shard(model[0])
        fully_shard(model)
        optimizer = sgd(model)
        handle = model[0].register_forward_hook(
            lambda m, a, out: out.register_hook(refuse) and None
        )
        with pytest.raises(ValueError, match="refused"):
            model(x).sum().backward()
        handle.remove()
        train(model, x[4 * rank : 4 * rank + 4], y[4 * rank : 4 * rank + 4], optimizer)
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert isinstance(ours, DTensor)
            cd.testing.assert_close(ours.full_tensor().detach(), theirs.detach())

    dist.threads.spawn(program, nprocs=2)
