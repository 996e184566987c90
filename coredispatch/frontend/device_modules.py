"""``cd.NAME`` for the device of a plugin: what programs ask ``cd.cuda``, asked of its backend.

Every answer is a method of :class:`coredispatch.plugin.Backend`, so a backend needs nothing for
it: ``device_count``, ``check_device``, ``on``, ``synchronize``, ``memory``, ``device_name``. Two
methods are optional: ``set_current_device(index)`` makes a device the current one for good, where
there are several, and ``empty_cache()`` gives unused memory back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

from coredispatch.registry.around.loader import GROUP, plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import ArgumentError, DeviceError, NoDeviceError
from coredispatch.registry.model.generator import Generator, default_generator

__all__ = ["DeviceModule", "get_device_module", "module_of_plugin"]


class DeviceModule(ModuleType):
    """The functions over the devices of backend ``key``: ``cd.KEY.synchronize()`` and others.

    A ``device`` is None (the current one), a number, ``"KEY:1"`` or a :class:`Device`. Where there
    is no device, functions raise :class:`NoDeviceError` with the reason that the backend gives;
    ``is_available``, ``device_count``, ``manual_seed`` and ``manual_seed_all`` do not.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"coredispatch.{key}", f"Questions about the devices of {key!r}.")
        self._key = key

    def _backend(self) -> Backend | None:
        """The backend, if a plugin that brings it is loaded."""
        plugins.discover()
        found = TABLE.snapshot.backends.get(self._key)
        return None if found is None else found[0]

    def _present(self) -> Any:
        """The backend; :class:`NoDeviceError` where it is not loaded or has no device.

        What is to be done says the backend, which knows what is missing.
        """
        backend = self._backend()
        if backend is None:
            raise NoDeviceError(
                f"no {self._key} device: no plugin brings {self._key!r}",
                fix=plugins.hint_for_key(self._key),
            )
        if backend.device_count() == 0:
            backend.check_device(None)  # raises, with the reason
        return backend

    def _asked(self, name: str, *args: Any) -> Any:
        """What the method ``name`` of the backend gives; DeviceError where it has none."""
        method = getattr(self._present(), name, None)
        if method is None:
            raise DeviceError(
                f"the backend {self._key!r} has no {name}",
                fix=f"give its class a method {name}, or do without",
            )
        return method(*args)

    def _index(self, device: Any) -> int:
        """The index that ``device`` stands for."""
        if device is None:
            return self.current_device()
        if not isinstance(device, int):
            device = Device(device)
            if device.type != self._key:
                raise ArgumentError(
                    f"Expected a {self._key} device, but got: {device}",
                    fix=f"use '{self._key}', '{self._key}:0' or 0",
                )
            device = device.index
        index: int = self._present().check_device(device)
        return index

    def is_available(self) -> bool:
        """Whether the plugin is loaded and sees a device."""
        return self.device_count() > 0

    is_initialized = is_available

    def device_count(self) -> int:
        """Number of devices, 0 without the plugin."""
        backend = self._backend()
        return 0 if backend is None else backend.device_count()

    def current_device(self) -> int:
        """Index of the current device."""
        index: int = self._present().check_device(None)
        return index

    def set_device(self, device: Any) -> None:
        """Make a device the current one; None and -1 change nothing.

        Raises :class:`DeviceError` where the backend has several and no ``set_current_device``.
        """
        if device is None or device == -1:
            return
        index = self._index(device)
        if index != self.current_device():
            self._asked("set_current_device", index)

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """A block in which ``device`` is the current one. None and -1 change nothing."""
        if device is None or device == -1:
            yield
            return
        with self._present().on(self._index(device)):
            yield

    def synchronize(self, device: Any = None) -> None:
        """Wait until the device has done all its work; raises what went wrong in it."""
        self._present().synchronize(self._index(device))

    def get_device_name(self, device: Any = None) -> str:
        """The backend's name for the device."""
        name: str = self._present().device_name(self._index(device))
        return name

    def _count(self, name: str, device: Any) -> int:
        count: int = self._present().memory(self._index(device)).get(name, 0)
        return count

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in use by arrays, as far as the backend knows; else 0."""
        return self._count("allocated", device)

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes held by the memory pool, as far as the backend knows; else 0."""
        return self._count("reserved", device)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total bytes. Raises :class:`DeviceError` where the backend does not know."""
        known = self._present().memory(self._index(device))
        if "total" not in known:
            raise DeviceError(
                f"the backend {self._key!r} does not say how much memory it has",
                fix="its memory() is to have 'total' and 'allocated' or 'reserved'",
            )
        used = known.get("reserved", known.get("allocated", 0))
        return known["total"] - used, known["total"]

    def empty_cache(self) -> None:
        """Give unused memory of the pool back, where the backend has one to empty."""
        method = getattr(self._present(), "empty_cache", None)
        if method is not None:
            method()

    def _generator(self, device: Any = None) -> Generator:
        return default_generator(Device(self._key, self._index(device)))

    def manual_seed(self, seed: int) -> None:
        """Seed the default generator of the current device; nothing to do where there is none."""
        if self.is_available():
            self._generator().manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the default generators of all devices."""
        for index in range(self.device_count()):
            self._generator(index).manual_seed(seed)

    def initial_seed(self) -> int:
        """The seed of the current device's generator."""
        return self._generator().initial_seed()

    def get_rng_state(self, device: Any = None) -> Any:
        """The state of the default generator of a device (the current one), a uint8 tensor."""
        return self._generator(device).get_state()

    def set_rng_state(self, new_state: Any, device: Any = None) -> None:
        """Put a device's default generator into a state that ``get_rng_state`` returned."""
        self._generator(device).set_state(new_state)


_MODULES: dict[str, DeviceModule] = {}


@functools.cache
def _installed() -> frozenset[str]:
    """The names of the plugins that are installed, loaded or not."""
    return frozenset(point.name for point in metadata.entry_points(group=GROUP))


def module_of_plugin(key: str) -> DeviceModule | None:
    """``cd.KEY`` where a plugin brings the backend ``key``, which is loaded if need be."""
    if key == "meta":
        return None
    if key not in TABLE.snapshot.backends and key in _installed():
        plugins.discover()
    if key not in TABLE.snapshot.backends:
        return None
    return _MODULES.setdefault(key, DeviceModule(key))


def get_device_module(device: Any = None) -> Any:
    """``cd.cuda`` for a device of ``"cuda"``, ``cd.cpu`` for the CPU, and so on.

    None is the accelerator, and the CPU where there is none. Raises RuntimeError for anything but a
    device or its name, and for a device without such a module.
    """
    import coredispatch

    if device is None:
        from coredispatch.frontend.accelerator import current_accelerator

        device = current_accelerator() or "cpu"
    if not isinstance(device, (str, Device)):
        raise DeviceError(
            f"Invalid value of device '{device}', expect torch.device, str, or None",
            fix="pass 'cpu', or a device",
        )
    key = Device(device).type
    plugins.discover()
    module = getattr(coredispatch, key, None)
    if not isinstance(module, ModuleType):
        raise DeviceError(
            f"Device '{key}' does not have a corresponding module registered as 'torch.{key}'.",
            fix=plugins.hint_for_key(key),
        )
    return module
