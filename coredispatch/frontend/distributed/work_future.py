"""The Future of a Work: engines make progress in the thread that waits, so waiting is theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.futures import Future

if TYPE_CHECKING:
    from coredispatch.frontend.distributed.work import Work

__all__ = ["ChainedFuture", "WorkFuture"]


class ChainedFuture(Future):
    """``callback(earlier)``. Waiting for it is waiting for the earlier one."""

    def __init__(self, earlier: Future, callback: Callable[[Future], Any]) -> None:
        super().__init__()
        self._earlier = earlier

        def call(done: Future) -> None:
            try:
                self.set_result(callback(done))
            except Exception as error:
                self.set_exception(error)

        earlier.add_done_callback(call)

    def done(self) -> bool:
        """Whether the result is there; makes progress."""
        return super().done() or (self._earlier.done() and super().done())

    def wait(self) -> Any:
        """The result, once it is there."""
        if not self.done():
            with contextlib.suppress(Exception):  # the callback is given it with the future
                self._earlier.wait()
        return super().wait()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of ``callback(self)``."""
        return ChainedFuture(self, callback)


class WorkFuture(Future):
    """The tensors of a :class:`Work`."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def wait(self) -> Any:
        """The tensors, once the collective has ended."""
        self._work.wait()
        return super().wait()

    def done(self) -> bool:
        """Whether the collective has ended; makes progress."""
        return super().done() or (not self._work._finished and self._work.is_completed())

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of ``callback(self)``."""
        return ChainedFuture(self, callback)
