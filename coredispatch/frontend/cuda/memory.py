"""Memory of CUDA devices, as far as the backend's pool tells.

CuPy's pool counts the bytes in use and held; it keeps no peaks, so that what asks for a peak on a
device refuses by name. Without a device the counts are 0, as in PyTorch.
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
    present,
)

__all__ = [
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


def _peak(what: str, device: Any) -> int:
    if not is_available():
        return 0
    raise NotImplementedError(
        f"cuda.{what}: CuPy's memory pool keeps no peaks; use memory_allocated() where it matters"
    )


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays used; 0 without a device, NotImplementedError on one."""
    return _peak("max_memory_allocated", device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool held; 0 without a device, NotImplementedError on one."""
    return _peak("max_memory_reserved", device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing to do: no peaks are kept. Refuses without a device."""
    device_index(device)


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
reset_accumulated_memory_stats = reset_peak_memory_stats


def reset_peak_host_memory_stats() -> None:
    """Nothing to do: no memory of the host is pinned."""


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
    """What the pool counts, under PyTorch's names; empty without a device."""
    stats: dict[str, Any] = OrderedDict()
    if is_available():
        stats["allocated_bytes.all.current"] = memory_allocated(device)
        stats["reserved_bytes.all.current"] = memory_reserved(device)
    return stats


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
    """Empty: no memory of the host is pinned."""
    return OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Empty, as :func:`host_memory_stats`."""
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of what the pool counts. Refuses without a device."""
    index = device_index(device)
    details = present().memory(index)
    rows = [f"| {name:<20} | {value / 2**20:12.1f} MiB |" for name, value in details.items()]
    line = "|" + "-" * (len(rows[0]) - 2 if rows else 40) + "|"
    return "\n".join([line, f"| memory of cuda:{index}", line, *rows, line])


def memory_snapshot(mempool_id: Any = None) -> Any:
    """Not available: CuPy's pool lists no blocks."""
    present()
    raise NotImplementedError("cuda.memory_snapshot: CuPy's memory pool lists no blocks")


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
    """Not available: memory is allocated by the arrays of the backend."""
    present()
    raise NotImplementedError("cuda.caching_allocator_alloc: use a uint8 tensor")


def caching_allocator_delete(mem_ptr: int) -> None:
    """Not available, see :func:`caching_allocator_alloc`."""
    present()
    raise NotImplementedError("cuda.caching_allocator_delete: delete the tensor")


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
