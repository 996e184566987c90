"""``cd.accelerator``: the device beside the CPU, whichever it is: CUDA, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend import cuda
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


def is_available() -> bool:
    """Whether a CUDA device is there."""
    return cuda.is_available()


def device_count() -> int:
    """Number of CUDA devices."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """``device("cuda")`` where a CUDA device is there, else None."""
    return Device("cuda") if cuda.is_available() else None


def _present() -> None:
    if not cuda.is_available():
        raise DeviceError("there is no accelerator", fix="ask accelerator.is_available() first")


def current_device_index() -> int:
    """The index of the current device. Raises RuntimeError without an accelerator."""
    _present()
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Make ``device`` (a number, a device or its name) the current one."""
    _present()
    cuda.set_device(device)


set_device_idx = set_device_index


class device_index:
    """``with device_index(1):`` the current device is number 1; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        _present()
        self._wanted, self._before = device, 0

    def __enter__(self) -> None:
        self._before = cuda.current_device()
        if self._wanted is not None:
            cuda.set_device(self._wanted)

    def __exit__(self, *error: object) -> None:
        cuda.set_device(self._before)


def _of_cuda(name: str, doc: str, theirs: str = "") -> Callable[..., Any]:
    """The function of :mod:`coredispatch.cuda` for the accelerator; refused without one."""

    def function(device: Any = None, /) -> Any:
        _present()
        return getattr(cuda, theirs or name)(device)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"{doc} Raises RuntimeError without an accelerator."
    return function


current_stream = _of_cuda("current_stream", "The stream that the device's work goes to.")
get_device_capability = _of_cuda("get_device_capability", "The device's compute capability.")
get_memory_info = _of_cuda("get_memory_info", "Free and total bytes of the device.", "mem_get_info")
memory_allocated = _of_cuda("memory_allocated", "Bytes that tensors hold on the device.")
memory_reserved = _of_cuda("memory_reserved", "Bytes that the pool holds on the device.")
max_memory_allocated = _of_cuda("max_memory_allocated", "The most that tensors held at once.")
max_memory_reserved = _of_cuda("max_memory_reserved", "The most that the pool held at once.")
memory_stats = _of_cuda("memory_stats", "The pool's counters by name.")
reset_peak_memory_stats = _of_cuda("reset_peak_memory_stats", "Count the peaks from here on.")
reset_accumulated_memory_stats = _of_cuda(
    "reset_accumulated_memory_stats", "Count what is summed from here on."
)


def empty_cache() -> None:
    """Give the pool's unused memory back. Raises RuntimeError without an accelerator."""
    _present()
    cuda.empty_cache()


def set_stream(stream: Any) -> None:
    """Send the device's work to ``stream``. Raises RuntimeError without an accelerator."""
    _present()
    cuda.set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait for the device. Raises RuntimeError without an accelerator."""
    _present()
    cuda.synchronize(device)
