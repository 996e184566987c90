"""Processes that share tensors: Python's ``multiprocessing``, public as ``cd.multiprocessing``.

All of that module's names are here. What is added: a tensor that is sent to another process, as an
argument, through a queue, a pipe or a pool, moves to shared memory and is seen by both;
:func:`spawn` starts a group of processes that live and die together.

Tensors are sent with elements, dtype, strides and requires_grad. Gradients are not sent.
Tensors of other devices and layouts arrive as copies.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403

from coredispatch.frontend.multiprocessing import pool, queue, reductions  # noqa: F401
from coredispatch.frontend.multiprocessing.segments import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    set_sharing_strategy,
)
from coredispatch.frontend.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

reductions.init_reductions()
