"""Process groups over NCCL, with threads in the place of processes and NumPy in that of CuPy.

What is proved: the calls, their counts, types and groups. Not proved: anything about hardware.
"""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn

RANKS = 3
DTYPES = "float32 float64 float16 int64 int32 int16 uint8 bool complex64".split()


@pytest.fixture
def ranks(stand_in: Any) -> Any:
    """``ranks(program)``: what ``program(rank)`` returns on three ranks over NCCL."""

    def run(program: Any) -> list[Any]:
        store, results, errors = dist.HashStore(), [None] * RANKS, []

        def one(rank: int) -> None:
            with dist.world.separate_world():
                try:
                    dist.init_process_group(
                        "cpu:local,cuda:nccl", store=store, rank=rank, world_size=RANKS
                    )
                    results[rank] = program(rank)
                except BaseException as error:
                    errors.append(error)
                finally:
                    if dist.is_initialized():
                        dist.destroy_process_group()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    return run


def value(rank: int, shape: tuple[int, ...], kind: str) -> Any:
    """What a rank has: small numbers, exact in every dtype."""
    rng = np.random.default_rng([rank, *shape])
    return cd.tensor(rng.integers(0, 3, shape)).to(getattr(cd, kind))


def agree(found: Any, expected: Any) -> None:
    assert found.device.type == "cuda"
    wanted = cd.as_tensor(expected).to(cd.complex128)
    cd.testing.assert_close(found.cpu().to(cd.complex128), wanted)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()], ids=str)
def test_every_collective(ranks: Any, kind: str, shape: tuple[int, ...]) -> None:
    every = [value(r, shape, kind) for r in range(RANKS)]
    total = sum(v.to(cd.complex128) for v in every)
    total = (total != 0) if kind == "bool" else total

    def program(rank: int) -> None:
        own = every[rank].to("cuda")
        for name, expected in (
            ("SUM", total),
            ("MAX", np.max([v.numpy() for v in every], 0) if kind != "complex64" else None),
        ):
            if expected is None:
                continue
            x = own.clone()
            dist.all_reduce(x, getattr(dist.ReduceOp, name))
            agree(x, expected)
            y = own.clone()
            dist.reduce(y, 1, getattr(dist.ReduceOp, name))
            agree(y, expected if rank == 1 else every[rank])
        b = own.clone()
        dist.broadcast(b, 2)
        agree(b, every[2])
        out = [cd.zeros_like(own) for _ in range(RANKS)]
        dist.all_gather(out, own)
        into = cd.zeros((RANKS, *shape), dtype=own.dtype, device="cuda")
        dist.all_gather_into_tensor(into, own)
        for r in range(RANKS):
            agree(out[r], every[r])
            agree(into[r], every[r])
        collected = [cd.zeros_like(own) for _ in range(RANKS)] if rank == 0 else None
        dist.gather(own, collected, dst=0)
        if collected:
            agree(collected[2], every[2])
        part = cd.zeros_like(own)
        dist.scatter(part, [v.to("cuda") for v in every] if rank == 1 else None, src=1)
        agree(part, every[rank])
        came = [cd.zeros_like(own) for _ in range(RANKS)]
        dist.all_to_all(came, [own.clone() for _ in range(RANKS)])
        agree(came[1], every[1])
        if kind != "bool":
            kept = cd.zeros_like(own)
            dist.reduce_scatter(kept, [own.clone() for _ in range(RANKS)])
            agree(kept, total)

    ranks(program)


def test_bits_sizes_messages_and_groups(ranks: Any) -> None:
    def program(rank: int) -> None:
        bits = cd.tensor([1 << rank, 3]).to("cuda")
        dist.all_reduce(bits, dist.ReduceOp.BOR)
        agree(bits, [7, 3])
        out = [cd.zeros(r + 1, device="cuda") for r in range(RANKS)]
        dist.all_gather(out, cd.full((rank + 1,), float(rank), device="cuda"))
        agree(out[2], [2.0] * 3)
        rows = [r + rank + 1 for r in range(RANKS)]
        y = cd.empty(sum(rows), 2, device="cuda")
        x = cd.cat([cd.full((n, 2), 10.0 * rank + r) for r, n in enumerate(rows)]).to("cuda")
        dist.all_to_all_single(y, x, rows, rows)
        agree(y[0], [float(rank)] * 2)
        right, left = (rank + 1) % RANKS, (rank - 1) % RANKS
        got = cd.zeros(2, device="cuda")
        sent = dist.isend(cd.full((2,), float(rank), device="cuda"), right)
        assert dist.recv(got, left) == left
        sent.wait()
        agree(got, [float(left)] * 2)
        strided = cd.arange(6.0).view(2, 3).t().to("cuda").t()
        work = dist.all_reduce(strided, dist.ReduceOp.AVG, async_op=True)
        assert work.wait() and work.is_completed()
        agree(strided, cd.arange(6.0).view(2, 3))
        pair = dist.new_group([0, 2])
        if rank != 1:
            one = cd.ones(1, device="cuda")
            dist.all_reduce(one, group=pair)
            agree(one, [2.0])
        dist.barrier()
        with pytest.raises(dist.DistBackendError, match="from a named rank only"):
            dist.recv(got)

    ranks(program)


def test_data_parallel_training(ranks: Any) -> None:
    weights, inputs = cd.tensor([[1.0, -2.0]]), [cd.full((1, 2), r + 1.0) for r in range(RANKS)]

    def program(rank: int) -> Any:
        model = nn.Linear(2, 1, bias=False)
        model.weight.detach().copy_(weights)
        model = nn.parallel.DistributedDataParallel(model.to("cuda"))
        model(inputs[rank].to("cuda")).sum().backward()
        return model.module.weight.grad

    for grad in ranks(program):
        agree(grad, [[2.0, 2.0]])


def test_the_version_of_nccl(stand_in, monkeypatch):
    monkeypatch.setattr(stand_in.cupy.cuda, "nccl", None, raising=False)
    with pytest.raises(RuntimeError, match="has no NCCL"):
        cd.cuda.nccl.version()
    for number, version in ((22703, (2, 27, 3)), (2708, (2, 7, 8))):
        found = types.SimpleNamespace(get_version=lambda n=number: n)
        monkeypatch.setattr(stand_in.cupy.cuda, "nccl", found)
        assert cd.cuda.nccl.version() == version
