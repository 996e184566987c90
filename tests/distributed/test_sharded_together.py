"""``fully_shard`` of several modules: gathered at the first call, freed after the last."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import FSDPModule, fully_shard
from coredispatch.distributed.tensor import DTensor
from coredispatch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        self.block = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
        self.recompute = recompute
        self.whole_at: list[Any] = []

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        self.whole_at.append((is_whole(self.embed), is_whole(self.head)))
        x = checkpoint(self.block, x, use_reentrant=False) if self.recompute else self.block(x)
        if self.recompute:
            return checkpoint(self.head, x, use_reentrant=False)
        return self.head(x)


def is_whole(module: Any) -> bool:
    return not isinstance(module.weight, DTensor)


def train(model: Any, x: Any, y: Any, steps: int = 3) -> list[float]:
    optimizer = cd.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_training_is_that_of_one_process(recompute: bool, keep: bool, around: bool) -> None:
    cd.manual_seed(0)
    plain = Model(recompute)
    x, y = cd.randn(4, 4), cd.randn(4, 3)
    start = copy.deepcopy(plain)
    expected = train(plain, x, y)

    def program(rank: int) -> None:
        model = copy.deepcopy(start)
        together = [model.embed, model.head]
        assert fully_shard(together, reshard_after_forward=not keep) is together
        assert isinstance(model.embed, FSDPModule) and isinstance(model.head, FSDPModule)
        if around:
            fully_shard(model)
        losses = train(model, x, y)
        assert cd.allclose(cd.tensor(losses), cd.tensor(expected), atol=1e-5)
        assert model.whole_at[0] == (True, True)
        assert not is_whole(model.embed) and not is_whole(model.head)

    dist.threads.spawn(program, nprocs=2)


def test_a_forward_of_some_of_the_modules() -> None:
    """The model calls one of them; the loss calls the other, part by part."""
    cd.manual_seed(0)
    plain = Model()
    x = cd.randn(4, 4)

    def loss_of(model: Any, hidden: Any) -> Any:
        return sum(model.head(part).square().sum() for part in hidden.chunk(2)) / len(x)

    class Body(nn.Module):
        def __init__(self, model: Model) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model.block(self.model.embed(x))

    def steps(model: Any, body: Any) -> list[float]:
        optimizer = cd.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model, body(x))
            loss.backward()
            optimizer.step()
            with cd.no_grad():
                losses += [loss.item(), loss_of(model, body(x)).item()]
        return losses

    start = copy.deepcopy(plain)
    expected = steps(plain, Body(plain))

    def program(rank: int) -> None:
        model = copy.deepcopy(start)
        body = Body(model)
        fully_shard([model.embed, model.head])
        fully_shard(body)
        found = steps(model, body)
        assert cd.allclose(cd.tensor(found), cd.tensor(expected), atol=1e-5)

    dist.threads.spawn(program, nprocs=2)


def test_new_weights_are_gathered_although_a_module_was_not_called() -> None:
    def program(rank: int) -> None:
        cd.manual_seed(0)
        a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        fully_shard([a, b])
        optimizer = cd.optim.SGD([*a.parameters(), *b.parameters()], lr=1.0)
        x = cd.ones(1, 2)
        with cd.no_grad():
            a(x)  # b is whole now
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = cd.ones_like(param)
        with cd.no_grad():
            before = b(x)
            a(x)
            optimizer.step()
            assert cd.allclose(b(x), before - 3)

    dist.threads.spawn(program, nprocs=2)


def test_modules_inside_others_and_an_error_in_forward() -> None:
    def program(rank: int) -> None:
        a, b = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
        fully_shard([a, a[0], b, b])
        assert isinstance(a, FSDPModule) and not isinstance(a[0], FSDPModule)
        with pytest.raises(RuntimeError):
            a(cd.ones(1, 3))
        assert not is_whole(a[0]) and not is_whole(b)
        assert b(a(cd.ones(1, 2))).shape == (1, 2)
        assert not is_whole(a[0]) and not is_whole(b)
        b.unshard()
        assert is_whole(a[0])
        a.reshard()
        assert not is_whole(b)

    dist.threads.spawn(program, nprocs=2)


def test_what_is_refused() -> None:
    def program(rank: int) -> None:
        for wrong, error, text in (
            ([], ValueError, "empty list"),
            ([nn.Linear(1, 1), "x"], TypeError, "not str"),
            (5, TypeError, "not int"),
            (nn.ModuleList([nn.Linear(1, 1)]), ValueError, "no forward"),
            ([nn.ModuleDict()], ValueError, "no forward"),
        ):
            with pytest.raises(error, match=f"fully_shard.*{text}.*\n  fix: "):
                fully_shard(wrong)

    dist.threads.spawn(program, nprocs=1)
