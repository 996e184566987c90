"""``cd.accelerator``: the device beside the CPU, whichever it is: CUDA, or none."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import cuda
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import DeviceError

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "is_available",
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


def synchronize(device: Any = None, /) -> None:
    """Wait for the device. Raises RuntimeError without an accelerator."""
    _present()
    cuda.synchronize(device)
