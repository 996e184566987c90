"""Random number generators: a seed, and a stream that the backend makes of it.

The framework decides when a stream is seeded, saved and restored; what draws the numbers is
the backend's own. A stream is any object with ``state() -> bytes`` and ``restore(bytes)``; a
backend that cannot save its streams leaves these two out.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import ArgumentError, OpError
from coredispatch.registry.wiring import HOOKS

__all__ = ["DEFAULT_SEED", "Generator", "default_generator", "manual_seed"]

DEFAULT_SEED: Final = 67280421310721  # PyTorch's
_MAGIC: Final = b"cdrng1"


class Generator:
    """A source of random numbers on one device.

    Args:
        device: the device whose backend draws the numbers, the CPU by default.

    Two generators with the same seed on the same device give the same numbers to the same
    calls; nothing is promised across devices or releases. Calls from several threads are safe,
    but in what order they draw is not determined. Raises :class:`DeviceError` for a device that
    is not there.
    """

    def __init__(self, device: Device | str | None = "cpu") -> None:
        self.device = (
            device if isinstance(device, Device) else Device("cpu" if device is None else device)
        )
        if self.device.type != "cpu" or self.device.index:
            HOOKS.device_bit(self.device)  # refuses a device that is not there
        self._seed = DEFAULT_SEED
        self._stream: Any = None
        self._pending: bytes | None = None  # a state that waits for the stream to exist
        self._lock = threading.Lock()

    def manual_seed(self, seed: int) -> Generator:
        """Start over from ``seed``, an integer of at most 64 bits; returns the generator."""
        try:
            seed = operator.index(seed)
        except TypeError:
            raise ArgumentError(
                f"manual_seed expected a long, but got {type(seed).__name__}", fix="pass an int"
            ) from None
        if not -(1 << 63) <= seed < 1 << 64:
            raise ArgumentError(f"seed {seed} does not fit 64 bits", fix="use seed % 2**64")
        with self._lock:
            self._seed = seed % (1 << 64)
            self._stream = self._pending = None
        return self

    def seed(self) -> int:
        """Start over from a seed that the operating system picks; returns it."""
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed the generator was last started from."""
        return self._seed

    def stream(self, make: Callable[[int], Any]) -> Any:
        """The backend's stream, made by ``make(seed)`` on first use after seeding."""
        stream = self._stream
        if stream is None:
            with self._lock:
                if self._stream is None:
                    stream = make(self._seed)
                    if self._pending is not None:
                        stream.restore(self._pending)
                        self._pending = None
                    self._stream = stream
                stream = self._stream
        return stream

    def state_bytes(self) -> bytes:
        """Seed and position as bytes; raises :class:`OpError` where a stream cannot be saved."""
        with self._lock:
            return self._bytes()

    def _bytes(self) -> bytes:
        if self._stream is None:
            position = self._pending or b""
        elif hasattr(self._stream, "state"):
            position = self._stream.state()
        else:
            raise OpError(f"the {self.device} backend cannot save its random streams")
        return _MAGIC + self._seed.to_bytes(8, "little") + position

    def load_state_bytes(self, state: bytes) -> None:
        """Go back to what :meth:`state_bytes` described."""
        if state[: len(_MAGIC)] != _MAGIC or len(state) < len(_MAGIC) + 8:
            raise ArgumentError("this is not the state of a generator", fix="use get_state()")
        with self._lock:
            self._load(state)

    def exchange_state(self, expected: bytes, state: bytes) -> None:
        """:meth:`load_state_bytes`, if the generator still stands at ``expected``."""
        with self._lock:
            if self._bytes() == expected:
                self._load(state)

    def _load(self, state: bytes) -> None:
        start = len(_MAGIC) + 8
        self._seed = int.from_bytes(state[len(_MAGIC) : start], "little")
        self._stream = None
        self._pending = state[start:] or None

    def get_state(self) -> Any:
        """Seed and position as a uint8 tensor on the CPU."""
        return HOOKS.bytes_to_tensor(self.state_bytes())

    def set_state(self, state: Any) -> None:
        """Go back to what :meth:`get_state` returned; raises :class:`ArgumentError` otherwise."""
        self.load_state_bytes(HOOKS.tensor_to_bytes(state))

    def clone_state(self) -> Generator:
        """A second generator that goes on where this one stands."""
        twin = Generator(self.device)
        twin.load_state_bytes(self.state_bytes())
        return twin

    def get_offset(self) -> int:
        """Refused: streams here have a state, and no offset in it."""
        raise OpError(f"the {self.device} generator does not use offset", fix="use get_state()")

    def set_offset(self, offset: int) -> None:
        """Refused: streams here have a state, and no offset in it."""
        raise OpError(f"the {self.device} generator does not use offset", fix="use set_state()")

    def graphsafe_get_state(self) -> Generator:
        """Not available: graphs move the states of generators on by themselves."""
        raise NotImplementedError("graphsafe_get_state: use get_state() or clone_state()")

    def graphsafe_set_state(self, state: Generator) -> None:
        """Not available: graphs move the states of generators on by themselves."""
        raise NotImplementedError("graphsafe_set_state: use set_state()")

    def __getstate__(self) -> dict[str, Any]:
        return {"device": str(self.device), "state": self.state_bytes()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["device"])  # type: ignore[misc]
        self.load_state_bytes(saved["state"])

    def __repr__(self) -> str:
        return f"<Generator device={self.device} seed={self._seed}>"


_defaults: dict[tuple[str, int], Generator] = {}
_defaults_lock = threading.Lock()
_process_seed = [DEFAULT_SEED]


def default_generator(device: Device | str | None = None) -> Generator:
    """The generator that calls without ``generator=`` draw from, one for each device.

    A device without an index is the current one of its kind.
    """
    if device is None:
        key = ("cpu", 0)
    else:
        device = device if isinstance(device, Device) else Device(device)
        index = HOOKS.current_index(device.type) if device.index is None else device.index
        key = (device.type, index)
    found = _defaults.get(key)
    if found is None:
        with _defaults_lock:
            found = _defaults.get(key)
            if found is None:
                where = Device(key[0]) if key[0] == "cpu" else Device(*key)
                found = _defaults[key] = Generator(where).manual_seed(_process_seed[0])
    return found


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices, also those not used yet.

    Returns the CPU's. Raises :class:`ArgumentError` for more than 64 bits.
    """
    generator = default_generator()
    generator.manual_seed(seed := int(seed))
    _process_seed[0] = generator.initial_seed()
    with _defaults_lock:
        for other in _defaults.values():
            other.manual_seed(seed)
    return generator
