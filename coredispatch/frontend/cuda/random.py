"""Random number generators of CUDA devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coredispatch.frontend.cuda.devices import backend_or_none, device_count, device_index, present
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.generator import Generator, default_generator

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def generator_of(device: Any = None) -> Generator:
    """The default generator of a device, the current one by default."""
    return default_generator(Device("cuda", device_index(device)))


def get_rng_state(device: Any = None) -> Any:
    """The state of the default generator of a device (the current one), a uint8 tensor."""
    return generator_of(device).get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Put a device's default generator into a state that :func:`get_rng_state` returned."""
    generator_of(device).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of the default generators of all devices; empty without a device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Put the default generators of devices 0, 1, ... into these states."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _count() -> int:
    """Devices that draw numbers in this process: none in one that was forked."""
    return 0 if getattr(backend_or_none(), "forked", False) else device_count()


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device; nothing to do where there is none."""
    if _count():
        generator_of().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all CUDA devices; nothing to do where there is none."""
    for index in range(_count()):
        generator_of(index).manual_seed(seed)


def seed() -> None:
    """Seed the current device's generator from the operating system; nothing without a device."""
    if _count():
        generator_of().seed()


def seed_all() -> None:
    """Seed the generators of all devices with one number from the operating system."""
    if _count():
        manual_seed_all(generator_of(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator. Refuses without a device."""
    present()
    return generator_of().initial_seed()


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return tuple(generator_of(index) for index in range(device_count()))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
