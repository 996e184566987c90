"""Which graph a thread is capturing: asked by what must do without numbers of the host then."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["begin", "current", "end"]

_local = threading.local()


def current() -> Any:
    """The graph that this thread captures, or None."""
    return getattr(_local, "graph", None)


def begin(graph: Any) -> None:
    """This thread captures ``graph`` from here on."""
    _local.graph = graph


def end() -> None:
    """This thread captures nothing."""
    _local.graph = None
