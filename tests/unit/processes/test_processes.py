"""Tensors that several processes share."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.multiprocessing as mp

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX shared memory"),
]
METHODS = ["fork", "spawn"]


def segments_of(*processes: int) -> set[str]:
    """The segments that these processes have made, by their names; other tests make some too."""
    owned = tuple(f"coredispatch_{process}_" for process in processes)
    return {name for name in os.listdir("/dev/shm") if name.startswith(owned)}


@pytest.fixture(params=["file_descriptor", "file_system"])
def _strategy(request: Any) -> Any:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("method", METHODS)
def test_the_hogwild_example(method: str, strategy: str) -> None:
    program = Path(__file__).with_name("hogwild.py")
    done = subprocess.run(
        [sys.executable, str(program), method, strategy],
        capture_output=True,
        text=True,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "leaked" not in done.stderr
    before, after, ranks, files, left = json.loads(done.stdout.splitlines()[-1])
    assert ranks == [0, 1] and after < before / 5
    assert files <= 1 and left == []  # Python's resource tracker has one


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_many_messages_leave_nothing_behind(strategy: str) -> None:
    program = Path(__file__).with_name("messages.py")
    done = subprocess.run(
        [sys.executable, str(program), strategy],
        capture_output=True,
        text=True,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    more_open, *processes = map(int, done.stdout.split())
    # Each of 39 messages would leave one; a few are under way at either count.
    assert more_open < 20
    assert segments_of(*processes) == set()


def add_one(tensor: Any) -> None:
    tensor.add_(1)


def answer(questions: Any, answers: Any) -> None:
    for tensor in iter(questions.get, None):
        tensor.mul_(2)
        answers.put((tensor.sum(), type(tensor).__name__, tensor.requires_grad))


@pytest.mark.parametrize("method", METHODS)
def test_an_argument_is_seen_by_both(method: str, _strategy: str) -> None:
    base = cd.zeros(2, 3)
    process = mp.get_context(method).Process(target=add_one, args=(base.t()[1:],))
    if method == "fork":
        base.share_memory_()
    process.start()
    process.join()
    assert process.exitcode == 0
    assert base.tolist() == [[0, 1, 1], [0, 1, 1]] and base.is_shared()


def test_queues_carry_memory_and_not_copies(_strategy: str) -> None:
    context = mp.get_context("fork")
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(questions, answers))
    process.start()
    x = cd.arange(4.0)
    weight = cd.nn.Parameter(cd.ones(2))
    weight.requires_grad_(False)
    for sent in (x, x[1:3], weight, cd.tensor([1.5], dtype=cd.bfloat16), cd.zeros(0)):
        questions.put(sent)
    found = [answers.get() for _ in range(5)]
    questions.put(None)
    process.join()
    assert x.tolist() == [0, 4, 8, 6] and weight.tolist() == [2, 2]
    assert [name for _, name, _ in found] == ["Tensor", "Tensor", "Parameter", "Tensor", "Tensor"]
    assert found[0][0] == 12


def test_a_tensor_with_a_history_stays() -> None:
    from multiprocessing.reduction import ForkingPickler

    weight = cd.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing"):
        ForkingPickler.dumps(weight * 2)


def square(x: Any) -> Any:
    return x * x


def test_a_pool() -> None:
    with mp.get_context("fork").Pool(2) as pool:
        found = pool.map(square, [cd.full((3,), float(i)) for i in range(6)])
    assert [y[0].item() for y in found] == [0, 1, 4, 9, 16, 25]


def test_nothing_is_left_open(_strategy: str) -> None:
    cd.zeros(2).share_memory_()
    gc.collect()
    before, segments = len(os.listdir("/proc/self/fd")), segments_of(os.getpid())
    for _ in range(20):
        x = cd.zeros(1000).share_memory_()
        assert x[5:].is_shared()
    del x
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert segments_of(os.getpid()) == segments


def work(rank: int, how: str, x: Any) -> None:
    if rank == 1 and how == "raises":
        raise ValueError("not today")
    if rank == 1 and how == "exits":
        os._exit(3)
    if rank == 1 and how == "killed":
        os.kill(os.getpid(), 9)
    if how != "works":
        time.sleep(60)
    x[rank] = rank + 1


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_a_group_of_processes(start: str) -> None:
    x = cd.zeros(3).share_memory_()
    assert mp.start_processes(work, ("works", x), 3, start_method=start) is None
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("raises", mp.ProcessRaisedException, "ValueError: not today"),
        ("exits", mp.ProcessExitedException, "process 1 terminated with exit code 3"),
        ("killed", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_group_ends_when_one_fails(how: str, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        mp.start_processes(work, (how, cd.zeros(3)), 3, start_method="fork")
    assert caught.value.error_index == 1


def test_strategies_have_names() -> None:
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    with pytest.raises(AssertionError, match="invalid sharing strategy 'telepathy'"):
        mp.set_sharing_strategy("telepathy")
    for name in ("Process", "Queue", "Pool", "Pipe", "Lock", "get_context", "cpu_count", "spawn"):
        assert hasattr(mp, name)
