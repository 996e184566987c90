"""DistributedDataParallel where the loss is made of some of the outputs only."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.nn.parallel import DistributedDataParallel as DDP
from coredispatch.utils.checkpoint import checkpoint


class Heads(nn.Module):
    """Two linear layers beside each other, of weight 1 and 2."""

    def __init__(self, form: str = "tuple") -> None:
        super().__init__()
        self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        self.form = form
        with cd.no_grad():
            self.a.weight.fill_(1.0)
            self.b.weight.fill_(2.0)

    def forward(self, x: cd.Tensor) -> Any:
        a, b = self.a(x), self.b(x)
        return {"tuple": (a, b), "list": [a, b], "dict": {0: a, 1: b}}[self.form]


def weights(model: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.item() for p in model.parameters()]


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True}])
@pytest.mark.parametrize("form", ["tuple", "list", "dict"])
def test_a_part_that_no_loss_reads_has_no_gradient(form: str, options: dict[str, Any]) -> None:
    def program(rank: int) -> list[Any]:
        model = DDP(Heads(form), **options)
        found = []
        for _ in range(3):
            model.zero_grad()
            model(cd.full((1, 1), rank + 1.0))[0].sum().backward()
            found.append(weights(model))
        return found

    assert dist.threads.spawn(program, nprocs=2) == [[[1.5, None]] * 3] * 2


def test_each_rank_reads_another_output() -> None:
    def program(rank: int) -> list[Any]:
        model = DDP(Heads(), find_unused_parameters=True)
        model(cd.full((1, 1), rank + 1.0))[rank].sum().backward()
        return weights(model)

    assert dist.threads.spawn(program, nprocs=2) == [[0.5, 1.0]] * 2


def test_without_the_flag_the_next_forward_names_the_part() -> None:
    def program(rank: int) -> None:
        model = DDP(Heads())
        model(cd.ones(1, 1))[0].sum().backward()
        with pytest.raises(RuntimeError, match=r"b\.weight"):
            model(cd.ones(1, 1))

    dist.threads.spawn(program, nprocs=2)


def test_a_second_backward_is_refused_and_one_without_synchronization_is_not() -> None:
    def program(rank: int) -> list[Any]:
        model = DDP(Heads(), find_unused_parameters=True)
        a, b = model(cd.ones(1, 1))
        a.sum().backward()
        with pytest.raises(RuntimeError, match=r"b\.weight.*\n.*one backward for each forward"):
            b.sum().backward()
        model.zero_grad()
        with model.no_sync():
            model(cd.full((1, 1), rank + 1.0))[1].sum().backward()
        return weights(model)

    assert dist.threads.spawn(program, nprocs=2) == [[None, 1.0], [None, 2.0]]


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_a_checkpoint_whose_backward_is_a_pass_of_its_own(options: dict[str, Any]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
            with cd.no_grad():
                self.first.weight.fill_(1.0)
                self.second.weight.fill_(1.0)

        def forward(self, x: cd.Tensor) -> cd.Tensor:
            return checkpoint(self.second, self.first(x), use_reentrant=True)  # type: ignore[no-any-return]

    def program(rank: int) -> list[Any]:
        model = DDP(Model(), **options)
        found = []
        for _ in range(2):
            model.zero_grad()
            model(cd.full((1, 1), rank + 1.0)).sum().backward()
            found.append(weights(model))
        return found

    assert dist.threads.spawn(program, nprocs=2) == [[[1.5, 1.5]] * 2] * 2


def test_a_gradient_of_a_pass_without_synchronization_is_averaged_with_the_next() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(1, 1, bias=False)
            self.second = nn.Linear(1, 1, bias=False)

        def forward(self, x: Any, first: bool) -> Any:
            return (self.first if first else self.second)(x)

    def program(rank: int) -> Any:
        net = DDP(Two(), find_unused_parameters=True)
        x = cd.ones(1, 1) * (rank + 1)
        with net.no_sync():
            net(x, False).sum().backward()
        net(x * 10, True).sum().backward()
        return [p.grad.item() for p in net.module.parameters()]

    assert dist.threads.spawn(program, nprocs=2) == [[15.0, 1.5]] * 2
