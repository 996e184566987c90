"""How many threads large kernels use. Importing this does not import Numba."""

from __future__ import annotations

import os
import platform
import sys

__all__ = ["MOST", "SUPPORTED", "default", "get_num_threads", "set_num_threads", "wanted"]

#: whether there are helper threads at all: they sleep on futexes
SUPPORTED = sys.platform.startswith("linux") and platform.machine() in (
    "x86_64",
    "aarch64",
    "riscv64",
)
VARIABLE = "COREDISPATCH_NUM_THREADS"
MOST = 64


def default() -> int:
    """``COREDISPATCH_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the CPUs this process has."""
    if not SUPPORTED:
        return 1
    available = min(len(os.sched_getaffinity(0)), MOST)
    for variable in (VARIABLE, "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return min(int(text), available)
    return available


#: the caller's thread included; 1 keeps all work in it
wanted = default()


def get_num_threads() -> int:
    """How many threads a large kernel uses, the caller's included."""
    return wanted


def set_num_threads(count: int) -> None:
    """Let large kernels use ``count`` threads; results do not depend on it.

    Raises ``ValueError`` for a count below 1. Where there are no helper threads (outside Linux)
    the count stays 1.
    """
    global wanted
    if count < 1:
        raise ValueError(f"set_num_threads({count}): the count must be at least 1")
    wanted = min(count, MOST) if SUPPORTED else 1
