"""Named spans of a program, for a profiler: nothing while none runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["MARKS"]


class Marks:
    """``span`` is None while nobody profiles, else ``span(name)`` is a context manager."""

    def __init__(self) -> None:
        self.span: Callable[[str], AbstractContextManager[Any]] | None = None


MARKS = Marks()
