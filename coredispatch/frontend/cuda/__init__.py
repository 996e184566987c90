"""``cd.cuda``: questions about the backend ``cuda``, answered also where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coredispatch.frontend.cuda import amp as amp
from coredispatch.frontend.cuda import comm as comm
from coredispatch.frontend.cuda import devices, unavailable
from coredispatch.frontend.cuda import graphs as graphs
from coredispatch.frontend.cuda import jiterator as jiterator
from coredispatch.frontend.cuda import memory as memory
from coredispatch.frontend.cuda import nccl as nccl
from coredispatch.frontend.cuda import nvtx as nvtx
from coredispatch.frontend.cuda import profiler as profiler
from coredispatch.frontend.cuda import random as random
from coredispatch.frontend.cuda import sparse as sparse
from coredispatch.frontend.cuda import streams as streams
from coredispatch.frontend.cuda import tunable as tunable
from coredispatch.frontend.cuda.devices import *  # noqa: F403
from coredispatch.frontend.cuda.graphs import *  # noqa: F403
from coredispatch.frontend.cuda.memory import *  # noqa: F403
from coredispatch.frontend.cuda.random import *  # noqa: F403
from coredispatch.frontend.cuda.streams import *  # noqa: F403
from coredispatch.frontend.cuda.unavailable import *  # noqa: F403
from coredispatch.registry.model.errors import KernelError as AcceleratorError
from coredispatch.registry.model.errors import OutOfMemoryError as OutOfMemoryError

# mypy reads literal lists only; where it sees none it takes what is imported.
if not TYPE_CHECKING:
    __all__ = [
        "AcceleratorError",
        "OutOfMemoryError",
        "amp",
        "comm",
        "graphs",
        "jiterator",
        "memory",
        "nccl",
        "nvtx",
        "profiler",
        "random",
        "sparse",
        "streams",
        "tunable",
        *devices.__all__,
        *graphs.__all__,
        *memory.__all__,
        *random.__all__,
        *streams.__all__,
        *unavailable.__all__,
    ]


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return random.__getattr__(name)
    raise AttributeError(f"module 'coredispatch.cuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "default_generators"})
