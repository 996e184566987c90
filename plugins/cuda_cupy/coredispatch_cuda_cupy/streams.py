"""Streams as CuPy has them: a few for each device, used in turn, and told to the allocator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch_cuda_cupy.memory import Allocator

__all__ = ["Streams"]

#: as many streams are made for each device and priority; then the first is given again
_KEPT = 32


class Streams:
    """The streams of all devices. They live as long as the process: blocks may wait for them.

    Args:
        cupy: the module.
        allocator: is told which stream a thread's work goes to.
    """

    def __init__(self, cupy: Any, allocator: Allocator) -> None:
        self.cupy, self.allocator = cupy, allocator
        self._made: dict[tuple[int, int], list[Any]] = {}
        self._given: dict[tuple[int, int], int] = {}
        self._capturing: dict[int, Any] = {}
        self._lock = threading.Lock()

    def make(self, index: int, priority: int) -> Any:
        """A stream of device ``index``; one of those made before, when there are many."""
        with self._lock:  # threads that ask at once get streams of their own
            made = self._made.setdefault((index, priority), [])
            turn = self._given.get((index, priority), 0)
            if len(made) <= turn % _KEPT:
                with self.cupy.cuda.Device(index):
                    made.append(self.cupy.cuda.Stream(non_blocking=True, priority=priority))
            self._given[index, priority] = turn + 1
            return made[turn % _KEPT]

    def for_capture(self, index: int) -> Any:
        """The stream of device ``index`` on which compiled programs are captured."""
        with self._lock:
            if index not in self._capturing:
                with self.cupy.cuda.Device(index):
                    self._capturing[index] = self.cupy.cuda.Stream(non_blocking=True)
            return self._capturing[index]

    def priorities(self) -> tuple[int, int]:
        """The least and the greatest priority of the current device, ``(0, -5)``."""
        # The driver cuts what is beyond the range, and CuPy does not ask for the range itself.
        return 0, int(self.cupy.cuda.Stream(non_blocking=True, priority=-(2**30)).priority)

    @contextmanager
    def current(self, stream: Any, index: int) -> Iterator[None]:
        """A block in which the device is current, and ``stream`` its stream in this thread."""
        with self.cupy.cuda.Device(index):
            try:
                with stream:
                    self.allocator.noticed(stream, index)
                    yield
            finally:
                self.allocator.noticed(self.cupy.cuda.get_current_stream(), index)

    def use(self, stream: Any, index: int) -> None:
        """Make ``stream`` the device's for this thread, for good."""
        with self.cupy.cuda.Device(index):
            stream.use()
        self.allocator.noticed(stream, index)
