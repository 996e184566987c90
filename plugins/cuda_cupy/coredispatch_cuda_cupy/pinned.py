"""Page-locked main memory: the driver copies from and to it while the program goes on."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

import numpy as np

__all__ = ["Pinned"]


class Pinned:
    """Arrays in CuPy's pool of page-locked memory, kept until copies that use them are done.

    Args:
        cupy: the module.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self._lock = threading.Lock()
        #: (event behind a copy, the array it reads or writes), in the order of the copies
        self._used: deque[tuple[Any, Any]] = deque()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array that is not written, in row-major order."""
        self.release()
        size = math.prod(shape) * dtype.itemsize
        memory = self.cupy.cuda.alloc_pinned_memory(max(1, size))
        return np.frombuffer(memory, np.uint8)[:size].view(dtype).reshape(shape)

    def copy(self, array: Any) -> Any:
        """The array in page-locked memory: itself where it lies there."""
        if self.holds(array):
            return array
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def holds(self, array: Any) -> bool:
        """Whether the driver knows the memory of a NumPy array."""
        if not array.size:
            return False
        place = array.__array_interface__["data"][0]
        return bool(self.cupy.cuda.pinned_memory.is_memory_pinned(place))

    def until(self, event: Any, array: Any) -> None:
        """Keep ``array`` from being freed, and its memory used again, until ``event`` is done."""
        with self._lock:
            self._used.append((event, array))

    def release(self) -> None:
        """Let go of arrays whose copies are done."""
        with self._lock:
            while self._used and self._used[0][0].done:
                self._used.popleft()
