"""Data-parallel training on several ranks: one program that checks all of it, on two engines."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from coredispatch.frontend.distributed import buckets

HERE = Path(__file__).parent


def test_two_ranks_of_mpi(mpirun: Any) -> None:
    assert mpirun(2, "training_program.py", "mpi").stdout.count("training agrees") == 2


@pytest.mark.slow
def test_four_spawned_processes(run_program: Any, tmp_path: Path) -> None:
    program = str(HERE / "training_program.py")
    done = run_program(sys.executable, program, "spawn", "4", f"file://{tmp_path}/meet")
    assert done.stdout.count("training agrees") == 4


@pytest.mark.once
def test_one_rank_alone(run_program: Any, tmp_path: Path) -> None:
    program = str(HERE / "training_program.py")
    done = run_program(sys.executable, program, "spawn", "1", f"file://{tmp_path}/meet")
    assert done.stdout.count("training agrees") == 1


@pytest.mark.once
def test_the_tutorial(run_program: Any) -> None:
    """PyTorch's, with MASTER_ADDR and MASTER_PORT, an average by hand and a checkpoint."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = str(HERE / "tutorial_program.py")
    done = run_program(sys.executable, program, env={"MASTER_PORT": str(port)})
    assert done.stdout.count("Finished running basic DDP example") == 2


class TestWithoutRanks:
    def test_a_group_is_needed(self) -> None:
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            nn.parallel.DistributedDataParallel(nn.Linear(1, 1))

    def test_sync_batch_norm_alone_is_batch_norm(self) -> None:
        x = cd.randn(4, 3, 2)
        a, b = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
        assert cd.equal(a(x), b(x)) and cd.equal(a.running_var, b.running_var)

    def test_simulated(self) -> None:
        with dist.world.separate_world():
            dist.init_process_group("fake", rank=3, world_size=1000)
            with pytest.raises(RuntimeError, match="is not needed"):
                nn.parallel.DistributedDataParallel(nn.ReLU())
            with pytest.raises(NotImplementedError, match="bucket_cap_mb_list"):
                nn.parallel.DistributedDataParallel(nn.Linear(1, 1), bucket_cap_mb_list=[1])
            with pytest.raises(ValueError, match="leave device_ids out"):
                nn.parallel.DistributedDataParallel(nn.Linear(1, 1), device_ids=[0])
            model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            model(cd.ones(1, 2)).sum().backward()
            assert model.module.weight.grad.flatten().tolist() == pytest.approx([0.001, 0.001])
            with pytest.raises(TypeError, match="must be callable"):
                model.register_comm_hook(None, 3)  # type: ignore[arg-type]
            dist.destroy_process_group()

    def test_power_sgd_wants_two_passes_first(self) -> None:
        with pytest.raises(ValueError, match="start_powerSGD_iter"):
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1)


def test_buckets_are_the_same_on_a_thousand_ranks() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)])
    params = list(model.parameters())
    order = list(range(len(params) - 1, -1, -1))
    layouts = {
        tuple(tuple(b.positions) for b in buckets.assign(params, order, 40_000, 10_000))
        for _ in range(3)
    }
    assert len(layouts) == 1
    (layout,) = layouts
    assert sorted(p for bucket in layout for p in bucket) == list(range(40))
    sizes = [sum(params[p].numel() * 4 for p in bucket) for bucket in layout]
    assert all(size <= 40_000 for size in sizes) and len(sizes) > 3
    wide = [cd.zeros(3, requires_grad=True), cd.zeros(256, 256, requires_grad=True), params[0]]
    made = buckets.assign(wide, [2, 1, 0], 40_000, 40_000, direct=True)
    assert [(b.positions, b.direct, b.nbytes) for b in made] == [
        ([1], True, 2**18), ([2, 0], False, 64 * 64 * 4 + 12)]  # fmt: skip


def test_hooks_of_the_program_do_not_meet_a_reduction_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They see this rank's gradient, and what they make of it is replaced by the average."""
    monkeypatch.setattr(buckets, "LARGE", 1)

    def program(rank: int) -> tuple[Any, Any]:
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1, bias=False))
        seen = []

        def hook(param: Any) -> None:
            seen.append(param.grad.tolist())
            param.grad.zero_()

        model.module.weight.register_post_accumulate_grad_hook(hook)
        model(cd.full((1, 3), 1.0 + rank)).sum().backward()
        return seen, model.module.weight.grad.tolist()

    found = dist.threads.spawn(program, nprocs=2)
    assert found == [([[[1.0 + rank] * 3]], [[1.5] * 3]) for rank in range(2)]


def test_zero_deals_parameters_out_evenly() -> None:
    loads = []
    params = [cd.zeros(n, requires_grad=True) for n in range(1, 400)]
    for rank in (0, 5, 99):
        with dist.world.separate_world():
            dist.init_process_group("fake", rank=rank, world_size=100)
            opt = dist.optim.ZeroRedundancyOptimizer(params, cd.optim.SGD, lr=0.1)
            own = opt.optim.param_groups[0]["params"]
            loads.append(sum(p.numel() for p in own))
            with pytest.raises(RuntimeError, match="consolidate_state_dict"):
                opt.state_dict()
            dist.destroy_process_group()
    assert max(loads) - min(loads) <= 2


def test_zero_steps_parameters_that_are_added() -> None:
    def program(rank: int) -> tuple[list[Any], Any]:
        params = [cd.zeros(n, requires_grad=True) for n in (3, 2, 2, 1)]
        opt = dist.optim.ZeroRedundancyOptimizer(params[:1], cd.optim.SGD, lr=1.0)
        opt.add_param_group({"params": params[1:3]})
        opt.add_param_group({"params": params[3:], "lr": 0.5})
        for param in params:
            param.grad = cd.ones_like(param)
        opt.step()
        for to in range(dist.get_world_size()):
            opt.consolidate_state_dict(to=to)
        groups = opt.state_dict() if rank == dist.get_world_size() - 1 else None
        return [p.tolist() for p in params], groups and [
            g["params"] for g in groups["param_groups"]
        ]

    values = [[-1.0] * 3, [-1.0] * 2, [-1.0] * 2, [-0.5]]
    for count in (1, 2, 3):
        found = dist.threads.spawn(program, nprocs=count)
        assert found == [(values, None)] * (count - 1) + [(values, [[0], [1, 2], [3]])]
