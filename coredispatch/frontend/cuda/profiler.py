"""Starts and stops what the driver's profiler records: ``nsys profile -c cudaProfilerApi``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coredispatch.frontend.cuda.devices import asked

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Let the driver's profiler record from here. Refuses without a device."""
    asked("profile_start")


def stop() -> None:
    """Let the driver's profiler record no longer. Refuses without a device."""
    asked("profile_stop")


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """A block that the driver's profiler records."""
    start()
    try:
        yield
    finally:
        stop()
