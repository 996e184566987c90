"""Ranges and marks for Nsight, through CuPy's NVTX; refused where there is no device.

On the CPU ``profiler.record_function`` does the same for the profiler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.cuda.devices import asked, is_available, present

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _nvtx(name: str, *args: Any) -> Any:
    if not is_available():
        raise RuntimeError(
            "NVTX functions not installed. Are you sure you have a CUDA build? "
            "On the CPU use profiler.record_function."
        )
    return asked("nvtx", name, *args)


def range_push(msg: str) -> Any:
    """Begin a nested range."""
    return _nvtx("RangePush", msg)


def range_pop() -> Any:
    """End the innermost range."""
    return _nvtx("RangePop")


def mark(msg: str) -> Any:
    """An instant that the profiler shows."""
    return _nvtx("Mark", msg)


def range_start(msg: str) -> int:
    """Not available: CuPy's NVTX has nested ranges only."""
    present()
    raise NotImplementedError("cuda.nvtx.range_start: use range_push, or the block range(msg)")


def range_end(range_id: int) -> None:
    """Not available: see :func:`range_start`."""
    present()
    raise NotImplementedError("cuda.nvtx.range_end: use range_pop, or the block range(msg)")


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A block as a range; ``msg`` is formatted with the other arguments. Also a decorator."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
