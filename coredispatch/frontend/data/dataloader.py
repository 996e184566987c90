"""DataLoader: batches from a dataset, fetched here or by worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from coredispatch._warnings import warn
from coredispatch.frontend import accelerator
from coredispatch.frontend.data.collate import default_collate, default_convert
from coredispatch.frontend.data.dataset import Dataset, IterableDataset
from coredispatch.frontend.data.pinning import pin_memory
from coredispatch.frontend.data.pool import WorkerPool
from coredispatch.frontend.data.randomness import draw_seed
from coredispatch.frontend.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from coredispatch.frontend.data.transport import Failure
from coredispatch.frontend.data.worker import Exhausted, Fetcher, WorkerSetup
from coredispatch.frontend.pinned_memory import can_pin
from coredispatch.registry.wiring import OBSERVERS

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)
_T = TypeVar("_T")
#: the types of ``worker_init_fn`` and ``collate_fn``, under PyTorch's names
_worker_init_fn_t = Callable[[int], None]
_collate_fn_t = Callable[[list[_T]], Any]


_FIXED = {
    "batch_size",
    "batch_sampler",
    "sampler",
    "drop_last",
    "dataset",
    "persistent_workers",
}


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches.

    Args:
        dataset: map-style (``dataset[i]``, ``len(dataset)``) or an :class:`IterableDataset`.
        batch_size: samples per batch; None gives single samples, converted but not batched.
        shuffle: visit the samples in a new random order in each pass.
        sampler: an iterable of indices, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, instead of `batch_size`, `shuffle`,
            `sampler` and `drop_last`.
        num_workers: processes that fetch batches; 0 fetches in this process. Batches come in
            the same order for any number of workers, except that workers of an IterableDataset
            take turns.
        collate_fn: makes a batch of a list of samples, :func:`default_collate` by default.
        pin_memory: puts the tensors of each batch in page-locked memory, from which
            ``x.to("cuda", non_blocking=True)`` does not wait. With workers a thread receives and
            pins batches while the program goes on. Warns where there is no accelerator, and has
            no effect there.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch of the workers; 0 waits for ever.
        worker_init_fn: called in each worker with its number, after seeding.
        multiprocessing_context: a context or the name of a start method (``"fork"``,
            ``"spawn"``, ``"forkserver"``); Python's default otherwise. With anything but fork
            the dataset and the functions given here must be picklable.
        generator: source of randomness for shuffling and for the seeds of the workers.
        prefetch_factor: batches that each worker fetches ahead; 2 where there are workers.
        persistent_workers: keep the workers, and their copies of the dataset, between passes.

    An exception in a worker is raised here as the same exception, with the worker's traceback as
    its cause. Workers are seeded: Python's ``random``, NumPy's global generator and
    ``manual_seed``, each from the loader's seed and the worker's number. They are daemonic, so
    they end with this process and cannot have processes of their own.

    Raises:
        ValueError: options that contradict each other.
    """

    __initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        streaming = isinstance(dataset, IterableDataset)
        if streaming:
            _check_streaming(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                    "sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None gives single samples and excludes drop_last")
        if sampler is None:
            if streaming:
                sampler = itertools.repeat(None)
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)

        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        if multiprocessing_context is not None and num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading "
                f"(num_workers > 0), but got num_workers={num_workers}"
            )
        if isinstance(multiprocessing_context, str):
            methods = multiprocessing.get_all_start_methods()
            if multiprocessing_context not in methods:
                raise ValueError(
                    "multiprocessing_context option should specify a valid start method in "
                    f"{methods}, but got multiprocessing_context={multiprocessing_context!r}"
                )
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.collate_fn = collate_fn or (default_collate if self.batched else default_convert)
        self._persistent: _WorkerIterator | None = None
        self.__initialized = True
        _warn_of_crowd(num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        # They are read when the loader is made: the sampler keeps its own batch size.
        if name in _FIXED and self.__initialized:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def batched(self) -> bool:
        """Whether the loader makes batches of several samples."""
        return self.batch_sampler is not None

    @property
    def tasks(self) -> Iterable[Any]:
        """What is fetched, item by item: lists of indices, or indices where not batched."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Iterator[Any]:
        _warn_of_pinning(self)
        seed = draw_seed(self.generator)  # always, so that shuffling ignores num_workers
        if self.num_workers == 0:
            return _iterate_here(self)
        if not self.persistent_workers:
            return _WorkerIterator(self, seed)
        if self._persistent is None or self._persistent.pool.closed:
            self._persistent = _WorkerIterator(self, seed)
        else:
            self._persistent.restart()
        return self._persistent

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self.tasks)  # type: ignore[arg-type]
        samples = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return samples
        whole, rest = divmod(samples, self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __getstate__(self) -> dict[str, Any]:
        # Processes and pipes stay behind; a copy starts workers of its own.
        return {**self.__dict__, "_persistent": None}


def _check_workers(workers: int, timeout: float, prefetch: int | None, persistent: bool) -> None:
    if workers < 0:
        raise ValueError(f"num_workers should not be negative, got {workers}")
    if timeout < 0:
        raise ValueError(f"timeout should not be negative, got {timeout}")
    if workers == 0 and prefetch is not None:
        raise ValueError("prefetch_factor needs worker processes: set num_workers > 0")
    if workers == 0 and persistent:
        raise ValueError("persistent_workers needs worker processes: set num_workers > 0")
    if prefetch is not None and prefetch < 1:
        raise ValueError(f"prefetch_factor should be at least 1, got {prefetch}")


def _warn_of_crowd(workers: int) -> None:
    """PyTorch's warning about more workers than there are processors for this process."""
    bound = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or workers
    if workers > cores:
        note = "" if bound else " (`cpuset` is not taken into account)"
        warn(
            f"This DataLoader will create {workers} worker processes in total. Our suggested max "
            f"number of worker in current system is {cores}{note}, which is smaller than what this "
            "DataLoader is going to create. Please be aware that excessive worker creation might "
            "get DataLoader running slow or even freeze, lower the worker number to avoid "
            "potential slowness/freeze if necessary."
        )


def _warn_of_pinning(loader: DataLoader[Any]) -> None:
    if not loader.pin_memory:
        return
    if loader.pin_memory_device:
        warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'."
        )
    if not accelerator.is_available():
        warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
            "memory won't be used."
        )


def _check_streaming(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (
        ("shuffle", shuffle),
        ("sampler", sampler),
        ("batch_sampler", batch_sampler),
    ):
        if value is not None and value is not False:
            raise ValueError(
                f"an IterableDataset gives its samples in its own order: {name}={value!r} is not "
                "possible with it; shuffle inside the dataset's __iter__"
            )


def _iterate_here(loader: DataLoader[Any]) -> Iterator[Any]:
    fetcher = Fetcher.of(loader.dataset, loader.collate_fn, loader.batched, loader.drop_last)
    for task in loader.tasks:
        try:
            if OBSERVERS.span is None:
                batch = fetcher.fetch(task)
            else:
                with OBSERVERS.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                    batch = fetcher.fetch(task)
        except StopIteration:
            if fetcher.stream is None:
                raise
            return
        yield pin_memory(batch) if loader.pin_memory and can_pin() else batch


class _BaseDataLoaderIter:
    """What a pass with workers is an instance of; one without them is a generator."""


class _WorkerIterator(_BaseDataLoaderIter):
    """Hands tasks to the workers in turn and gives their results in the order of the tasks.

    Which worker gets which task depends on the tasks alone and never on timing: a worker whose
    stream has ended is passed over from the moment its turn comes, not from the moment its
    message arrives. So a run with seeded workers can be repeated.
    """

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        self.loader = loader
        self.epoch = -1
        setups = [
            WorkerSetup(
                id=worker,
                num_workers=loader.num_workers,
                seed=seed + worker,
                dataset=loader.dataset,
                collate=loader.collate_fn,
                batched=loader.batched,
                drop_last=loader.drop_last,
                init_fn=loader.worker_init_fn,
            )
            for worker in range(loader.num_workers)
        ]
        receiving: dict[str, Any] = {}
        if loader.pin_memory and can_pin():
            # The thread's own device would be the first: page-locking would set up a context there.
            index = accelerator.current_device_index()
            begin = partial(accelerator.set_device_index, index)
            receiving = {"prepare": pin_memory, "begin": begin}
        self.pool = WorkerPool(setups, loader.multiprocessing_context, **receiving)
        self.restart()

    def restart(self) -> None:
        """Begin a new pass; results of an abandoned one are recognised by their epoch."""
        self.epoch += 1
        self.tasks = iter(self.loader.tasks)
        self.arrived: dict[int, Any] = {}
        self.owners: dict[int, int] = {}
        self.active = list(range(self.loader.num_workers))
        self.turn = 0
        self.sent = self.given = 0
        for _ in range((self.loader.prefetch_factor or 1) * self.loader.num_workers):
            self._submit_next()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if OBSERVERS.span is None:
            return self._next()
        with OBSERVERS.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            return self._next()

    def _next(self) -> Any:
        while self.given < self.sent and not self.pool.closed:
            while self.given not in self.arrived:
                for epoch, index, result in self.pool.collect(self.loader.timeout):
                    if epoch == self.epoch:
                        self.arrived[index] = result
            result = self.arrived.pop(self.given)
            worker = self.owners.pop(self.given)
            self.given += 1
            if result is Exhausted:
                if worker in self.active:
                    self.active.remove(worker)
                self._submit_next()
                continue
            self._submit_next()
            if isinstance(result, Failure):
                result.reraise()
            return result
        if not self.loader.persistent_workers:
            self.pool.close()
        raise StopIteration

    def _submit_next(self) -> None:
        if not self.active:
            return
        try:
            task = next(self.tasks)
        except StopIteration:
            return
        worker = self.active[self.turn % len(self.active)]
        self.turn += 1
        self.owners[self.sent] = worker
        self.pool.submit(worker, (self.epoch, self.sent, task))
        self.sent += 1


_MultiProcessingDataLoaderIter = _WorkerIterator
