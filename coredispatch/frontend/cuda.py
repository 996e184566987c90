"""``cd.cuda``: questions about the backend ``cuda``, answered also where there is none."""

from __future__ import annotations

from typing import Any

from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import DeviceError

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "memory_allocated",
    "memory_reserved",
    "synchronize",
]


def _backend() -> Backend | None:
    plugins.discover()
    found = TABLE.snapshot.backends.get("cuda")
    return None if found is None else found[0]


def _present() -> Backend:
    backend = _backend()
    if backend is None or backend.device_count() == 0:
        reason = "" if backend is None else f": {backend.device_name()}"
        raise DeviceError(f"no CUDA device{reason}", fix=plugins.hint_for_key("cuda"))
    return backend


def is_available() -> bool:
    """Whether the plugin is loaded and sees a device."""
    return device_count() > 0


def device_count() -> int:
    """Number of CUDA devices, 0 without the plugin."""
    backend = _backend()
    return 0 if backend is None else backend.device_count()


def _index(device: Any) -> int:
    if device is None:
        return 0
    return device if isinstance(device, int) else Device(device).index or 0


def current_device() -> int:
    """Index of the current device."""
    backend: Any = _present()
    return int(getattr(backend, "current_device", lambda: 0)())


def get_device_name(device: Any = None) -> str:
    """The hardware's name."""
    return _present().device_name(_index(device))


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all its work."""
    _present().synchronize(_index(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays."""
    return _present().memory(_index(device)).get("allocated", 0)


def memory_reserved(device: Any = None) -> int:
    """Bytes held by the memory pool."""
    return _present().memory(_index(device)).get("reserved", 0)


def empty_cache() -> None:
    """Give unused pooled memory back to the device; nothing to do without one."""
    backend: Any = _backend()
    if backend is not None and hasattr(backend, "empty_cache"):
        backend.empty_cache()


def manual_seed(seed: int) -> None:
    """Seed the default generator (one serves all devices)."""
    from coredispatch.registry.model.generator import manual_seed as seed_all

    seed_all(seed)


manual_seed_all = manual_seed
