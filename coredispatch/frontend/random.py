"""Random number generators as users see them: ``cd.random``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.frontend.creation import from_numpy
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.generator import Generator, default_generator, manual_seed
from coredispatch.registry.wiring import HOOKS

if TYPE_CHECKING:
    from coredispatch.frontend.tensor import Tensor

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def seed() -> int:
    """Seed the default generators from the operating system; returns the seed."""
    found = default_generator().seed()
    manual_seed(found)
    return found


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a uint8 tensor."""
    state: Tensor = default_generator().get_state()
    return state


def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state that :func:`get_rng_state` returned."""
    default_generator().set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Iterable[Device | str] = (), enabled: bool = True) -> Iterator[None]:
    """Leave the default generators of the CPU and of ``devices`` as they were before the block."""
    generators = [default_generator(), *map(default_generator, devices)] if enabled else []
    states = [g.state_bytes() for g in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.load_state_bytes(state)


def _to_tensor(state: bytes) -> Any:
    return from_numpy(np.frombuffer(state, np.uint8).copy())


def _from_tensor(state: Any) -> bytes:
    return bytes(np.asarray(state.numpy(force=True), np.uint8).tobytes())


HOOKS.bytes_to_tensor = _to_tensor
HOOKS.tensor_to_bytes = _from_tensor
