"""Memory of the CPU: the heap is the pool of buffers (``coredispatch/backends/numpy/heap.py``)."""

from __future__ import annotations

import sys

from coredispatch.backends.numpy import heap
from coredispatch.registry.model.errors import ArgumentError, DeviceError

__all__ = [
    "empty_cache",
    "get_cache_cap",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "set_cache_cap",
]

_FIX = "ask the system (psutil, /proc/self/status)"


def _state(name: str) -> heap.Heap:
    found = heap.state()
    if found is None:
        raise DeviceError(
            f"cpu.{name}: the C library of this process keeps no statistics; glibc 2.33 and later "
            "do",
            fix=_FIX,
        )
    return found


def memory_allocated() -> int:
    """Bytes of the heap that are in use: arrays, and everything else that the process made.

    Raises ``DeviceError`` where the C library does not tell (it is not glibc 2.33 or later).
    """
    return _state("memory_allocated").allocated


def memory_reserved() -> int:
    """Bytes that the heap has from the system: those in use, and those it keeps.

    Raises as :func:`memory_allocated`.
    """
    return _state("memory_reserved").reserved


def memory_stats() -> dict[str, int | None]:
    """What the heap holds, in bytes.

    ``allocated_bytes.current`` are in use and ``reserved_bytes.current`` taken from the system.
    What is between them is kept to be used again (``cached_bytes.current``), ``cached_bytes.cap``
    at most, which is None where nobody set it. After :func:`empty_cache` it still counts what lies
    between blocks in use, whose pages are the system's. ``mapped_bytes.current``, of those in use,
    are given back as soon as they are freed. ``resident_bytes.peak`` is the most memory that the
    process ever had. Raises as :func:`memory_allocated`.

    Example:
        >>> stats = cd.cpu.memory_stats()
        >>> stats["cached_bytes.current"] <= stats["reserved_bytes.current"]
        True
    """
    found = _state("memory_stats")
    import resource  # there is none where there is no glibc

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "allocated_bytes.current": found.allocated,
        "reserved_bytes.current": found.reserved,
        "cached_bytes.current": found.reserved - found.allocated,
        "cached_bytes.cap": heap.kept(),
        "mapped_bytes.current": found.mapped,
        "resident_bytes.peak": peak,
    }


def memory_summary() -> str:
    """A table of :func:`memory_stats`. Raises as :func:`memory_allocated`."""
    lines = [f"{'memory of cpu':<26} MiB"]
    for name, value in memory_stats().items():
        shown = "not set" if value is None else f"{value / 2**20:.1f}"
        lines.append(f"{name:<26} {shown}")
    return "\n".join(lines)


def empty_cache() -> None:
    """Give what the heap keeps back to the system, as far as it lies in whole pages.

    Arrays in use, and views of them, stay where they are. Where the C library is not glibc, it
    keeps nothing that it could be asked to give.
    """
    heap.trim()


def get_cache_cap() -> int | None:
    """How many bytes of freed memory are kept at most; None where the C library decides."""
    return heap.kept()


def set_cache_cap(size: int) -> None:
    """Keep up to ``size`` bytes of freed memory; 0 gives everything back at once.

    The pack cpu_numba sets 256 MiB where neither the program nor a ``MALLOC_`` variable has said
    otherwise before. Blocks of more than 32 MiB are never kept: glibc does not take more. What is
    kept beyond the new cap is given back.

    Raises ``ArgumentError`` for what is no size, ``DeviceError`` where the C library has no
    such setting.

    Example:
        >>> cd.cpu.set_cache_cap(64 << 20)
        >>> cd.cpu.get_cache_cap()
        67108864
    """
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= heap.MOST:
        raise ArgumentError(
            f"cpu.set_cache_cap: size must be a number of bytes up to {heap.MOST}, got {size!r}",
            fix="pass it as in set_cache_cap(64 << 20)",
        )
    before = heap.kept()
    if not heap.keep(size):
        raise DeviceError(
            f"cpu.set_cache_cap: the C library of this process on {sys.platform} has no such "
            "setting; glibc 2.33 and later have",
            fix="leave the call out: such a library keeps what it decides",
        )
    if before is None or size < before:
        heap.trim(size)
