"""Fully sharded, tensor-parallel and pipelined training."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import full_state_dict, fully_shard
from coredispatch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from coredispatch.distributed.tensor import Shard
from coredispatch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

pytestmark = pytest.mark.once

HERE = Path(__file__).parent


def test_two_ranks_of_mpi(mpirun: Any) -> None:
    done = mpirun(2, "model_parallel_program.py", "mpi")
    assert done.stdout.count("parallel models agree") == 2


@pytest.mark.slow
def test_four_spawned_processes(run_program: Any, tmp_path: Path) -> None:
    program = str(HERE / "model_parallel_program.py")
    done = run_program(sys.executable, program, "spawn", "4", f"file://{tmp_path}/meet")
    assert done.stdout.count("parallel models agree") == 4


@pytest.mark.parametrize("reshard", [True, False])
def test_gathered_weights_are_freed_and_gathered_again(reshard: bool) -> None:
    def program(rank: int) -> tuple[bool, int]:
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
        for layer in (model[0], model[2]):
            fully_shard(layer, reshard_after_forward=reshard)
        seen: list[Any] = []
        gathers = [0]
        for layer in (model[0], model[2]):
            (unit,) = layer._sharded_units
            whole = unit.gather

            def count(whole: Any = whole) -> Any:
                gathers[0] += 1
                return whole()

            unit.gather = count
            layer.register_forward_pre_hook(lambda m, a: seen.append(weakref.ref(m.weight)))
        x = cd.ones(2, 6, requires_grad=True)
        loss = model(x).sum()
        gc.collect()
        alive = any(ref() is not None for ref in seen)
        loss.backward()
        return alive, gathers[0]

    for alive, gathers in dist.threads.spawn(program, nprocs=2):
        assert gathers == (4 if reshard else 2)
        assert alive is not reshard


def test_sharding_maps_of_a_thousand_ranks() -> None:
    whole = 0
    for rank in (0, 1, 499, 999):
        with dist.world.separate_world():
            dist.init_process_group("fake", rank=rank, world_size=1000)
            model = fully_shard(nn.Linear(3, 1500))
            rows = model.weight.to_local().shape[0]
            assert model.weight.shape == (1500, 3) and model.weight.placements == (Shard(0),)
            assert rows == (2 if rank < 750 else 0) and model.bias.to_local().shape == (rows,)
            model(cd.ones(1, 3)).sum().backward()
            assert model.weight.grad.to_local().shape == (rows, 3)
            whole += rows
            with pytest.raises(ValueError, match="sharded already"):
                fully_shard(model)
            dist.destroy_process_group()
    assert whole == 6


def test_a_shared_weight_and_a_state() -> None:
    def program(rank: int) -> bool:
        with seeded(0):
            model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
        model[1].weight = model[0].weight
        before = model[0].weight.detach().clone()
        fully_shard(model)
        assert model[1].weight is model[0].weight
        assert len(list(model.parameters())) == 1
        model(cd.arange(5)).sum().backward()
        weight = before.clone().requires_grad_()
        nn.functional.linear(nn.functional.embedding(cd.arange(5), weight), weight).sum().backward()
        assert cd.allclose(model[0].weight.grad.full_tensor(), weight.grad)
        state = full_state_dict(model)
        return cd.equal(state["0.weight"], before) and cd.equal(state["1.weight"], before)

    assert dist.threads.spawn(program, nprocs=2) == [True, True]


def test_tensor_parallel_parameters_are_not_sharded_over_the_same_ranks() -> None:
    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        model = nn.Sequential(nn.Linear(2, 2))
        parallelize_module(model, mesh, {"0": ColwiseParallel()})
        with pytest.raises(ValueError, match="not two parts of one mesh"):
            fully_shard(model, mesh=mesh)

    dist.threads.spawn(program, nprocs=2)


def test_wrong_plans() -> None:
    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        with pytest.raises(ValueError, match="'up', which is no layer"):
            parallelize_module(nn.Sequential(nn.Linear(2, 2)), mesh, {"up": ColwiseParallel()})
        with pytest.raises(NotImplementedError, match="not ReLU"):
            parallelize_module(nn.ReLU(), mesh, RowwiseParallel())
        with pytest.raises(ValueError, match="3 stages on 2 ranks"):
            PipelineStage(nn.ReLU(), rank, 3)
        with pytest.raises(ValueError, match="must be on rank"):
            PipelineStage(nn.ReLU(), 1 - rank, 2)

    dist.threads.spawn(program, nprocs=2)


class _Stage:
    def __init__(self, index: int, stages: int) -> None:
        self.stage_index, self.num_stages = index, stages
        self.group, self.here = SimpleNamespace(size=lambda: stages), {}


@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_orders(kind: Any, stages: int, parts: int) -> None:
    """Every part once forward, then backward; 1F1B holds no more parts than stages follow."""
    for index in range(stages):
        order = [(what, i) for what, _, i in kind(_Stage(index, stages), parts).order()]
        assert sorted(order) == sorted(
            (w, i) for w in ("forward", "backward") for i in range(parts)
        )
        held = most = 0
        for what, i in order:
            assert what == "forward" or ("forward", i) in order[: order.index((what, i))]
            held += 1 if what == "forward" else -1
            most = max(most, held)
        assert kind is ScheduleGPipe or most <= stages - index


@pytest.mark.parametrize(("source", "expected"), [(0, [0, 0]), (1, [1, 1]), (None, [0, 1])])
def test_whose_weights_the_norms_of_a_sequence_begin_with(
    source: int | None, expected: list[int]
) -> None:
    def program(rank: int) -> float:
        norm = nn.LayerNorm(4)
        nn.init.constant_(norm.weight, rank)
        mesh = dist.init_device_mesh("cpu", (2,))
        parallelize_module(norm, mesh, SequenceParallel(), src_data_rank=source)
        return norm.weight.to_local()[0].item()

    assert dist.threads.spawn(program, nprocs=2) == expected


def test_parameters_are_divided_along_the_dimension_that_is_asked_for() -> None:
    def make() -> Any:
        with seeded(0):
            return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3), nn.PReLU())

    def train(model: Any, x: cd.Tensor) -> None:
        optimizer = cd.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    batch = cd.arange(56.0).view(8, 7) / 50
    alone = make()
    train(alone, batch)

    def program(rank: int) -> None:
        model = make()

        def last(param: cd.Tensor) -> Any:
            return Shard(-1) if param.ndim > 1 else None

        fully_shard(model[0], shard_placement_fn=last)
        fully_shard(model, shard_placement_fn=last, reshard_after_forward=False)
        assert model[0].weight.placements == (Shard(1),) == model[2].weight.placements
        assert model[0].weight.to_local().shape == (5, 4 - rank) and model[0].bias.placements == (
            Shard(0),
        )
        train(model, batch.chunk(2)[rank])
        for name, value in full_state_dict(model).items():
            cd.testing.assert_close(value, alone.state_dict()[name], msg=name)
        for bad, said in ((Shard(2), "of shape"), (1, "no Shard")):
            with pytest.raises(ValueError, match=said):
                fully_shard(nn.Linear(3, 3), shard_placement_fn=lambda p, b=bad: b)

    dist.threads.spawn(program, nprocs=2)
