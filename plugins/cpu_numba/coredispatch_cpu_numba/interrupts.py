"""Ctrl-C and other signals while Numba works: their handlers wait until the compiler is done.

An import of Numba that was broken off cannot be repeated, and a library without its machine code
stays in Numba's own tables. The compiler needs seconds; what a program computes is interrupted at
once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupts_wait"]


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """A block at whose end the signals are handled that came in the block, one of each kind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
    came: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        came[number] = frame

    try:
        for number in handlers:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in came.items():
            handlers[number](number, frame)
