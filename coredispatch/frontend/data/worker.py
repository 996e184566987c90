"""What runs inside a DataLoader worker process, and what fetches batches in any process.

A worker's main thread fetches. One thread beside it receives tasks and another sends results, so
that a worker goes on fetching while its last result waits to be read, and neither process ever
waits for the other with a full pipe.
"""

from __future__ import annotations

import os
import queue
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from coredispatch.frontend.data.collate import default_collate
from coredispatch.frontend.data.dataset import IterableDataset, samples_of
from coredispatch.frontend.data.randomness import seed_all
from coredispatch.frontend.data.transport import Failure, Packed, pack, receive, send
from coredispatch.registry.around.threads import set_num_threads

__all__ = ["Exhausted", "Fetcher", "WorkerInfo", "WorkerSetup", "get_worker_info", "run_worker"]


class Exhausted:
    """The result (the class itself) of a task for which a worker's stream has no samples left."""


@dataclass(frozen=True)
class WorkerInfo:
    """Details about the current worker process.

    Attributes:
        id: its number, from 0 to ``num_workers - 1``.
        num_workers: how many workers the DataLoader has.
        seed: what this worker's random generators were seeded with.
        dataset: this process's copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The :class:`WorkerInfo` inside a DataLoader worker process; None anywhere else."""
    return _info


@dataclass(frozen=True)
class Fetcher:
    """Fetches collated batches: by indices, or the next ones of a stream.

    For a stream only the number of indices in a task counts; StopIteration says that it ended.
    """

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    drop_last: bool
    stream: Iterator[Any] | None

    @classmethod
    def of(cls, dataset: Any, collate: Any, batched: bool, drop_last: bool) -> Fetcher:
        stream = iter(dataset) if isinstance(dataset, IterableDataset) else None
        return cls(dataset, collate, batched, drop_last, stream)

    def fetch(self, task: Any) -> Any:
        if self.stream is not None:
            return self.collate(self._next_samples(self.stream, task))
        if not self.batched:
            return self.collate(self.dataset[task])
        return self.collate(samples_of(self.dataset, task))

    def _next_samples(self, stream: Iterator[Any], task: Any) -> Any:
        if not self.batched:
            return next(stream)
        samples = [sample for _, sample in zip(task, stream)]
        if not samples or (self.drop_last and len(samples) < len(task)):
            raise StopIteration
        return samples


@dataclass(frozen=True)
class WorkerSetup:
    """Everything a worker process is started with."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    drop_last: bool
    init_fn: Callable[[int], Any] | None


def run_worker(setup: WorkerSetup, connection: Connection) -> None:
    """Serve tasks until told to stop.

    Receives ``(epoch, index, task)`` and answers ``(epoch, index, result)``, where the result is
    a batch, :class:`Exhausted` or a :class:`Failure`. A new epoch starts a new pass over a stream.
    None means stop.
    """
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    results: queue.SimpleQueue[Packed] = queue.SimpleQueue()
    for target, inbox in ((_receive_tasks, tasks), (_send_results, results)):
        threading.Thread(target=target, args=(connection, inbox), daemon=True).start()
    try:
        _serve(setup, tasks, results)
    except KeyboardInterrupt:
        pass  # the terminal sends it to every process; the main one reports it


def _serve(setup: WorkerSetup, tasks: Any, results: Any) -> None:
    global _info
    where = f"DataLoader worker {setup.id} (pid {os.getpid()})"
    _info = WorkerInfo(setup.id, setup.num_workers, setup.seed, setup.dataset)
    startup: Failure | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a BLAS that cannot be told is not every worker's news
            set_num_threads(1)  # the workers share the processors among them, as in PyTorch
        seed_all(setup.seed, setup.id)
        if setup.init_fn is not None:
            setup.init_fn(setup.id)
    except Exception as error:
        startup = Failure(error, where)
    fetcher: Fetcher | None = None
    current = -1
    while (message := tasks.get()) is not None:
        epoch, index, task = message
        try:
            if epoch != current:
                current, fetcher = epoch, None
            if startup is not None:
                result: Any = startup
            else:
                fetcher = fetcher or Fetcher.of(
                    setup.dataset, setup.collate, setup.batched, setup.drop_last
                )
                result = fetcher.fetch(task)
        except Exception as error:
            over = isinstance(error, StopIteration) and fetcher is not None and fetcher.stream
            result = Exhausted if over else Failure(error, where)
        try:
            # A dataset may fill the same array again while the last result waits to be sent.
            # Batches of default_collate are new arrays.
            fresh = setup.batched and setup.collate is default_collate
            parts = pack((epoch, index, result), copy=not fresh)
        except Exception as error:
            parts = pack((epoch, index, Failure(error, f"{where}, pickling its result")))
        results.put(parts)


def _receive_tasks(connection: Connection, tasks: queue.SimpleQueue[Any]) -> None:
    """Feed the main thread, and end the process when the one that started it has died."""
    parent = parent_process()
    sentinels = [] if parent is None else [parent.sentinel]
    message: Any = ()
    while message is not None and connection in wait([connection, *sentinels]):
        try:
            message = receive(connection)
        except (EOFError, OSError):
            message = None
        tasks.put(message)
    # Told to stop, or nobody is left to report to. The main thread may be anywhere, so the
    # process ends with its starter if it has not ended by itself before.
    if sentinels:
        wait(sentinels)
        os._exit(1)


def _send_results(connection: Connection, results: queue.SimpleQueue[Packed]) -> None:
    while True:
        try:
            send(connection, results.get())
        except OSError:  # closed at the other end: the loader was given up
            return
