"""Random operators on DTensors: the numbers of one process in every layout, nothing gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.tensor import Replicate, Shard, distribute_tensor
from coredispatch.frontend.distributed.tensor import transfers

F = nn.functional
VALUES = cd.linspace(-1, 1, 5 * 6 * 2 * 3, dtype=cd.float64).view(5, 6, 2, 3)

#: functions that draw for a tensor; they lie as their argument does
DRAWS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout in float32": lambda x: F.dropout(x.float(), 0.3),
    "dropout in bfloat16": lambda x: F.dropout(x.bfloat16(), 0.3),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.3, inplace=True),
    "dropout2d": F.dropout2d,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "rrelu_": lambda x: F.rrelu(x.clone(), training=True, inplace=True),
    "rand_like": cd.rand_like,
    "randn_like": lambda x: x + cd.randn_like(x, dtype=cd.float32),
    "randint_like": lambda x: cd.randint_like(x, 2, 40),
    "bernoulli": lambda x: x * cd.bernoulli(x, 0.25),
    "uniform_": lambda x: x.clone().uniform_(-1, 2),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "random_": lambda x: x.clone().random_(3, 90),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.7),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "geometric_": lambda x: x.clone().geometric_(0.1),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, dim=-1),
}


def attended(x: Any) -> Any:
    """Long enough for a kernel that drops weights by a seed."""
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


#: what they draw depends on values of all ranks
GATHERING: dict[str, Callable[[Any], Any]] = {
    "bernoulli of probabilities": lambda x: cd.bernoulli(x.sigmoid()),
    "poisson": lambda x: cd.poisson(x.exp()),
    "normal": lambda x: cd.normal(x, x.exp()),
    "multinomial": lambda x: cd.multinomial(x.exp().flatten(1), 4),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "attention of many": lambda x: attended(cd.cat([x] * 40, 2)),
}
LAYOUTS = [(Replicate(),), (Shard(0),), (Shard(1),), (Shard(3),), (Shard(0), Shard(0))]


def compare(draw: Callable[[Any], Any], layout: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Against one process; the redistributions that were needed."""
    with seeded(3):
        plain = VALUES.clone().requires_grad_()
        first, second = draw(plain), draw(plain)
        if first.requires_grad:
            (first + second).sum().backward()
        after = cd.rand(3)
    moves: list[tuple[Any, Any]] = []
    step = transfers._step

    def watch(local: Any, shape: Any, mesh: Any, dim: int, source: Any, target: Any) -> Any:
        if source != target and source.is_shard():
            moves.append((source, target))
        return step(local, shape, mesh, dim, source, target)

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,) * len(layout))
        x: Any = distribute_tensor(VALUES, mesh, layout, src_data_rank=None).requires_grad_()
        found = draw(x), draw(x)
        if found[0].requires_grad:
            (found[0] + found[1]).sum().backward()
        needed = list(moves)
        dist.barrier()
        for mine, want in zip(found, (first, second), strict=True):
            cd.testing.assert_close(mine.detach().full_tensor(), want.detach())
        if first.requires_grad:
            cd.testing.assert_close(x.grad.full_tensor(), plain.grad)
        dist.barrier()
        moves[:] = needed

    with pytest.MonkeyPatch.context() as patch, seeded(3):
        patch.setattr(transfers, "_step", watch)
        dist.threads.spawn(program, nprocs=2 ** len(layout))
        assert cd.equal(cd.rand(3), after), "the generator stands elsewhere than in one process"
    return moves


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_one_process(name: str, layout: tuple[Any, ...]) -> None:
    moves = compare(DRAWS[name], layout)
    # A softmax along a dimension that is divided, and channels that are.
    if Shard(3) not in layout or name not in (
        "gumbel_softmax",
        "dropout2d",
        "feature_alpha_dropout",
    ):
        assert not moves


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", GATHERING)
def test_numbers_that_depend_on_values(name: str, layout: tuple[Any, ...]) -> None:
    compare(GATHERING[name], layout)


def test_tensors_that_are_made() -> None:
    with seeded(4):
        expected = [cd.rand(5, 3), cd.randn(5, 3), cd.rand(2)]

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        where: dict[str, Any] = {"device_mesh": mesh, "placements": [Shard(0)]}
        made = [dist.tensor.rand(5, 3, **where), dist.tensor.randn(5, 3, **where)]
        for mine, want in zip(made, expected, strict=False):
            assert mine.placements == (Shard(0),) and cd.equal(mine.full_tensor(), want)

    with seeded(4):
        dist.threads.spawn(program, nprocs=2)
        assert cd.equal(cd.rand(2), expected[2])


def test_generators_of_their_own() -> None:
    """The first rank's is told to the others, which go on where it does if they stood there."""

    def program(rank: int) -> list[Any]:
        mesh = dist.init_device_mesh("cpu", (2,))
        x: Any = distribute_tensor(VALUES, mesh, [Shard(0)], src_data_rank=None)
        same, other = (cd.Generator().manual_seed(seed) for seed in (5, 6 + rank))
        drawn = [x.clone().uniform_(generator=g).full_tensor() for g in (same, other, same)]
        return [*drawn, cd.rand(2, generator=same), cd.rand(2, generator=other)]

    ours, theirs = dist.threads.spawn(program, nprocs=2)
    five, six = (cd.Generator().manual_seed(seed) for seed in (5, 6))
    expected = [VALUES.clone().uniform_(generator=g) for g in (five, six, five)]
    expected.append(cd.rand(2, generator=five))
    for mine, other, want in zip(ours, theirs, expected, strict=False):
        assert cd.equal(mine, want) and cd.equal(other, want)
    assert cd.equal(ours[4], cd.rand(2, generator=six))
    assert cd.equal(theirs[4], cd.rand(2, generator=cd.Generator().manual_seed(7)))
