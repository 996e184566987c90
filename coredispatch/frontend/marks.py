"""Where a profiler and a compiler look on: nothing while none runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["MARKS"]


class Marks:
    """Both are None while nobody is there.

    ``span(name)`` is a context manager, ``item(tensor, read)`` the number in a tensor of one
    element, or what stands for it; ``read()`` reads it.
    """

    def __init__(self) -> None:
        self.span: Callable[[str], AbstractContextManager[Any]] | None = None
        self.item: Callable[[Any, Callable[[], Any]], Any] | None = None


MARKS = Marks()
