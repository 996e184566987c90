"""Random numbers drawn on the device by cuRAND, in streams that can be saved and restored."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError

__all__ = ["DeviceStream"]


class DeviceStream:
    """CuPy's generator (cuRAND XORWOW) with the methods that coredispatch draws with.

    The same seed gives the same numbers on devices with equally many multiprocessors: cuRAND
    keeps one state for each thread, and CuPy runs as many as fill the device.
    """

    def __init__(self, cupy: Any, seed: int) -> None:
        self._cupy = cupy
        self._generator = cupy.random.default_rng(seed)

    def random(self, size: tuple[int, ...], dtype: Any) -> Any:
        """Uniform numbers in [0, 1), float32 or float64."""
        return self._generator.random(size, dtype=dtype)

    def standard_normal(self, size: tuple[int, ...], dtype: Any) -> Any:
        """Normal numbers with mean 0 and variance 1, float32 or float64."""
        return self._generator.standard_normal(size, dtype=dtype)

    def integers(self, low: int, high: int, size: tuple[int, ...], dtype: Any) -> Any:
        """Uniform integers in [low, high), int64 or uint64."""
        return self._generator.integers(low, high, size, dtype=dtype)

    def permutation(self, n: int) -> Any:
        """The numbers 0 to n - 1 in random order, int64."""
        # Sorting random keys: CuPy's own permutation() is part of its older random API.
        return self._cupy.argsort(self._generator.random((n,), dtype=np.float64))

    def state(self) -> bytes:
        """The states of all threads of the generator."""
        return bytes(self._cupy.asnumpy(self._generator.bit_generator._state).tobytes())

    def restore(self, state: bytes) -> None:
        """Go on from where :meth:`state` was taken.

        Raises :class:`ArgumentError` for a state taken on a device of another size.
        """
        own = self._generator.bit_generator._state
        if len(state) != own.nbytes:
            raise ArgumentError(
                f"this random state has {len(state)} bytes, this device needs {own.nbytes}",
                fix="restore it on the kind of device it was saved on, or seed anew",
            )
        own[...] = self._cupy.asarray(np.frombuffer(state, dtype=np.int8))
