"""``fork`` and ``demux``: several pipes that share one source."""

from __future__ import annotations

import copy as copying
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.data.datapipes.datapipe import IterDataPipe

__all__ = ["Demultiplexer", "Forker"]


class _Source:
    """One pass over a source; what a branch has not asked for yet waits in its queue."""

    def __init__(
        self, datapipe: IterDataPipe, count: int, buffer_size: int,
        branches_of: Callable[[Any], Any], spread: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        self.datapipe, self.count, self.buffer_size = datapipe, count, buffer_size
        self.branches_of, self.spread = branches_of, spread
        self.passes = 0
        self.restart()

    def restart(self) -> None:
        self.passes += 1
        self.items: Iterator[Any] | None = None
        self.queues: list[deque[Any]] = [deque() for _ in range(self.count)]
        self.begun, self.ended = [False] * self.count, [False] * self.count

    def begin(self, branch: int) -> int:
        """The number of the pass that ``branch`` takes part in from now on."""
        if self.begun[branch]:
            if not all(self.ended):
                warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are "
                    "resetting the buffer and each child DataPipe will read from the start again."
                )
            self.restart()
        self.begun[branch] = True
        return self.passes

    def items_of(self, branch: int, number: int) -> Iterator[Any]:
        queue = self.queues[branch]
        while True:
            if number != self.passes:
                raise RuntimeError(
                    "This iterator has been invalidated, because a new iterator has been created "
                    "from one of the ChildDataPipes of the same source"
                )
            if queue:
                yield queue.popleft()
                continue
            if self.items is None:
                self.items = iter(self.datapipe)
            try:
                item = next(self.items)
            except StopIteration:
                self.ended[branch] = True
                return
            for other in self.branches_of(item):
                self.queues[other].append(self.spread(item))
            waiting = sum(map(len, self.queues)) - len(queue)
            if 0 <= self.buffer_size < waiting:
                raise BufferError(
                    f"more than {self.buffer_size} items wait for the other branches; give a "
                    "larger buffer_size, or -1 for no limit"
                )


class _ChildDataPipe(IterDataPipe):
    """One branch."""

    def __init__(self, source: _Source, branch: int) -> None:
        self.source, self.branch = source, branch

    def __iter__(self) -> Iterator[Any]:
        return self.source.items_of(self.branch, self.source.begin(self.branch))

    def __len__(self) -> int:
        return len(self.source.datapipe)


class Forker(IterDataPipe):
    """``num_instances`` pipes with the same items, a list; ``copy``: "shallow" or "deep" copies."""

    def __new__(  # type: ignore[misc]
        cls, datapipe: IterDataPipe, num_instances: int, buffer_size: int = 1000,
        copy: str | None = None,
    ) -> list[IterDataPipe]:  # fmt: skip
        _check(num_instances)
        spreads = {None: lambda item: item, "shallow": copying.copy, "deep": copying.deepcopy}
        if copy not in spreads:
            raise ValueError(
                f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`."
            )
        if num_instances == 1:
            return [datapipe]
        everybody = range(num_instances)
        source = _Source(
            datapipe, num_instances, buffer_size, lambda item: everybody, spreads[copy]
        )
        return [_ChildDataPipe(source, branch) for branch in everybody]


class _Part(_ChildDataPipe):
    """One branch of several that share the items: nobody knows how many it gets."""

    __len__ = None  # type: ignore[assignment]


class Demultiplexer(IterDataPipe):
    """``num_instances`` pipes, a list; ``classifier_fn`` says which gets an item, None drops it."""

    def __new__(  # type: ignore[misc]
        cls, datapipe: IterDataPipe, num_instances: int, classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False, buffer_size: int = 1000,
    ) -> list[IterDataPipe]:  # fmt: skip
        _check(num_instances)

        def branches_of(item: Any) -> list[int]:
            branch = classifier_fn(item)
            if branch is None and drop_none:
                return []
            if branch is None or not 0 <= branch < num_instances:
                raise ValueError(
                    "Output of the classification fn should be between 0 and "
                    f"{num_instances - 1}. {branch} is returned."
                )
            return [branch]

        source = _Source(datapipe, num_instances, buffer_size, branches_of, lambda item: item)
        return [_Part(source, branch) for branch in range(num_instances)]


def _check(count: int) -> None:
    if count < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {count} is found")


IterDataPipe.register_datapipe_as_function("fork", Forker)
IterDataPipe.register_datapipe_as_function("demux", Demultiplexer)
