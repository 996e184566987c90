"""Calls of NCCL under way: who waits for them, and what is done where one never ends.

``wait()`` lets the current stream wait for the event behind a call, and the program goes on, as in
PyTorch. The program itself waits for a barrier, where a timeout is given, and for all calls with
``NCCL_BLOCKING_WAIT=1`` (or ``TORCH_NCCL_BLOCKING_WAIT=1``) in the environment.

So a rank that never comes would show as a read that never returns. A thread looks after the calls
under way. Where one has not ended in the time of its group, it aborts the communicator, which lets
the device go on. The error is raised at the next wait for the device, and by each later call.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from coredispatch.plugin import LateError, Request
from coredispatch_cuda_cupy import device_checks

__all__ = ["Queued", "Watch"]

VARIABLES = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_PAUSE = 0.0002
#: seconds between two looks at what is under way
_LOOK = 1.0


def _is_blocking() -> bool:
    return any(os.environ.get(name, "0") not in ("", "0") for name in VARIABLES)


class Queued(Request):
    """A call on a stream, and the event behind it.

    Args:
        arrays: what NCCL reads and writes, kept until the call has ended.
        after: puts on the current stream what is to be done with the result.
    """

    queued = True
    #: whether the program waits, too
    on_host = False

    def __init__(
        self,
        cupy: Any,
        watch: Watch,
        event: Any,
        stream: Any,
        arrays: tuple[Any, ...],
        source: int,
        after: Callable[[], None] | None,
    ) -> None:
        self._cupy, self._watch = cupy, watch
        self.event, self._stream, self.source = event, stream, source
        self.arrays, self._after = arrays, after

    def done(self) -> bool:
        self._watch.check()
        return bool(self.event.done)

    def follow(self) -> None:
        self._watch.check()
        current = self._cupy.cuda.get_current_stream()
        if current.ptr != self._stream.ptr:
            current.wait_event(self.event)

    def wait(self, seconds: float) -> None:
        self.follow()
        after, self._after = self._after, None
        if after is not None:
            after()
            self.settled()
        if self.on_host or _is_blocking():
            self.end(seconds)

    def settled(self) -> None:
        self._stream = self._cupy.cuda.get_current_stream()
        self.event = self._cupy.cuda.Event(disable_timing=True)
        self.event.record(self._stream)

    def end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.done():
            if time.monotonic() > end:
                raise LateError()
            time.sleep(_PAUSE)


class Watch:
    """The calls of a communicator that are under way.

    Args:
        where: the name of the communicator, for errors.
        abort: gives the communicator up.
    """

    def __init__(self, cupy: Any, where: str, abort: Callable[[], None]) -> None:
        self._cupy, self._where, self._abort = cupy, where, abort
        self._device = int(cupy.cuda.runtime.getDevice())
        #: (when it must have ended, its name, its seconds, the event behind it, its arrays)
        self._calls: deque[tuple[float, str, float, Any, Any]] = deque()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def add(self, request: Queued, name: str, seconds: float) -> None:
        """Look after a call; those that have ended let go of their arrays."""
        end = time.monotonic() + seconds
        with self._lock:
            while self._calls and self._calls[0][3].done:
                self._calls.popleft()
            self._calls.append((end, name, seconds, request.event, request.arrays))
        request.arrays = ()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nccl watch", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise RuntimeError where a call never ended."""
        if self._failure is not None:
            raise RuntimeError(self._failure)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _run(self) -> None:
        self._cupy.cuda.Device(self._device).use()
        while not self._closed.wait(_LOOK):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Give the communicator up where a call should have ended before ``now`` and has not."""
        with self._lock:
            late = next((call for call in self._calls if not call[3].done), None)
        if late is None or late[0] > now or self._closed.is_set():
            return
        self._failure = (
            f"NCCL {self._where!r}: {late[1]} has not ended on the device in {late[2]:g} s, so the "
            "communicator was aborted\n  fix: see what the other ranks do (did one raise, or take "
            "another branch?), or raise the timeout of the group"
        )
        device_checks.report(self._cupy, self._failure)
        self._abort()
