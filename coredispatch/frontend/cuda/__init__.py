"""``cd.cuda``: questions about the backend ``cuda``, answered also where there is none."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda import amp, graphs, memory, nvtx, random, streams
from coredispatch.frontend.cuda.devices import *  # noqa: F403
from coredispatch.frontend.cuda.devices import __all__ as _devices
from coredispatch.frontend.cuda.graphs import *  # noqa: F403
from coredispatch.frontend.cuda.memory import *  # noqa: F403
from coredispatch.frontend.cuda.random import *  # noqa: F403
from coredispatch.frontend.cuda.streams import *  # noqa: F403

#: what a kernel without memory raises is a ``MemoryError`` besides a ``RuntimeError``
OutOfMemoryError = MemoryError


__all__ = [
    "OutOfMemoryError",
    "amp",
    "graphs",
    "memory",
    "nvtx",
    "random",
    "streams",
    *_devices,
    *graphs.__all__,
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
]


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return random.__getattr__(name)
    raise AttributeError(f"module 'coredispatch.cuda' has no attribute {name!r}")
