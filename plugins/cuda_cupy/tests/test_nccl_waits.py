"""Who waits for a call of NCCL: the current stream, and the program where PyTorch's does.

One rank, whose work waits in queues until something synchronizes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
import coredispatch.distributed as dist

INSTANT = timedelta(milliseconds=1)


@pytest.fixture
def alone(stand_in: Any) -> Iterator[Any]:
    """``alone(timeout)`` makes the group of one rank, and delays what streams do."""
    with dist.world.separate_world():

        def begin(**options: Any) -> Any:
            store = dist.HashStore()
            dist.init_process_group("cuda:nccl", store=store, rank=0, world_size=1, **options)
            dist.all_reduce(cd.ones(1, device="cuda"))
            MACHINE.drain()
            MACHINE.delay()
            MACHINE.syncs.clear()
            return dist.group.WORLD

        yield begin
        MACHINE.drain()
        MACHINE.delayed = False
        if dist.is_initialized():
            dist.destroy_process_group()


def test_waiting_is_the_current_streams(alone: Any) -> None:
    alone()
    x = cd.full((4,), 2.0, device="cuda") * 3
    out = cd.zeros(1, 4, device="cuda")
    work = dist.all_gather_into_tensor(out, x, async_op=True)
    assert not work.is_completed()
    assert work.wait() and not work.is_completed()
    y = out + 1
    dist.all_reduce(y)
    assert MACHINE.syncs == []
    assert y.tolist() == [[7.0] * 4] and work.is_completed()


def test_another_stream_waits_for_itself(alone: Any) -> None:
    alone()
    sides = cd.cuda.Stream(), cd.cuda.Stream()
    shares = cd.tensor([1, 3], dtype=cd.int16).to("cuda")  # NCCL has no such type: copied back
    strided = cd.arange(6.0).view(2, 3).to("cuda").t()
    MACHINE.drain()
    for side in sides:
        side.wait_stream(cd.cuda.current_stream())
    works = [dist.all_reduce(shares, async_op=True), dist.broadcast(strided, 0, async_op=True)]
    found = []
    for side in sides:
        with cd.cuda.stream(side):
            assert all(work.wait() for work in works)
            found.append((shares * 2, strided * 2))
    assert MACHINE.syncs == []
    for side, (a, b) in zip(sides, found, strict=True):
        with cd.cuda.stream(side):
            assert a.tolist() == [2, 6] and b.tolist() == [[0, 6], [2, 8], [4, 10]]


def test_every_collective_in_the_background_waits_for_nothing(alone: Any) -> None:
    alone()
    x, bits = cd.ones(3, device="cuda") + 1, cd.tensor([5, 6]).to("cuda")
    MACHINE.syncs.clear()
    out = [cd.zeros(3, device="cuda") for _ in range(5)]
    works = [
        dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=True),
        dist.reduce_scatter_tensor(out[0], x, async_op=True),
        dist.all_gather([out[1]], x, async_op=True),
        dist.gather(x, [out[2]], 0, async_op=True),
        dist.all_to_all_single(out[3], x, async_op=True),
        dist.scatter(out[4], [x], 0, async_op=True),
    ]
    assert all(work.wait() for work in works)
    total = cd.stack(out).sum()
    assert MACHINE.syncs == []
    assert total.item() == 30.0 and bits.tolist() == [5, 6]


def test_the_program_waits_for_barriers_and_with_a_timeout(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(timeout=INSTANT)  # what is waited for by the program never ends here
    x = cd.ones(2, device="cuda")
    dist.all_reduce(x)
    assert dist.all_reduce(x, async_op=True).wait()
    with pytest.raises(dist.DistBackendError, match="timed out"):
        dist.all_reduce(x, async_op=True).wait(INSTANT)
    with pytest.raises(dist.DistBackendError, match="timed out"):
        dist.barrier()
    with pytest.raises(dist.DistBackendError, match="timed out"):
        dist.barrier(async_op=True).wait()
    for name in ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"):
        monkeypatch.setenv(name, "1")
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.all_reduce(x)
        monkeypatch.setenv(name, "0")
        dist.all_reduce(x)
    assert MACHINE.syncs == [] and x.tolist() == [1.0, 1.0]


def test_memory_is_not_used_again_while_nccl_reads_it(alone: Any) -> None:
    alone()

    def addresses() -> list[int]:
        return [x.data_ptr() for x in [cd.full((1000,), 9.0, device="cuda") for _ in range(8)]]

    x, out = cd.full((1000,), 3.0, device="cuda"), cd.zeros(1000, device="cuda")
    address = x.data_ptr()
    work = dist.all_gather([out], x, async_op=True)
    del x
    assert address not in addresses()
    work.wait()
    del work
    assert out.sum().item() == 3000
    dist.all_reduce(out)  # what has ended is let go of
    assert address in addresses()


def test_a_call_that_never_ends_is_given_up_and_told_at_the_next_read(alone: Any) -> None:
    group = alone(timeout=timedelta(seconds=7))
    x = cd.ones(2, device="cuda")
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    other = dist.all_reduce(x, async_op=True)
    watch = group.communicators["cuda"].watch
    watch.look(-math.inf)
    assert not work.is_completed()
    watch.look(math.inf)
    with pytest.raises(RuntimeError, match="all_reduce has not ended on the device in 7 s.*"):
        x.tolist()
    assert other.is_completed() and not other.is_success()
    assert "aborted" in str(other.exception())
    for late in (lambda: dist.all_reduce(x), work.wait, lambda: dist.broadcast(x, 0)):
        with pytest.raises(dist.DistBackendError, match="aborted"):
            late()


def test_a_captured_graph_holds_the_calls_of_its_stream(alone: Any) -> None:
    alone()
    MACHINE.drain()
    MACHINE.delayed = False
    x = cd.ones(2, device="cuda")
    out = cd.zeros(1, 2, device="cuda")
    graph = cd.cuda.CUDAGraph()
    with cd.cuda.graph(graph):
        y = x * 2
        dist.all_gather_into_tensor(out, y)
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        out.add_(y)
    graph.replay()
    assert out.tolist() == [[4.0, 4.0]]
