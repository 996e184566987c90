"""``cd.accelerator``: the device beside the CPU, whichever it is: CUDA, a plugin's own, or none.

Where there are several, it is that of the default device, else CUDA, else the one whose plugin was
loaded first. What is asked of it is asked of its module (``cd.cuda``, ``cd.mydevice``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.device_modules import get_device_module
from coredispatch.registry.around.devices import accelerator
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import DeviceError

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def _module() -> Any:
    """The module of the accelerator; DeviceError without one."""
    key = accelerator()
    if key is None:
        raise DeviceError("there is no accelerator", fix="ask accelerator.is_available() first")
    return get_device_module(key)


def is_available() -> bool:
    """Whether a device beside the CPU is there."""
    return accelerator() is not None


def device_count() -> int:
    """Number of devices of the accelerator; 0 without one."""
    key = accelerator()
    return 0 if key is None else int(get_device_module(key).device_count())


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator without an index, ``device("cuda")``; None where there is none."""
    key = accelerator()
    return None if key is None else Device(key)


def current_device_index() -> int:
    """The index of the current device. Raises RuntimeError without an accelerator."""
    index: int = _module().current_device()
    return index


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Make ``device`` (a number, a device or its name) the current one."""
    _module().set_device(device)


set_device_idx = set_device_index


class device_index:
    """``with device_index(1):`` the current device is number 1; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self._module, self._wanted = _module(), device

    def __enter__(self) -> None:
        self._block = self._module.device(self._wanted)
        self._block.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


def _of_module(name: str, doc: str, theirs: str = "") -> Callable[..., Any]:
    """The function of the accelerator's module; refused without one."""

    def function(device: Any = None, /) -> Any:
        module = _module()
        asked = getattr(module, theirs or name, None)
        if asked is None:
            raise DeviceError(f"{name}(): not a question that {module.__name__} answers")
        return asked(device)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"{doc} Raises RuntimeError without an accelerator."
    return function


current_stream = _of_module("current_stream", "The stream that the device's work goes to.")
get_device_capability = _of_module("get_device_capability", "The device's compute capability.")
get_memory_info = _of_module(
    "get_memory_info", "Free and total bytes of the device.", "mem_get_info"
)
memory_allocated = _of_module("memory_allocated", "Bytes that tensors hold on the device.")
memory_reserved = _of_module("memory_reserved", "Bytes that the pool holds on the device.")
max_memory_allocated = _of_module("max_memory_allocated", "The most that tensors held at once.")
max_memory_reserved = _of_module("max_memory_reserved", "The most that the pool held at once.")
memory_stats = _of_module("memory_stats", "The pool's counters by name.")
reset_peak_memory_stats = _of_module("reset_peak_memory_stats", "Count the peaks from here on.")
reset_accumulated_memory_stats = _of_module(
    "reset_accumulated_memory_stats", "Count what is summed from here on."
)


def empty_cache() -> None:
    """Give the pool's unused memory back. Raises RuntimeError without an accelerator."""
    _module().empty_cache()


def set_stream(stream: Any) -> None:
    """Send the device's work to ``stream``. Raises RuntimeError without an accelerator."""
    module = _module()
    if not hasattr(module, "set_stream"):
        raise DeviceError(f"{module.__name__} has no streams", fix="leave set_stream() out")
    module.set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait for the device. Raises RuntimeError without an accelerator."""
    _module().synchronize(device)
