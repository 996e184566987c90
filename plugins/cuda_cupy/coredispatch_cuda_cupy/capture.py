"""Which graph a thread is capturing: asked by what must do without numbers of the host then."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

__all__ = ["begin", "current", "end", "is_captured", "lasting"]

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


def is_captured(stream: Any) -> bool:
    """Whether a stream is being captured, by whatever thread.

    An event in it would become a part of the graph, and asking whether its work is done would end
    the capture with an error. The default streams are never captured.
    """
    return stream.ptr not in (0, 1) and bool(stream.is_capturing())


def lasting(cupy: Any, count: int) -> Any:
    """int64 numbers on the device that are written outside of a graph and read by its replays.

    They come from the driver: a block of the graph's pool may be one that an earlier kernel of the
    same graph writes to. Whoever keeps the graph keeps them.
    """
    memory = cupy.cuda.Memory(count * 8)
    return cupy.ndarray((count,), np.int64, cupy.cuda.MemoryPointer(memory, 0))
