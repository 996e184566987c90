"""Waiting for what goes on only when this process sees to it, with a limit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

__all__ = ["Moving", "advance", "moving", "moving_on", "wait_until"]

_ALONE = 0.00005  # seconds of asking before others are offered the core
_SPIN = 0.002  # seconds of asking before there are pauses: most calls are done by then
_SPIN_PER_BYTE = 1e-9  # more for long arrays, which go on only when they are asked
_LONGEST_PAUSE = 0.001
_EVERY = 0.0005  # seconds between two looks of a thread


def _pass() -> None:
    time.sleep(0)


_give_way: Callable[[], None] = getattr(os, "sched_yield", _pass)


class Moving(Protocol):
    """What is under way beside MPI."""

    def advance(self) -> None:
        """Go as far as is possible without waiting."""


#: what is under way in this process. Whoever waits for anything sees to it: the other ranks may
#: have to have its part before they do what is waited for.
moving: dict[Moving, None] = {}


def advance() -> None:
    """Let everything that is under way go on."""
    for each in list(moving):
        each.advance()


def wait_until(done: Callable[[], bool], seconds: float, nbytes: int) -> bool:
    """Ask `done` until it is true; False when that took longer than `seconds`.

    Args:
        done: sees to it that there is progress.
        nbytes: of the arrays that it is about.
    """
    if done():
        return True
    began = time.monotonic()
    pause, spin = 0.0, _SPIN + _SPIN_PER_BYTE * nbytes
    while not done():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        if waited > spin:
            pause = min(pause + 0.00002, _LONGEST_PAUSE)
            time.sleep(pause)
        elif waited > _ALONE:
            _give_way()  # the rank that is waited for may need this core
    return True


@contextlib.contextmanager
def moving_on() -> Iterator[None]:
    """For a call of MPI that does not return until other ranks have come."""
    if not moving:
        yield
        return
    over = threading.Event()

    def run() -> None:
        while not over.wait(_EVERY):
            advance()

    thread = threading.Thread(target=run, name="reductions under way", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
