"""How many threads large kernels use. Importing this does not import Numba."""

from __future__ import annotations

import platform
import sys

from coredispatch.plugin import get_num_threads as get_num_threads_of_all

__all__ = ["MOST", "SUPPORTED", "default", "get_num_threads", "set_num_threads", "wanted"]

#: whether there are helper threads at all: they sleep on futexes
SUPPORTED = sys.platform.startswith("linux") and platform.machine() in (
    "x86_64",
    "aarch64",
    "riscv64",
)
MOST = 64


def default() -> int:
    """The number of threads that coredispatch has at first (``COREDISPATCH_NUM_THREADS``, ...)."""
    return min(get_num_threads_of_all(), MOST) if SUPPORTED else 1


#: the caller's thread included; 1 keeps all work in it
wanted = default()


def get_num_threads() -> int:
    """How many threads a large kernel uses, the caller's included."""
    return wanted


def set_num_threads(count: int) -> None:
    """Let large kernels use ``count`` threads; results do not depend on it.

    Numba's own threads, where a program has them (``parallel=True``), are as many from then on in
    the calling thread. They are not started for it: the pack has none, and not every kind of them
    outlives a fork.

    Raises ``ValueError`` for a count below 1. Where there are no helper threads (outside Linux)
    the count stays 1.
    """
    global wanted
    if count < 1:
        raise ValueError(f"set_num_threads({count}): the count must be at least 1")
    wanted = min(count, MOST) if SUPPORTED else 1
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if parallel is not None and parallel._is_initialized:
        from numba import config

        parallel.set_num_threads(min(count, config.NUMBA_NUM_THREADS))
