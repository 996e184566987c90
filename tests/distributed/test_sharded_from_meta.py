"""Programs that shard a model before it has memory, and optimizers that step in backward."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coredispatch as cd
from coredispatch import distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import fully_shard
from coredispatch.distributed.optim import _apply_optimizer_in_backward
from coredispatch.distributed.tensor import DTensor, distribute_tensor
from coredispatch.distributed.threads import spawn


def _net(device: str = "cpu") -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 5, device=device), nn.Tanh(), nn.Linear(5, 2, device=device))
    if device == "cpu":
        with cd.no_grad():
            for number, param in enumerate(net.parameters()):
                param.copy_((cd.arange(param.numel()) + number).sin().view(param.shape))
    return net


def _sharded_from_meta(rank: int) -> list[float]:
    net = fully_shard(_net("meta"))
    net.to_empty(device="cpu")
    held = net[0].weight
    assert isinstance(held, DTensor) and held.to_local().device.type == "cpu"
    whole = _net().state_dict()
    state = {
        name: nn.Parameter(distribute_tensor(whole[name], p.device_mesh, p.placements))
        for name, p in net.state_dict().items()
    }
    net.load_state_dict(state, assign=True)
    handle = net.unshard(async_op=True)
    handle.wait()
    assert not isinstance(net[0].weight, DTensor)
    net.reshard()
    assert net[0].weight is state["0.weight"]
    return _steps(net, cd.optim.SGD(net.parameters(), lr=0.1), rank)


def _steps(net: nn.Module, optimizer: cd.optim.Optimizer | None, rank: int) -> list[float]:
    losses = []
    for step in range(3):
        x = (cd.arange(12) + 12 * rank + step).cos().view(4, 3)
        loss = net(x).square().mean()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def _data_parallel(rank: int, in_backward: bool) -> list[float]:
    net = _net()
    if in_backward:
        _apply_optimizer_in_backward(cd.optim.SGD, net.parameters(), {"lr": 0.1})
    wrapped = nn.parallel.DistributedDataParallel(net)
    optimizer = None if in_backward else cd.optim.SGD(net.parameters(), lr=0.1)
    losses = _steps(wrapped, optimizer, rank)
    assert all(p.grad is None for p in net.parameters())
    return losses + [float(p.sum()) for p in net.parameters()]


def test_a_model_sharded_on_meta_takes_its_weights_by_assignment() -> None:
    plain = spawn(_data_parallel, nprocs=2, args=(False,))
    sharded = spawn(_sharded_from_meta, nprocs=2)
    for losses, expected in zip(sharded, plain, strict=True):
        cd.testing.assert_close(cd.tensor(losses), cd.tensor(expected[:3]))


def test_optimizers_in_backward_step_with_averages() -> None:
    # not with the gradients of the rank itself: the copies would drift apart
    expected = spawn(_data_parallel, nprocs=2, args=(False,))
    found = spawn(_data_parallel, nprocs=2, args=(True,))
    cd.testing.assert_close(cd.tensor(found), cd.tensor(expected))
    assert found[0][3:] == found[1][3:]


def test_one_rank_steps_in_backward_too() -> None:
    (expected,) = spawn(_data_parallel, nprocs=1, args=(False,))
    (found,) = spawn(_data_parallel, nprocs=1, args=(True,))
    cd.testing.assert_close(cd.tensor(found), cd.tensor(expected))
    assert not dist.is_initialized()


def test_the_launcher_under_pytorchs_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(1) * dist.get_rank()\n"
        "dist.all_reduce(x)\n"
        "print('sum', x.item(), torch.__name__)\n"
        "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "coredispatch", "run", "-m", "torch.distributed.run"]
    done = subprocess.run(
        [*command, "--standalone", "--nproc-per-node", "2", str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 1.0 torch") == 2
