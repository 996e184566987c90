"""Processes that are forked from one with devices: the driver serves none of them.

It is made ready when the plugin is loaded, and a copy of its state is of no use to a child. Without
a check each call fails there by an error of initialization.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from coredispatch.plugin import NoDeviceError

__all__ = ["refusal", "watch"]

#: backends of this process; in a child they are marked
_backends: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(backend: Any) -> None:
    """Let ``backend.forked`` be True in processes that are forked from here on.

    New memory is refused there, which every kernel asks for.
    """
    _backends.add(backend)


def refusal() -> NoDeviceError:
    """What a forked process is told."""
    return NoDeviceError(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method",
        fix="multiprocessing.set_start_method('spawn'), or "
        "DataLoader(multiprocessing_context='spawn'), or tensors on the CPU in the child",
    )


def _refuse(size: int) -> Any:
    raise refusal()


def _mark() -> None:
    for backend in list(_backends):
        backend.forked = True
        if backend.owns_memory:
            _refuse.allocator = backend.allocator  # type: ignore[attr-defined]
            backend.cupy.cuda.set_allocator(_refuse)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark)
