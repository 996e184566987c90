"""Random number generators as users see them: ``cd.random``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.frontend.creation import from_numpy
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import uint8
from coredispatch.registry.model.errors import DeviceError, DTypeError
from coredispatch.registry.model.generator import Generator, manual_seed
from coredispatch.registry.model.generator import default_generator as _default_generator
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
    "thread_safe_generator",
]

#: the generator of the CPU, which calls without ``generator=`` draw from
default_generator: Generator


def __getattr__(name: str) -> Any:
    if name == "default_generator":  # NumPy's module of generators is imported on first use
        return _default_generator()
    raise AttributeError(f"module 'coredispatch.random' has no attribute {name!r}")


def seed() -> int:
    """Seed the default generators from the operating system; returns the seed."""
    found = _default_generator().seed()
    manual_seed(found)
    return found


def initial_seed() -> int:
    """The seed of the default generator."""
    return _default_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a uint8 tensor."""
    state: Tensor = _default_generator().get_state()
    return state


def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state that :func:`get_rng_state` returned."""
    _default_generator().set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Device | str | int] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Leave the default generators of the CPU and of ``devices`` as they were before the block.

    Args:
        devices: devices, or their numbers among those of ``device_type``; all of them by default.
        enabled: False leaves everything as it is.
        device_type: whose devices the numbers mean, ``"cuda"`` by default. Raises
            :class:`DeviceError` where nobody brings that key.
    """
    if not enabled:
        yield
        return
    generators = [_default_generator(), *_generators(devices, device_type)]
    states = [g.state_bytes() for g in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.load_state_bytes(state)


def _generators(
    devices: Iterable[Device | str | int] | None, device_type: str | None
) -> list[Generator]:
    """The default generators of the devices beside the CPU."""
    kind = "cuda" if device_type is None else device_type
    plugins.discover()
    found = TABLE.snapshot.backends.get(kind)
    if device_type is not None and found is None:
        raise DeviceError(
            f"fork_rng: there is no device type {device_type!r}", fix=plugins.hint_for_key(kind)
        )
    if devices is None:
        count = 0 if found is None or kind == "cpu" else found[0].device_count()
        devices = range(count)
    named = [Device(kind, d) if isinstance(d, int) else Device(d) for d in devices]
    return [_default_generator(device) for device in named]


def thread_safe_generator() -> Generator | None:
    """The generator of a DataLoader's worker thread.

    Workers are processes here, each with generators of its own: None, which means those.
    """
    return None


def _to_tensor(state: bytes) -> Any:
    return from_numpy(np.frombuffer(state, np.uint8).copy())


def _from_tensor(state: Any) -> bytes:
    if not hasattr(state, "is_floating_point") or state.dtype is not uint8:
        kind = getattr(state, "dtype", type(state).__name__)
        raise DTypeError(
            f"the state of a generator is a uint8 tensor, not {kind}", fix="use get_state()"
        )
    return bytes(np.asarray(state.numpy(force=True), np.uint8).tobytes())


HOOKS.bytes_to_tensor = _to_tensor
HOOKS.tensor_to_bytes = _from_tensor
