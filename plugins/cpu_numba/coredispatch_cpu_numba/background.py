"""Compiling in the background: until a kernel is ready, the next best one serves.

A loop that is not in the disk cache takes 0.1 to 1 s to compile. Where it is first asked for, it
joins a queue that one thread works through, and ``NotReady`` is raised; a kernel that was
registered through :func:`patient` then rejects the call, so NumPy's serves. Kernels ask for their
loops before they change anything. A call that ``cd.compile`` captures asks for none: its program is
compiled next, and may need no other loop.

The results of a program whose kernels are not compiled yet therefore differ in their last digits
from those of its next run. ``COREDISPATCH_BACKGROUND=0`` makes every call wait for its kernel, as
tests want it, and ``coredispatch warmup`` compiles them all beforehand. Importing this does not
import Numba.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from importlib import import_module
from typing import Any

from coredispatch.plugin import is_on

from .interrupts import interrupts_wait

__all__ = ["VARIABLE", "NotReady", "active", "busy", "later", "made_by", "patient", "wanted"]

#: ``0``: the caller waits for the compiler
VARIABLE = "COREDISPATCH_BACKGROUND"


#: set where the pack is registered: its kernels reject while their loops are compiled
active = False


class NotReady(Exception):
    """The compiled code is not there yet, and nothing was changed."""


def wanted() -> bool:
    """Whether kernels are to be compiled in the background."""
    return os.environ.get(VARIABLE, "1") != "0"


def patient(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` as one that rejects while what it needs is being compiled."""

    @wraps(kernel)
    def serve(*args: Any, **out: Any) -> Any:
        try:
            return kernel(*args, **out)
        except NotReady:
            return NotImplemented

    return serve


class _Queue:
    """What is to be compiled, and the thread that does it."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Hashable, Callable[[], Any]]] = deque()
        self.waiting: set[Hashable] = set()
        self.failed: set[Hashable] = set()
        self.lock = threading.Lock()
        self.working = threading.Lock()  # held during a job, and while the process forks
        self.worker: threading.Thread | None = None
        self.closed = False

    def add(self, key: Hashable, job: Callable[[], Any]) -> None:
        with self.lock:
            if key in self.waiting or self.closed:
                return
            self.waiting.add(key)
            self.jobs.append((key, job))
            if self.worker is None:
                self.worker = threading.Thread(
                    target=self.work, name="coredispatch-cpu-numba-compiler", daemon=True
                )
                self.worker.start()

    def work(self) -> None:
        while True:
            with self.lock:
                if not self.jobs or self.closed:
                    self.worker = None
                    return
                key, job = self.jobs.popleft()
            with self.working:
                try:
                    job()
                except Exception:  # the next call compiles it itself, and shows what is wrong
                    self.failed.add(key)
            self.waiting.discard(key)

    def close(self) -> None:
        """Let no job begin, and wait for the one at work: LLVM must not outlive the process."""
        self.closed = True
        with self.working:
            pass


_queue = _Queue()


def later(key: Hashable, job: Callable[[], Any]) -> None:
    """Have ``job`` done, and raise NotReady; return where it failed in the background before."""
    if key not in _queue.failed:
        _watch_forks()
        _queue.add(key, job)
        raise NotReady(key)


def made_by(make: Callable[[bool], Any], key: Hashable) -> Any:
    """What ``make(cached_only)`` gives, which raises NotReady where it is to be on disk and is not.

    Raises :class:`NotReady` where kernels are compiled in the background and this one is not there.
    """
    captures = is_on("compile")
    if not active:
        with interrupts_wait(), _unheard() if captures else nullcontext():
            return make(False)
    if captures:
        raise NotReady(key)
    if not busy():  # else the compiler would make this thread wait for it
        try:
            with interrupts_wait():
                return make(True)
        except NotReady:
            pass
    later(key, lambda: make(False))
    with interrupts_wait():
        return make(False)


@contextmanager
def _unheard() -> Iterator[None]:
    """Without the profile function of a capture: it would hear of every call in the compiler."""
    function = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(function)


def busy() -> bool:
    """Whether something is being compiled."""
    return _queue.worker is not None


@cache
def _watch_forks() -> None:
    """Have forks wait for the job at work, before any lock is taken that the job may need.

    Functions that run before a fork do so in the reverse order of their registration. Those of
    ``logging`` and ``concurrent.futures`` take locks that imports and Numba ask for: they must be
    registered already.
    """
    if hasattr(os, "register_at_fork"):
        for module in ("logging", "concurrent.futures.thread"):
            import_module(module)
        os.register_at_fork(
            before=_before_fork,
            after_in_parent=_after_fork_in_parent,
            after_in_child=_after_fork_in_child,
        )


def _before_fork() -> None:
    _queue.working.acquire()


def _after_fork_in_parent() -> None:
    _queue.working.release()


def _after_fork_in_child() -> None:
    """The child has no worker; it asks again for what it needs."""
    global _queue
    _queue = _Queue()


atexit.register(lambda: _queue.close())
