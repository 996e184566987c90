"""Memory of CUDA devices: what the backend's pool has, and has had at its peak.

Bytes are those of whole blocks, as the pool hands them out. Without a device the counts are 0, as
in PyTorch.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.cuda.devices import (
    asked,
    backend_or_none,
    device_index,
    is_available,
    list_gpu_processes,
    present,
)
from coredispatch.frontend.cuda.unavailable import CUDAPluggableAllocator

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _count(name: str, device: Any) -> int:
    if not is_available():
        return 0
    found: int = present().memory(device_index(device)).get(name, 0)
    return found


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays; 0 without a device."""
    return _count("allocated", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes held by the memory pool; 0 without a device."""
    return _count("reserved", device)


def _counted(name: str, device: Any) -> int:
    if not is_available():
        return 0
    return int(asked("memory_statistics", device_index(device))[name])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays used since :func:`reset_peak_memory_stats`; 0 without a device."""
    return _counted("allocated_bytes.all.peak", device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool held since then; 0 without a device."""
    return _counted("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin with what there is now. Refuses without a device."""
    asked("reset_memory_peaks", device_index(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Let the totals of what was allocated and freed begin anew. Refuses without a device."""
    asked("reset_memory_totals", device_index(device))


def reset_peak_host_memory_stats() -> None:
    """Nothing to do: page-locked memory is not counted."""


reset_accumulated_host_memory_stats = reset_peak_host_memory_stats


def memory_cached(device: Any = None) -> int:
    """Deprecated name of :func:`memory_reserved`."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Deprecated name of :func:`max_memory_reserved`."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def _renamed(old: str, new: str) -> None:
    warn(f"`torch.cuda.{old}` has been renamed to `torch.cuda.{new}`", FutureWarning)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """``(free, total)`` bytes of the device."""
    details = present().memory(device_index(device))
    return details.get("free", 0), details.get("total", 0)


def device_memory_used(device: Any = None) -> int:
    """Bytes of the device that any process uses."""
    free, total = mem_get_info(device)
    return total - free


def memory_stats(device: Any = None) -> dict[str, Any]:
    """What the pool counts, under PyTorch's names; empty without a device.

    ``active`` are blocks that arrays use or a stream still works with, ``allocation`` those that
    arrays use, and ``requested_bytes`` what they asked for; ``num_alloc_retries`` counts calls that
    had to wait for streams first. ``inactive_bytes`` are what the pool holds beside the active
    ones, which PyTorch has no name for. A statistic that the pool does not tell is not there: the
    ``KeyError`` says why.
    """
    if not is_available():
        return OrderedDict()
    return _Statistics(asked("memory_statistics", device_index(device)))


class _Statistics(OrderedDict[str, Any]):
    """Statistics by name. What PyTorch has besides is refused with the reason."""

    def __missing__(self, name: str) -> Any:
        reason = getattr(present(), "missing_statistic", lambda name: None)(name)
        if reason is None:
            raise KeyError(name)
        raise KeyError(f"memory_stats: there is no {name!r}, as {reason}")


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """:func:`memory_stats` with a dict for each part of a name."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def host_memory_stats() -> dict[str, Any]:
    """Empty: page-locked memory is not counted."""
    return OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Empty, as :func:`host_memory_stats`."""
    return {}


#: rows of the summary: what is shown, and the statistic with ``current`` and, some, ``peak``
_ROWS = (
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Reserved memory", "reserved_bytes"),
    ("Not in use", "inactive_bytes"),
    ("Requested memory", "requested_bytes"),
    ("Blocks", "allocation"),
)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of :func:`memory_stats`. Refuses without a device.

    ``abbreviated`` leaves the totals of what was allocated and freed out.
    """
    index = device_index(device)
    stats = memory_stats(index)
    columns = ("current", "peak") if abbreviated else ("current", "peak", "allocated", "freed")
    heads = ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")[: len(columns)]
    line = "|" + "=" * (20 + 15 * len(columns)) + "|"
    lines = [
        line,
        f"| memory of cuda:{index}, {stats['num_ooms']} times exhausted, "
        f"{stats['num_alloc_retries']} retries",
        line,
        "| " + f"{'Metric':<18} " + "".join(f"| {head:<13}" for head in heads) + "|",
    ]
    for title, name in _ROWS:
        found = (stats.get(f"{name}.all.{column}") for column in columns)
        cells = [_cell(value, name.endswith("bytes")) for value in found]
        lines.append(f"| {title:<18} " + "".join(f"| {cell:>12} " for cell in cells) + "|")
    return "\n".join([*lines, line])


def _cell(value: int | None, is_bytes: bool) -> str:
    if value is None:
        return ""
    return f"{value / 2**20:.1f} MiB" if is_bytes else str(value)


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> Any:
    """Not available: the pool does not list its blocks."""
    present()
    raise NotImplementedError(
        "cuda.memory_snapshot: the pool does not list its blocks; an OutOfMemoryError says who "
        "holds what, memory_stats() how much"
    )


def empty_cache() -> None:
    """Give unused pooled memory back to the device; nothing to do without one."""
    backend: Any = backend_or_none()
    if backend is not None and hasattr(backend, "empty_cache"):
        backend.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let the pool hold at most this part of the device's memory, from 0 to 1."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    asked("set_memory_fraction", device_index(device), fraction)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part that :func:`set_per_process_memory_fraction` allows, 1.0 at first."""
    return float(asked("memory_fraction", device_index(device)))


def get_allocator_backend() -> str:
    """The name of the allocator: CuPy's pool. Refuses without a device."""
    present()
    return "cupy"


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of ``size`` bytes on a device, kept until :func:`caching_allocator_delete`.

    ``stream`` (the current one) is a :class:`Stream`, or the driver's handle of one, that works
    with them. Refuses without a device.

    Example:
        >>> place = cd.cuda.caching_allocator_alloc(1024)  # doctest: +SKIP
        >>> cd.cuda.caching_allocator_delete(place)  # doctest: +SKIP
    """
    index = device_index(device)
    raw = stream
    if isinstance(stream, int):
        raw = asked("external_stream", index, stream) if stream else None
    elif stream is not None:
        raw = stream.raw
    return int(asked("allocate", index, size, raw))


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what :func:`caching_allocator_alloc` gave.

    Raises :class:`ArgumentError` for another address.
    """
    asked("deallocate", mem_ptr)


class MemPool:
    """Memory apart from the rest: blocks that :func:`use_mem_pool` took go back to it alone.

    ``id`` names it, for ``cuda.graph(g, pool=pool.id)``. It lives as long as the object, and as the
    blocks that arrays hold. ``allocator``, ``use_on_oom`` and ``no_split`` are refused: the memory
    comes from CuPy, whose pools split blocks and know nothing of each other.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        present()
        if allocator is not None:
            raise NotImplementedError("cuda.MemPool(allocator): the memory comes from CuPy")
        if use_on_oom or no_split:
            name = "use_on_oom" if use_on_oom else "no_split"
            raise NotImplementedError(f"cuda.MemPool({name}=True): CuPy's pools do not do that")
        self.id: tuple[int, int] = asked("graph_pool")
        self._backend = present()
        self._backend.keep_pool(self.id)

    def __del__(self) -> None:
        backend = self.__dict__.get("_backend")
        if backend is not None:
            backend.drop_pool(self.id)

    def use_count(self) -> int:
        """How many graphs and objects keep the pool."""
        return int(self._backend.pool_users(self.id))

    def snapshot(self, include_traces: bool = True) -> Any:
        """Not available: see :func:`memory_snapshot`."""
        return memory_snapshot(self.id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A block in which this thread's memory on the devices comes from ``pool``."""
    with asked("memory_from", pool.id):
        yield


def caching_allocator_enable(value: bool = True) -> None:
    """Takes True only: the pool cannot be switched off. Refuses without a device."""
    present()
    if not value:
        raise NotImplementedError("cuda.caching_allocator_enable(False): CuPy's pool stays on")


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Not available: the pool stays on."""
    caching_allocator_enable(False)
    yield


def change_current_allocator(allocator: Any) -> None:
    """Not available: the allocator is CuPy's, see ``cupy.cuda.set_allocator``."""
    present()
    raise NotImplementedError("cuda.change_current_allocator: use cupy.cuda.set_allocator")
