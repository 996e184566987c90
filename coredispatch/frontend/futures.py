"""``cd.futures``: a value that another thread sets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import GenericAlias
from typing import Any

__all__ = ["Future", "collect_all", "wait_all"]


#: futures of collectives under way that something is to follow: who waits carries them on
_OF_WORKS: set[Future] = set()
_TURN, _IDLE = 0.001, 0.05  # seconds


class Future:
    """A result that will be there, with PyTorch's names; ``devices`` is kept and not used.

    An exception that was set is raised by :meth:`wait` and :meth:`value`.
    """

    #: ``Future[Tensor]`` in annotations
    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, *, devices: Any = None) -> None:
        self.devices = devices
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []
        # What this one follows. The thread that waits for a collective carries it on: it waits
        # for these, and so do questions whether they are done.
        self._earlier: tuple[Future, ...] = ()
        self._owner: int | None = None  # the thread that alone may carry it on

    def done(self) -> bool:
        """Whether the result, or an exception, is there."""
        if not self._ready.is_set():
            for earlier in self._earlier:
                earlier.done()
        return self._ready.is_set()

    def wait(self) -> Any:
        """The result, once it is there."""
        if not self._ready.is_set():
            for earlier in self._earlier:
                with contextlib.suppress(Exception):  # the callback is given it with the future
                    earlier.wait()
        while not self._ready.wait(_TURN if _OF_WORKS else _IDLE):
            for work in list(_OF_WORKS):  # its callback may set this one
                if work._owner in (None, threading.get_ident()):
                    work.done()
        return self.value()

    def value(self) -> Any:
        """The result. Raises RuntimeError where it is not there yet."""
        if not self.done():
            raise RuntimeError("value() of a future that is not done\n  fix: call wait()")
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of ``callback(self)``, which is called when the result is there."""
        following = Future()
        following._earlier = (self,)

        def call(done: Future) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(call)
        return following

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call ``callback(self)`` when the result is there, at once if it is."""
        self.done()  # a future that makes progress when asked may end here: not under the lock
        with self._lock:
            if not self._ready.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: Any) -> None:
        """Set the result. Raises RuntimeError where there is one."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Let :meth:`wait` raise ``result``. Raises TypeError for what is no exception."""
        if not isinstance(result, BaseException):
            raise TypeError(f"{result!r} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._ready.is_set():
                raise RuntimeError("Future can only be set once")
            self._result, self._error = result, error
            self._ready.set()
        _OF_WORKS.discard(self)
        for callback in self._callbacks:
            callback(self)


def collect_all(futures: list[Future]) -> Future:
    """A future of the list of futures, done when all of them are."""
    together = Future()
    together._earlier = tuple(futures)
    missing = [len(futures)]
    lock = threading.Lock()
    if not futures:
        together.set_result([])

    def count(_: Future) -> None:
        with lock:
            missing[0] -= 1
            last = not missing[0]
        if last:
            together.set_result(list(futures))

    for future in futures:
        future.add_done_callback(count)
    return together


def wait_all(futures: list[Future]) -> list[Any]:
    """The results of all futures, in order; the first exception is raised."""
    return [future.wait() for future in collect_all(futures).wait()]
