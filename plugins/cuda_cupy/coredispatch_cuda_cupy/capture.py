"""Which graph a thread is capturing: asked by what must do without numbers of the host then."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

__all__ = ["begin", "current", "end", "lasting"]

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


def lasting(cupy: Any, count: int) -> Any:
    """int64 numbers on the device that are written outside of a graph and read by its replays.

    They come from the driver: a block of the graph's pool may be one that an earlier kernel of the
    same graph writes to. Whoever keeps the graph keeps them.
    """
    memory = cupy.cuda.Memory(count * 8)
    return cupy.ndarray((count,), np.int64, cupy.cuda.MemoryPointer(memory, 0))
