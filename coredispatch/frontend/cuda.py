"""``cd.cuda``: questions about the backend ``cuda``, answered also where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import NoDeviceError
from coredispatch.registry.model.generator import default_generator

__all__ = [
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_rng_state",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "memory_allocated",
    "memory_reserved",
    "set_rng_state",
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
        raise NoDeviceError(f"no CUDA device{reason}", fix=plugins.hint_for_key("cuda"))
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
        return current_device()
    found = device if isinstance(device, int) else Device(device).index
    return _present().check_device(found)


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """A block in which the device (a number, ``"cuda:1"`` or a Device) is the current one.

    Tensors that ask for ``"cuda"`` are then made there. None and -1 change nothing.
    """
    if device is None or device == -1:
        yield
        return
    with _present().on(_index(device)):
        yield


def current_device() -> int:
    """Index of the current device."""
    return _present().check_device(None)


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


def get_rng_state(device: Any = None) -> Any:
    """The state of the default generator of a device (the current one), a uint8 tensor."""
    return default_generator(Device("cuda", _index(device))).get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Put a device's default generator into a state that :func:`get_rng_state` returned."""
    default_generator(Device("cuda", _index(device))).set_state(new_state)


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device; nothing to do where there is none."""
    if is_available():
        default_generator(Device("cuda", _index(None))).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all CUDA devices; nothing to do where there is none."""
    for index in range(device_count()):
        default_generator(Device("cuda", index)).manual_seed(seed)
