"""Random numbers drawn on the device, in streams that can be saved and restored."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, OpError
from coredispatch_cuda_cupy import capture
from coredispatch_cuda_cupy.sharing import Order

__all__ = ["CapturedDraws", "DeviceStream"]

_OFFSET = 8  # bytes of a state before those of cuRAND


class DeviceStream:
    """CuPy's generator (cuRAND XORWOW) with the methods that coredispatch draws with.

    The same seed gives the same numbers on devices with equally many multiprocessors: cuRAND
    keeps one state for each thread, and CuPy runs as many as fill the device. Dropout draws by
    Philox instead, whose numbers are a function of seed and offset on every device
    (:meth:`take`).

    The states are one array, which each draw reads and writes: a draw on another stream than the
    last one waits for that, on the device.
    """

    def __init__(self, cupy: Any, seed: int) -> None:
        self._cupy = cupy
        self._seed = seed
        self._offset = 0
        self._made: Any = None
        self._order = Order(cupy)
        self._lock = threading.Lock()

    @property
    def _generator(self) -> Any:
        """CuPy's, whose states are made when it is used first.

        Raises :class:`OpError` where that is in the capture of a graph: each replay would make the
        states anew, and draw the same numbers.
        """
        graph = capture.current()
        with self._lock:
            if self._made is None:
                if graph is not None:
                    raise OpError(
                        "a generator that has drawn nothing yet cannot draw in a captured graph",
                        fix="draw a number with it before the capture",
                    )
                self._made = self._cupy.random.default_rng(self._seed)
            if graph is None:
                self._order.follow()
            else:
                graph.generators[id(self._made)] = self, self._made
            return self._made

    def follow(self) -> None:
        """Let the current stream, on which a graph draws next, wait for the last draw."""
        with self._lock:
            self._order.follow()

    def prepare(self) -> None:
        """Make the states now, where a capture is to draw with them."""
        _ = self._generator

    def take(self, draws: int) -> tuple[int, int]:
        """Seed, and offset of the first one, for draws by Philox, as signed 64-bit numbers."""
        with self._lock:
            offset = self._offset
            self._offset += draws
        seed = self._seed
        return seed - (1 << 64) if seed >> 63 else seed, offset

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
        """The offset of Philox, and the states of all threads of CuPy's generator, if used."""
        offset = self._offset.to_bytes(_OFFSET, "little")
        if self._made is None:
            return offset
        return offset + bytes(self._cupy.asnumpy(self._generator.bit_generator._state).tobytes())

    def restore(self, state: bytes) -> None:
        """Go on from where :meth:`state` was taken.

        Raises :class:`ArgumentError` for a state taken on a device of another size.
        """
        offset, rest = state[:_OFFSET], state[_OFFSET:]
        if rest or len(offset) != _OFFSET:
            own = self._generator.bit_generator._state
            if len(rest) != own.nbytes:
                raise ArgumentError(
                    f"this random state has {len(state)} bytes, this device needs "
                    f"{_OFFSET + own.nbytes}",
                    fix="restore it on the kind of device it was saved on, or seed anew",
                )
            own[...] = self._cupy.asarray(np.frombuffer(rest, dtype=np.int8))
        else:
            self._made = None
        self._offset = int.from_bytes(offset, "little")


class CapturedDraws:
    """Draws by Philox in a captured graph, whose seed and offset lie on the device.

    Each replay goes on with the generator as it is then: the numbers are those of as many draws
    without a graph, also behind a ``manual_seed``.
    """

    def __init__(self, cupy: Any, generator: Any) -> None:
        self._cupy, self._generator = cupy, generator
        #: seed and offset of the first draw
        self.base = capture.lasting(cupy, 2)
        self.count = 0
        self._seed: int | None = None

    def next(self) -> tuple[Any, int]:
        """Where seed and offset lie, and the number of the next draw from that offset on."""
        self.count += 1
        return self.base, self.count - 1

    def advance(self) -> None:
        """Write seed and offset for the replay that comes next on the current stream."""
        stream = self._generator.stream(lambda seed: DeviceStream(self._cupy, seed))
        seed, offset = stream.take(self.count)
        if seed != self._seed:
            self.base[0], self._seed = seed, seed
        self.base[1] = offset
