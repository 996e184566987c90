"""``cd.xpu``: questions about Intel's GPUs, for which there is no backend."""

from __future__ import annotations

from typing import Any, NoReturn

from coredispatch.registry.model.errors import DeviceError

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "synchronize",
]


def is_available() -> bool:
    """False: no plugin serves ``xpu``."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def _absent() -> NoReturn:
    raise DeviceError("there is no xpu device", fix="ask xpu.is_available() first; use 'cpu'")


def current_device() -> int:
    """Raises RuntimeError: there is no device."""
    _absent()


def get_device_name(device: Any = None) -> str:
    """Raises RuntimeError: there is no device."""
    _absent()


def synchronize(device: Any = None) -> None:
    """Raises RuntimeError: there is no device to wait for."""
    _absent()


def empty_cache() -> None:
    """Does nothing: nothing is kept."""


def manual_seed(seed: int) -> None:
    """Does nothing: there is no device."""


def manual_seed_all(seed: int) -> None:
    """Does nothing: there is no device."""
