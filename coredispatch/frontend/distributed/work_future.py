"""The Future of a Work: engines make progress in the thread that waits, so waiting is theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.futures import _OF_WORKS, Future

if TYPE_CHECKING:
    from coredispatch.frontend.distributed.work import Work

__all__ = ["WorkFuture"]


class WorkFuture(Future):
    """The tensors of a :class:`Work`."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        group = work._group
        if group is not None and any(c.name == "local" for c in group.communicators.values()):
            self._owner = threading.get_ident()  # a rank: callbacks are for its groups

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call ``callback(self)`` when the collective has ended, at once if it has."""
        super().add_done_callback(callback)
        _OF_WORKS.add(self)
        if self._ready.is_set():
            _OF_WORKS.discard(self)

    def wait(self) -> Any:
        """The tensors, once the collective has ended."""
        self._work.wait()
        return super().wait()

    def done(self) -> bool:
        """Whether the collective has ended; makes progress."""
        return super().done() or (not self._work._finished and self._work.is_completed())
