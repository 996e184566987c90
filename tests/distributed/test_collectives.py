"""All collectives on all engines. One program checks all: starting ranks is what takes long."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.frontend.distributed.communicator import Done
from coredispatch.plugin import Communicator, LateError, Request

PROGRAM = str(Path(__file__).parent / "collectives_program.py")


@pytest.mark.parametrize("ranks", [1, 3])
def test_threads(run_program: Any, ranks: int) -> None:
    done = run_program(sys.executable, PROGRAM, "local", str(ranks))
    assert done.stdout.count("all collectives agree") == ranks


@pytest.mark.once
def test_spawned_processes_over_sockets(run_program: Any, tmp_path: Path) -> None:
    done = run_program(sys.executable, PROGRAM, "spawn", "2", f"file://{tmp_path}/meet")
    assert done.stdout.count("over socket: all collectives agree") == 2


@pytest.mark.once
def test_mpi(mpirun: Any) -> None:
    assert mpirun(2, "collectives_program.py", "mpi").stdout.count("over mpi: all") == 2


@settings(max_examples=25)
@given(st.data())
def test_uneven_gathers_and_exchanges(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    counts = data.draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=size, max_size=size), min_size=size, max_size=size
        )
    )  # counts[r][s]: rows from rank r to rank s
    dtype = data.draw(st.sampled_from([cd.float32, cd.int16, cd.bool, cd.bfloat16]))

    def program(rank: int) -> tuple[list[float], list[list[float]]]:
        x = cd.cat([cd.full((n, 2), rank * 5 + s) for s, n in enumerate(counts[rank])]).to(dtype)
        arriving = [counts[r][rank] for r in range(size)]
        y = cd.zeros(sum(arriving), 2, dtype=dtype)
        dist.all_to_all_single(y, x, arriving, counts[rank])
        parts = [cd.zeros(sum(counts[r]), 2, dtype=dtype) for r in range(size)]
        dist.all_gather(parts, x)
        return y.double().tolist(), [p.double().tolist() for p in parts]

    sent = [
        np.repeat([[r * 5 + s] * 2 for s in range(size)], counts[r], axis=0).reshape(-1, 2)
        for r in range(size)
    ]
    sent = [cd.tensor(rows).to(dtype).double().numpy() for rows in sent]
    for rank, (came, gathered) in enumerate(dist.threads.spawn(program, nprocs=size)):
        starts = [np.concatenate([[0], np.cumsum(counts[r])]) for r in range(size)]
        expected = [sent[r][starts[r][rank] : starts[r][rank + 1]] for r in range(size)]
        assert came == np.concatenate(expected).tolist()
        assert gathered == [rows.tolist() for rows in sent]


def test_a_rank_that_is_late_is_named() -> None:
    def program(rank: int) -> str:
        if rank == 1:
            return ""
        with pytest.raises(dist.DistBackendError) as caught:
            dist.all_reduce(cd.ones(3))
        return str(caught.value)

    store = dist.HashStore()

    def late(rank: int) -> str:
        found = program(rank)
        store.add("done", 1)
        if rank == 1:  # alive, but elsewhere
            store.wait(["told"])
        else:
            store.set("told", "1")
        return found

    text = dist.threads.spawn(late, nprocs=2, timeout=timedelta(seconds=0.2))[0]
    assert "all_reduce(float32[3])" in text and "rank 1 is late" in text and "rank 0" in text
    seconds = re.search(r"timed out after (\S+) s", text)
    assert seconds is not None and float(seconds[1]) >= 0.2


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_a_rank_of_mpi_that_hangs_is_named(mpirun: Any, tmp_path: Path, level: str) -> None:
    """And the others end: nobody waits for it any longer than the timeout."""
    file = tmp_path / "messages"
    env = {"DISTRIBUTED_DEBUG": level}
    done = mpirun(2, "hanging_program.py", str(file), ok=False, env=env)
    assert done.returncode != 0
    received, reduced = json.loads(file.read_text())
    assert "recv(float32[2]) from 1" in received and "rank 1 is late" in received
    assert "all_reduce(float32[3])" in reduced and "rank 1 is late" in reduced


@pytest.mark.parametrize(
    ("late", "text"),
    [([], "all ranks wait, but not in the same"), ([1], "rank 1 is late"), (None, "another rank")],
)
def test_a_timeout_says_what_the_engine_knows(late: Any, text: str) -> None:
    class Stuck(Communicator, Request):
        rank, size = 0, 2

        def barrier(self) -> Request:
            return self

        def wait(self, seconds: float) -> None:
            raise LateError

        def late(self, number: int) -> Any:
            return late

    group = dist.ProcessGroup([0, 1], {"cpu": Stuck()}, "g", timedelta(seconds=1))
    with pytest.raises(dist.DistBackendError, match=text):
        group.launch("cpu", "barrier", (), "barrier()")


def test_a_future_that_follows_asks_the_engine() -> None:
    work = dist.Work(None, Done(), "all_reduce()", 1, [], [3])
    following = work.get_future().then(lambda earlier: earlier.value()[0] + 1)
    assert following.then(lambda earlier: earlier.value() + 1).done() and following.value() == 4


@pytest.mark.parametrize("asked", range(6))
def test_a_future_ends_while_it_is_asked(asked: int) -> None:
    """At whatever question the collective has ended: its callbacks run then, and once."""

    class Ends(Request):
        left = asked

        def done(self) -> bool:
            self.left -= 1
            return self.left < 0

        def wait(self, seconds: float) -> None:
            self.left = 0

    calls = []
    following = dist.Work(None, Ends(), "all_reduce()", 1, [], [3]).get_future()
    for _ in range(3):
        following = following.then(lambda earlier: calls.append(earlier))
    following.add_done_callback(calls.append)
    assert following.wait() is None and len(calls) == 4


@pytest.mark.parametrize("ask", ["wait", "done"])
def test_futures_are_collected(ask: str) -> None:
    def program(rank: int) -> Any:
        works = [dist.all_reduce(cd.full((2,), float(n)), async_op=True) for n in (1, 2)]
        futures = [work.get_future() for work in works]
        together = cd.futures.collect_all(futures).then(
            lambda all_of_them: sum(f.value()[0].sum().item() for f in all_of_them.value())
        )
        following = together.then(lambda done: done.value() + 1)
        while ask == "done" and not following.done():
            pass
        return following.wait(), [len(found) for found in cd.futures.wait_all(futures)]

    assert dist.threads.spawn(program, nprocs=2) == [(13.0, [1, 1])] * 2


@pytest.mark.parametrize("how", ["then", "add_done_callback"])
def test_a_future_that_a_callback_sets_is_waited_for(how: str) -> None:
    def program(rank: int) -> Any:
        mine: Any = cd.futures.Future()
        work = dist.all_reduce(cd.ones(2), async_op=True)
        getattr(work.get_future(), how)(lambda done: mine.set_result(done.value()[0].tolist()))
        return mine.wait()

    assert dist.threads.spawn(program, nprocs=2) == [[2.0, 2.0]] * 2


def test_callbacks_that_begin_collectives_are_waited_for() -> None:
    def program(rank: int) -> Any:
        def begun() -> Any:
            return dist.all_reduce(cd.ones(2), async_op=True).get_future()

        inner: Any = cd.futures.Future()
        begun().then(lambda _: begun().then(lambda done: inner.set_result(done.value()[0])))
        mixed: Any = cd.futures.Future()
        both = cd.futures.collect_all([begun(), mixed])
        begun().add_done_callback(lambda _: mixed.set_result(rank))
        return inner.wait().tolist(), both.wait()[1].value()

    assert dist.threads.spawn(program, nprocs=2) == [([2.0, 2.0], 0), ([2.0, 2.0], 1)]


def test_a_rank_that_has_left_is_named() -> None:
    def program(rank: int) -> None:
        if rank:
            raise KeyError("lost")
        with pytest.raises(dist.DistBackendError, match="rank 1 is gone"):
            dist.barrier()

    with pytest.raises(KeyError, match="lost") as caught:
        dist.threads.spawn(program, nprocs=2)
    assert caught.value.__notes__ == ["raised by rank 1 of 2"]


def test_monitored_barrier_names_the_missing() -> None:
    store = dist.HashStore()

    def program(rank: int) -> str:
        if rank:
            store.wait(["told"])
            return ""
        with pytest.raises(RuntimeError) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=0.1), wait_all_ranks=True)
        store.set("told", "1")
        return str(caught.value)

    assert "Ranks 1, 2 failed to pass" in dist.threads.spawn(program, nprocs=3)[0]


def test_a_thousand_simulated_ranks() -> None:
    with dist.world.separate_world():
        dist.init_process_group("fake", rank=998, world_size=1000)
        mesh = dist.init_device_mesh("cpu", (10, 100), mesh_dim_names=("dp", "tp"))
        assert mesh.get_coordinate() == (9, 98)
        assert dist.get_process_group_ranks(mesh.get_group("dp"))[:3] == [98, 198, 298]
        out = cd.empty(1000 * 3)
        dist.all_gather_into_tensor(out, cd.arange(3.0))
        assert out.reshape(1000, 3)[777].tolist() == [0.0, 1.0, 2.0]
        part = cd.empty(2)
        dist.reduce_scatter_tensor(part, cd.arange(2000.0))
        assert part.tolist() == [1996.0, 1997.0]
        dist.destroy_process_group()


class TestWithoutAGroup:
    def test_questions(self) -> None:
        assert dist.is_available() and not dist.is_initialized()
        assert dist.group.WORLD is None
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            dist.get_rank()
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            dist.all_reduce(cd.ones(1))

    def test_what_is_missing_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(ValueError, match="RANK expected"):
            dist.init_process_group("gloo")
        with pytest.raises(ValueError, match="'quantum' is not there"):
            dist.init_process_group("quantum")
        with pytest.raises(ValueError, match="threads.spawn"):
            dist.init_process_group("local")
        with pytest.raises(RuntimeError, match="No rendezvous handler for zoo://"):
            dist.init_process_group("gloo", init_method="zoo://x")
        assert not dist.is_initialized()

    def test_a_backend_of_ones_own(self) -> None:
        from coredispatch.frontend.distributed.fake import FakeCommunicator

        dist.Backend.register_backend("mine", lambda info: FakeCommunicator(info.rank, info.size))
        assert dist.is_backend_available("mine") and dist.Backend("MINE") == "mine"
        with pytest.raises(RuntimeError, match="already exist"):
            dist.Backend.register_backend("mine", lambda info: None)
        with dist.world.separate_world():
            dist.init_process_group("mine", store=dist.HashStore(), rank=0, world_size=2)
            assert dist.get_backend() == "mine" and dist.get_world_size() == 2
            dist.destroy_process_group()


def test_meta_tensors_have_the_shapes() -> None:
    from coredispatch.frontend.distributed import operators as ops

    def program(rank: int) -> None:
        group = dist.group.WORLD
        x = cd.empty(4, 3, device="meta")
        assert ops.all_gather(x, group).shape == (2, 4, 3)
        assert ops.reduce_scatter(cd.empty(2, 3, device="meta"), "sum", group).shape == (3,)
        assert ops.all_to_all(x, [1, 2], [3, 1], group).shape == (3, 3)

    dist.threads.spawn(program, nprocs=2)


def test_a_debug_level_that_a_program_set_counts_for_later_groups() -> None:
    def program(rank: int) -> None:
        with pytest.raises(dist.DistBackendError, match="the ranks disagree"):
            if rank:
                dist.broadcast(cd.ones(2), 0)
            else:
                dist.all_reduce(cd.ones(2))
        dist.barrier()

    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        dist.threads.spawn(program, nprocs=2)
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    finally:
        dist.set_debug_level(before)
        dist.set_debug_level_from_env()


def test_a_group_that_was_destroyed_says_so() -> None:
    def program(rank: int) -> None:
        part = dist.new_group([0, 1])
        net = cd.nn.parallel.DistributedDataParallel(cd.nn.Linear(2, 2), process_group=part)
        dist.destroy_process_group(part)
        with pytest.raises(RuntimeError, match="was destroyed"):
            dist.all_reduce(cd.ones(2), group=part)
        with pytest.raises(RuntimeError, match="was destroyed"):
            net(cd.ones(1, 2)).sum().backward()
        dist.barrier()

    dist.threads.spawn(program, nprocs=2)
