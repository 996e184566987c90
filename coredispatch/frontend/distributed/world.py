"""The process groups of a process; threads that are ranks have groups of their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.distributed.process_group import ProcessGroup

__all__ = ["GroupMember", "World", "group", "separate_world", "world"]


class World:
    """The default group and the others, by name; how many were made so far."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.count = 0
        self.left = 0  # how many default groups this process has left
        self.store: Any = None
        self.waited = 0.0  # what groups that are no more had waited, in seconds


class _ThreadWorld(threading.local):
    world: World | None = None


_process = World()
_thread = _ThreadWorld()


def world() -> World:
    """The groups that the calling thread sees."""
    return _thread.world or _process


@contextlib.contextmanager
def separate_world() -> Iterator[World]:
    """Let the calling thread have groups of its own while in the block."""
    before, _thread.world = _thread.world, World()
    try:
        yield _thread.world
    finally:
        _thread.world = before


class _WorldMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, or None."""
        return world().default


class group(metaclass=_WorldMeta):
    """``group.WORLD`` is the default process group; None before ``init_process_group``."""


class GroupMember(metaclass=_WorldMeta):
    """``GroupMember.WORLD``, and what a process gets for a group that it is no part of."""

    NON_GROUP_MEMBER: Any = -100
