"""``cd.cuda``: questions about the backend ``cuda``, answered also where there is none."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda import (
    amp,
    devices,
    graphs,
    memory,
    nccl,
    nvtx,
    profiler,
    random,
    streams,
    unavailable,
)
from coredispatch.frontend.cuda.devices import *  # noqa: F403
from coredispatch.frontend.cuda.graphs import *  # noqa: F403
from coredispatch.frontend.cuda.memory import *  # noqa: F403
from coredispatch.frontend.cuda.random import *  # noqa: F403
from coredispatch.frontend.cuda.streams import *  # noqa: F403
from coredispatch.frontend.cuda.unavailable import *  # noqa: F403

#: what a kernel without memory raises is a ``MemoryError`` besides a ``RuntimeError``
OutOfMemoryError = MemoryError


__all__ = [
    "OutOfMemoryError",
    "amp",
    "graphs",
    "memory",
    "nccl",
    "nvtx",
    "profiler",
    "random",
    "streams",
]
# In the one form that type checkers follow.
__all__ += devices.__all__
__all__ += graphs.__all__
__all__ += memory.__all__
__all__ += random.__all__
__all__ += streams.__all__
__all__ += unavailable.__all__


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return random.__getattr__(name)
    raise AttributeError(f"module 'coredispatch.cuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "default_generators"})
