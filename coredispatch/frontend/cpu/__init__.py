"""``cd.cpu``: the CPU, asked as an accelerator is. It is synchronous, so streams do nothing."""

from __future__ import annotations

import contextlib
from typing import Any

from coredispatch.frontend.cpu import amp as amp
from coredispatch.frontend.cpu.memory import (
    empty_cache,
    get_cache_cap,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    set_cache_cap,
)
from coredispatch.registry.model.device import Device

__all__ = [
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_cache_cap",
    "is_available",
    "is_initialized",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "set_cache_cap",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1, as in PyTorch, however many cores there are."""
    return 1


def current_device() -> str:
    """``"cpu"``."""
    return "cpu"


def set_device(device: Any) -> None:
    """Does nothing: there is one. Raises for what is no device."""
    Device(device)


def synchronize(device: Any = None) -> None:
    """Does nothing: every call has done its work when it returns."""


class Stream:
    """Stands for the order of work on the CPU, of which there is one."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Does nothing: there is one order."""


_STREAM = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _STREAM


class StreamContext(contextlib.AbstractContextManager[None]):
    """A block on a stream, which changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __exit__(self, *error: object) -> None:
        return None


def stream(stream: Any) -> StreamContext:
    """A block on a stream, which changes nothing."""
    return StreamContext(stream)
