"""How many threads kernels on the CPU may use: one number that every plugin obeys.

A plugin whose kernels run in threads calls ``registrar.thread_pool(name, set_count)``. The function
is called with the count whenever the user sets one, and when the plugin is loaded after that.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from coredispatch.registry.dispatch.table import TABLE, Snapshot
from coredispatch.registry.model.errors import OpError

__all__ = [
    "default_num_threads",
    "get_num_interop_threads",
    "get_num_threads",
    "set_num_interop_threads",
    "set_num_threads",
]

#: the first of these that names a number is the default
VARIABLES = ("COREDISPATCH_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_lock = threading.RLock()
_count: int | None = None
_interop: int | None = None
_told: dict[str, Any] = {}  # pools that know the count, by name


def default_num_threads() -> int:
    """What the environment asks for, else the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    for variable in VARIABLES:
        text = os.environ.get(variable, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return min(int(text), available)
    return available


def get_num_threads() -> int:
    """How many threads a large kernel on the CPU may use, the caller's included."""
    return default_num_threads() if _count is None else _count


def set_num_threads(count: int) -> None:
    """Let large kernels on the CPU use ``count`` threads, in every thread of this process.

    Obeyed by NumPy's BLAS and by every plugin with threads of its own; a DataLoader's worker
    processes set it to 1. Raises :class:`OpError` (a ``RuntimeError``) for what is not a positive
    int of 32 bits, which is what a BLAS takes.
    """
    global _count
    _check("set_num_threads", count)
    with _lock:
        _count = count
        _told.clear()
        _tell(TABLE.snapshot)


def _check(name: str, count: Any) -> None:
    if type(count) is not int:
        raise OpError(
            f"{name} expects an int, but got {type(count).__name__}", fix=f"use {name}(1)"
        )
    if count < 1:
        raise OpError(f"{name} expects a positive integer", fix=f"use {name}(1)")
    if count >= 2**31:
        raise OpError(f"{name} expects an int of 32 bits, but got {count}", fix=f"use {name}(1)")


def _tell(snapshot: Snapshot) -> None:
    """Tell the pools that do not know the count yet."""
    if _count is None:
        return
    with _lock:
        for name, (set_count, _) in snapshot.thread_pools.items():
            if _told.get(name) is not set_count:
                _told[name] = set_count
                set_count(_count)


TABLE.watchers.append(_tell)


def get_num_interop_threads() -> int:
    """The number that :func:`set_num_interop_threads` was given, else :func:`get_num_threads`'.

    Operators run in the thread that calls them: there are no threads between operators.
    """
    return default_num_threads() if _interop is None else _interop


def set_num_interop_threads(count: int) -> None:
    """Accepted once, as in PyTorch, and without effect: no operators run beside each other.

    Raises :class:`OpError` (a ``RuntimeError``) the second time, and for what is no positive int.
    """
    global _interop
    _check("set_num_interop_threads", count)
    if _interop is not None:
        raise OpError(
            "Error: cannot set number of interop threads after parallel work has started or "
            "set_num_interop_threads called",
            fix="call it once, or leave it out: it has no effect here",
        )
    _interop = count
