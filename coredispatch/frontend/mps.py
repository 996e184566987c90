"""``cd.mps``: questions about Apple's GPUs, for which there is no backend."""

from __future__ import annotations

from typing import NoReturn

from coredispatch.registry.model.errors import DeviceError

__all__ = [
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "is_available",
    "manual_seed",
    "seed",
    "synchronize",
]


def is_available() -> bool:
    """False: no plugin serves ``mps``."""
    return False


def device_count() -> int:
    """0."""
    return 0


def _absent() -> NoReturn:
    raise DeviceError("there is no mps device", fix="ask mps.is_available() first; use 'cpu'")


def synchronize() -> None:
    """Raises RuntimeError: there is no device to wait for."""
    _absent()


def empty_cache() -> None:
    """Raises RuntimeError: there is no device."""
    _absent()


def current_allocated_memory() -> int:
    """Raises RuntimeError: there is no device."""
    _absent()


def driver_allocated_memory() -> int:
    """Raises RuntimeError: there is no device."""
    _absent()


def manual_seed(seed: int) -> None:
    """Does nothing: there is no device. PyTorch's does nothing without one either."""


def seed() -> None:
    """Does nothing: there is no device."""
