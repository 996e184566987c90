"""Ranges and marks for Intel's VTune: refused by name, as in a PyTorch that is built without it.

``profiler.record_function`` does the same for the profiler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def _refuse() -> NoReturn:
    raise RuntimeError(
        "ITT functions not installed. Are you sure you have a ITT build?\n"
        "  fix: use profiler.record_function"
    )


def is_available() -> bool:
    """False: Intel's library is not used."""
    return False


def range_push(msg: str) -> int:
    """Refused: there is no ITT."""
    _refuse()


def range_pop() -> int:
    """Refused: there is no ITT."""
    _refuse()


def mark(msg: str) -> None:
    """Refused: there is no ITT."""
    _refuse()


@contextlib.contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A block as a range; refused, there is no ITT."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
