"""DataLoader with worker processes: order, seeds, errors, timeouts, deaths and clean ends."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

# Python 3.12 and later warn when a process that has threads forks; these children use none.
pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


class Function(Dataset[Any]):
    """Sample ``i`` is ``function(i)``."""

    def __init__(self, function: Callable[[int], Any], size: int = 6) -> None:
        self.function = function
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def square(index: int) -> int:
    return index**2


def rows(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def children() -> list[Any]:
    return multiprocessing.active_children()


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert children() == []


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_batches_in_the_same_order(workers: int) -> None:
    data = Function(square, 23)
    expected = rows(DataLoader(data, 3))
    assert rows(DataLoader(data, 3, num_workers=workers)) == expected
    slow_first = Function(lambda i: time.sleep(0.05 * (i < 3)) or i, 12)
    assert rows(DataLoader(slow_first, 1, num_workers=workers)) == [[i] for i in range(12)]


def test_shuffling_does_not_depend_on_the_number_of_workers() -> None:
    orders = []
    for workers in (0, 1, 2):
        cd.manual_seed(5)
        orders.append(rows(DataLoader(Function(square, 20), 4, True, num_workers=workers)))
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_every_start_method(method: str) -> None:
    data = TensorDataset(cd.arange(8.0).reshape(4, 2), cd.arange(4))
    loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=method)
    batches = [(x.tolist(), y.tolist()) for x, y in loader]
    assert batches == [([[0.0, 1.0], [2.0, 3.0]], [0, 1]), ([[4.0, 5.0], [6.0, 7.0]], [2, 3])]


def test_large_batches_travel_intact() -> None:
    data = Function(lambda i: (np.full((300, 300), i, np.float32), cd.full((1000,), float(i))), 6)
    for number, (images, vectors) in enumerate(DataLoader(data, 2, num_workers=2)):
        assert images.shape == (2, 300, 300)
        assert images[0, 0, 0].item() == 2 * number
        assert vectors[1].tolist() == [2.0 * number + 1] * 1000
        images += 1  # what arrives can be written


def test_bfloat16_strings_and_none_travel() -> None:
    data = Function(lambda i: {"x": cd.ones(2, dtype=cd.bfloat16), "name": f"n{i}"}, 2)
    (batch,) = DataLoader(data, 2, num_workers=1)
    assert batch["x"].dtype is cd.bfloat16
    assert batch["name"] == ["n0", "n1"]
    assert list(DataLoader(Function(lambda i: None, 2), None, num_workers=1)) == [None, None]


def test_a_slice_travels_without_its_base() -> None:
    base = cd.zeros(1000, 1000)
    from coredispatch.frontend.data.transport import pack

    assert sum(memoryview(part).nbytes for part in pack(base[3])) < 10_000


# -- seeds and worker information ----------------------------------------------------------


def draws(index: int) -> tuple[Any, ...]:
    info = get_worker_info()
    assert info is not None
    assert info.num_workers == 2
    drawn = (cd.rand(1).item(), random.random(), float(np.random.rand()))  # noqa: NPY002
    return (info.id, info.seed, *drawn)


def test_workers_draw_differently_and_repeatably() -> None:
    runs = []
    for _ in range(2):
        cd.manual_seed(11)
        runs.append(list(DataLoader(Function(draws, 4), None, num_workers=2)))
    assert runs[0] == runs[1]
    first, second = runs[0][:2]
    assert (first[0], second[0]) == (0, 1)
    assert second[1] == first[1] + 1
    assert all(a != b for a, b in zip(first[2:], second[2:]))
    assert list(DataLoader(Function(draws, 4), None, num_workers=2)) != runs[0]


def test_worker_init_fn_runs_once_per_worker() -> None:
    def initialise(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.function = lambda i: worker * 100 + i

    loader = DataLoader(Function(square, 4), 1, num_workers=2, worker_init_fn=initialise)
    assert rows(loader) == [[0], [101], [2], [103]]


def test_the_dataset_here_stays_as_it_was() -> None:
    data = Function(square)
    data.calls = 0  # type: ignore[attr-defined]
    rows(DataLoader(data, 2, num_workers=2))
    assert data.calls == 0  # type: ignore[attr-defined]


# -- streams -------------------------------------------------------------------------------


class Refilled(Dataset[Any]):
    """Fills one array again and again, too large for a pipe, and counts how often in a file."""

    def __init__(self, path: str) -> None:
        self.array = np.zeros(500_000)
        self.path = path

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        self.array.fill(index)
        with open(self.path, "a") as file:
            file.write("x")
        return self.array


@pytest.mark.parametrize("batch_size", [None, 1])
def test_an_array_that_is_filled_again_arrives_as_it_was(tmp_path: Any, batch_size: Any) -> None:
    path = tmp_path / "count"
    options = {"collate_fn": lambda samples: samples[0]} if batch_size else {}
    loader = DataLoader(
        Refilled(str(path)), batch_size, num_workers=1, prefetch_factor=4, **options
    )
    results = iter(loader)
    while not path.exists() or len(path.read_text()) < 4:  # all fetched before one is received
        time.sleep(0.01)
    found = [np.asarray(result) for result in results]
    assert [set(array.tolist()) for array in found] == [{0.0}, {1.0}, {2.0}, {3.0}]


class Shards(IterableDataset[int]):
    """0 to 9, dealt to the workers; the first worker's share is longer."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None:
            return iter(range(10))
        return iter(range(7)) if info.id == 0 else iter(range(7, 10))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_workers_of_a_stream_take_turns(prefetch: int) -> None:
    loader = DataLoader(Shards(), 2, num_workers=2, prefetch_factor=prefetch)
    first = rows(loader)
    assert sorted(itertools.chain.from_iterable(first)) == list(range(10))
    assert first[:2] == [[0, 1], [7, 8]]
    assert rows(loader) == first  # whatever the timing


# -- persistent workers --------------------------------------------------------------------


def process_id(index: int) -> int:
    return os.getpid()


def test_persistent_workers_live_on() -> None:
    loader = DataLoader(Function(process_id), 1, num_workers=2, persistent_workers=True)
    first = set(itertools.chain.from_iterable(rows(loader)))
    assert len(first) == 2
    assert set(itertools.chain.from_iterable(rows(loader))) == first
    batches = iter(loader)
    next(batches)  # a pass that is given up
    assert set(itertools.chain.from_iterable(rows(loader))) == first
    streams = DataLoader(Shards(), 2, num_workers=2, persistent_workers=True)
    assert rows(streams) == rows(streams)


def test_workers_that_are_not_persistent_end_with_the_pass() -> None:
    loader = DataLoader(Function(process_id), 1, num_workers=2)
    first = set(itertools.chain.from_iterable(rows(loader)))
    assert children() == []
    assert not first & set(itertools.chain.from_iterable(rows(loader)))


# -- errors --------------------------------------------------------------------------------


class Strange(Exception):
    """Pickles, but does not unpickle."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def fails_at_two(index: int) -> int:
    if index == 2:
        raise KeyError("no sample two")
    return index


def test_an_exception_keeps_its_class_and_shows_the_worker_traceback() -> None:
    batches = iter(DataLoader(Function(fails_at_two, 4), 1, num_workers=2))
    assert next(batches).tolist() == [0]
    assert next(batches).tolist() == [1]
    with pytest.raises(KeyError, match="no sample two") as caught:
        next(batches)
    assert "in fails_at_two" in str(caught.value.__cause__)
    assert "DataLoader worker 0" in caught.value.__notes__[0]
    assert next(batches).tolist() == [3]  # the loader survives it
    assert list(batches) == []


def test_an_exception_that_does_not_pickle() -> None:
    def fail(index: int) -> int:
        raise Strange(1, 2)

    with pytest.raises(RuntimeError, match="Strange: 1 and 2"):
        rows(DataLoader(Function(fail), 1, num_workers=1))


def test_a_sample_that_does_not_pickle() -> None:
    loader = DataLoader(Function(lambda i: lambda: i), None, num_workers=1)
    with pytest.raises((AttributeError, TypeError, RuntimeError), match="pickle"):
        list(loader)


def test_a_failing_worker_init_fn() -> None:
    def fail(worker: int) -> None:
        raise ValueError(f"worker {worker} has no data")

    with pytest.raises(ValueError, match="worker 0 has no data"):
        rows(DataLoader(Function(square), 1, num_workers=1, worker_init_fn=fail))


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang() -> None:
    def die(index: int) -> int:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    with pytest.raises(RuntimeError, match=r"worker 1 \(pid \d+\) was killed by signal 9"):
        rows(DataLoader(Function(die), 1, num_workers=2))


def test_a_worker_that_exits() -> None:
    with pytest.raises(RuntimeError, match="exited with code 3"):
        rows(DataLoader(Function(lambda i: os._exit(3)), 1, num_workers=1))


def test_timeout() -> None:
    never = Function(lambda i: time.sleep(3600) or i)
    loader = DataLoader(never, 1, num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        rows(loader)


# -- ends ----------------------------------------------------------------------------------


def test_a_pass_that_is_given_up_ends_its_workers() -> None:
    for batch in DataLoader(Function(square, 100), 1, num_workers=2):
        assert batch.tolist() == [0]
        break
    gc.collect()
    assert children() == []


def test_passes_in_several_threads() -> None:
    loader = DataLoader(Function(square, 30), 4, num_workers=1)
    expected = rows(DataLoader(Function(square, 30), 4))
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(rows(loader))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 3


def test_a_forked_copy_leaves_the_workers_alone() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this platform")
    batches = iter(DataLoader(Function(square, 10), 1, num_workers=1))
    next(batches)
    child = os.fork()
    if child == 0:
        batches.pool.close()  # type: ignore[attr-defined]
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(batches)) == 9


PROGRAM = """
import os, sys, time
from coredispatch.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        if index: time.sleep(3600)
        return os.getpid()

if __name__ == "__main__":
    batches = iter(DataLoader(Slow(), 1, num_workers=1, prefetch_factor=3))
    print(next(batches).item(), flush=True)
    if sys.argv[1] == "killed": os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "finished"])
def test_workers_do_not_outlive_the_program(tmp_path: Any, end: str) -> None:
    import subprocess

    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), end]
    done = subprocess.run(command, capture_output=True, text=True)
    worker = int(done.stdout)
    for _ in range(6000):  # ten minutes: a machine may be busy, a worker that stays, stays
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker was still alive")
