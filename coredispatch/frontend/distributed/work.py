"""``Work``: a collective under way, as ``async_op=True`` returns it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.distributed.communicator import LateError, Request
from coredispatch.frontend.distributed.errors import DistBackendError

if TYPE_CHECKING:
    from coredispatch.frontend.distributed.process_group import ProcessGroup
    from coredispatch.frontend.futures import Future

__all__ = ["Work"]


class Work:
    """A collective that was begun. :meth:`wait` returns when its tensors have their values.

    Tensors that it reads or writes must not be used before that.
    """

    __module__ = "coredispatch.distributed"

    def __init__(
        self,
        group: ProcessGroup | None,
        request: Request,
        what: object,
        number: int,
        finish: list[Callable[[], None]],
        result: Any = None,
    ) -> None:
        self._group, self._request = group, request
        self._what, self._number = what, number
        self._finish = finish
        self._result = result
        self._error: BaseException | None = None
        self._finished = False
        self._lock = threading.RLock()
        self._future: Future | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended; True.

        On a device the current stream waits, and the program goes on, as in PyTorch. It waits
        itself for a barrier, with a `timeout`, and where NCCL_BLOCKING_WAIT=1 is set.

        Raises:
            DistBackendError: it did not end in time, a rank is gone, or the sizes do not agree.
        """
        with self._lock:
            if not self._finished:
                limit = self._limit(timeout)
                began = time.monotonic()
                try:
                    self._request.wait(limit)
                    self._complete()
                    if timeout is not None:
                        self._request.end(limit)
                except BaseException as error:
                    self._fail(error, self._request.waited + time.monotonic() - began)
                if self._group is not None:
                    self._group.waited += time.monotonic() - began
            elif self._error is None and self._request.queued:
                self._again(timeout)
            if self._error is not None:
                raise self._error
            return True

    def _again(self, timeout: timedelta | None) -> None:
        """Wait for what was waited for before, maybe from another stream."""
        began = time.monotonic()
        try:
            self._request.follow()
            if timeout is not None:
                self._request.end(self._limit(timeout))
        except BaseException as error:
            self._fail(error, time.monotonic() - began)

    def _limit(self, timeout: timedelta | None) -> float:
        if timeout is not None and timeout.total_seconds() > 0:
            return timeout.total_seconds()
        return 1800.0 if self._group is None else self._group.seconds

    def _complete(self) -> None:
        for finish in self._finish:
            finish()
        if self._finish:
            self._request.settled()
        self._finished, self._finish = True, []
        if self._future is not None:
            self._future.set_result(self._result)

    def _fail(self, error: BaseException, waited: float) -> None:
        if not isinstance(error, (LateError, ConnectionError, OSError, ValueError, RuntimeError)):
            raise error
        self._finished, self._finish = True, []
        self._error = self._described(error, waited)
        self._error.__cause__ = None if isinstance(error, (LateError, ConnectionError)) else error
        self._error.__suppress_context__ = True
        if self._future is not None:
            self._future.set_exception(self._error)

    def _described(self, error: BaseException, waited: float) -> DistBackendError:
        group = self._group
        where = "" if group is None else f"[rank {group.rank()}] "
        what = f"{self._what}, call {self._number} of group {group and group.group_name!r}"
        if isinstance(error, LateError):
            late = error.ranks or (None if group is None else group.late(self._number))
            if late is not None and not late:
                return DistBackendError(
                    f"{where}timed out after {waited:.1f} s in {what}: all ranks wait, but not in "
                    "the same collective\n  fix: call the same collectives in the same order on "
                    "all ranks; DISTRIBUTED_DEBUG=DETAIL says what each of them calls"
                )
            names = ", ".join(f"rank {r}" for r in late or ()) or "another rank"
            return DistBackendError(
                f"{where}timed out after {waited:.1f} s in {what}: {names} is late\n"
                "  fix: see what that rank does (did it raise, or take another branch?), or raise "
                "the timeout of the group"
            )
        return DistBackendError(f"{where}{what} failed: {error}")

    def is_completed(self) -> bool:
        """Whether it has ended. Makes progress; does not wait."""
        with self._lock:
            if self._finished and (self._error is not None or not self._request.queued):
                return True
            try:
                if not self._request.done():
                    return False
            except RuntimeError as error:
                if not self._request.queued:
                    raise
                self._fail(error, 0.0)  # a device gave it up
                return True
            if not self._finished:
                self._settle()
            return True

    def _settle(self) -> None:
        try:
            self.wait()
        except DistBackendError:
            pass  # kept: exception() has it, and wait() raises it

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def synchronize(self) -> None:
        """:meth:`wait`."""
        self.wait()

    def result(self) -> Any:
        """The tensors that the collective wrote, once it has ended."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank in the group that a received message came from."""
        return self._request.source

    def get_future(self) -> Future:
        """A Future of :meth:`result`; waiting for it is waiting for this."""
        with self._lock:
            if self._future is None:
                from coredispatch.frontend.distributed.work_future import WorkFuture

                self._future = WorkFuture(self)
                if self._finished:
                    if self._error is None:
                        self._future.set_result(self._result)
                    else:
                        self._future.set_exception(self._error)
            return self._future

    def __repr__(self) -> str:
        state = "done" if self._finished else "under way"
        return f"<Work {self._what}: {state}>"
