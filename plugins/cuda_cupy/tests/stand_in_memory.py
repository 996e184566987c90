"""Memory of the stand-in for CuPy: pools with an arena for each stream, and pinned memory.

Freed blocks are handed out again, newest first, with what was in them. Memory is never given back
to the operating system, so that work which runs too late does wrong and does not crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from stand_in_streams import MACHINE, CUDARuntimeError, Device, State, current_stream, synchronized

__all__ = [
    "Memory", "MemoryPointer", "MemoryPool", "OutOfMemoryError", "PinnedMemoryPool",
    "UnownedMemory", "alloc", "alloc_pinned_memory", "empty_pinned", "get_allocator",
    "is_memory_pinned", "set_allocator", "using_allocator", "view_of_pinned", "HOST_POOL",
]  # fmt: skip

UNIT = 512
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


class OutOfMemoryError(MemoryError):
    """``cupy.cuda.memory.OutOfMemoryError``."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,}).")


class Buffer:
    """Bytes on a device, and their twin: what they would be if all work had run at once."""

    def __init__(self, size: int) -> None:
        self.real = np.full(size, 0xFF, np.uint8)  # NaN, or -1, until something is written
        self.twin = self.real.copy() if MACHINE.delayed else None
        self.ptr = self.real.ctypes.data
        MACHINE.buffers[self.ptr] = self


class BaseMemory:
    """A block, with ``ptr``, ``size`` and ``device_id``."""

    ptr = size = device_id = 0

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class Memory(BaseMemory):
    """A block from the driver."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, State.device
        if MACHINE.allocated[State.device] + size > MACHINE.capacity:
            raise CUDARuntimeError(OUT_OF_MEMORY, "cudaErrorMemoryAllocation: out of memory")
        MACHINE.allocated[State.device] += size
        self.buffer = Buffer(size)
        self.ptr = self.buffer.ptr

    def release(self) -> None:
        """``cudaFree``, which waits for the device."""
        synchronized("cudaFree")
        MACHINE.drain(self.device_id)
        MACHINE.allocated[self.device_id] -= self.size


class UnownedMemory(BaseMemory):
    """A block that something else keeps."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = State.device if device_id < 0 else device_id


class MemoryPointer:
    """A place in a block."""

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        if not isinstance(mem, BaseMemory):
            raise TypeError(f"Argument 'mem' has incorrect type {type(mem).__name__}")
        assert mem.ptr != 0 or offset == 0
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def copy_from_device_async(self, source: MemoryPointer, size: int, stream: Any = None) -> None:
        """Bytes of this device or another, in the order of the stream."""
        self._copied(_Copy(self, source, size), stream)

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """Bytes of pinned memory, in the order of the stream."""
        self._copied(_Copy(self, _Host(mem, size), size), stream)

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        """Bytes to pinned memory, in the order of the stream."""
        self._copied(_Copy(_Host(mem, size), self, size), stream)

    def _copied(self, copy: _Copy, stream: Any) -> None:
        stream = current_stream() if stream is None else stream
        if stream.graph is not None:
            stream.graph.calls.append(copy)
            return
        if MACHINE.delayed:
            copy.run("twin")
        stream.queue.put(copy.run)


class _Host:
    """Bytes of pinned memory, which have no twin: what reads them early reads what is there."""

    def __init__(self, place: int, size: int) -> None:
        start, block = next((s, b) for s, b in _pinned.items() if s <= place < s + b.nbytes)
        self.real = np.ndarray(size, np.uint8, block, place - start)

    @property
    def twin(self) -> np.ndarray:
        return self.real.copy()


class _Copy:
    """Bytes from one place to another, without keeping either."""

    def __init__(self, target: Any, source: Any, size: int) -> None:
        self.parts: list[tuple[Any, slice]] = []
        for pointer in (target, source):
            if isinstance(pointer, _Host):
                self.parts.append((pointer, slice(None)))
                continue
            buffer = MACHINE.buffers[pointer.mem.ptr]
            start = pointer.ptr - buffer.ptr
            self.parts.append((buffer, slice(start, start + size)))

    def run(self, kind: str = "real") -> None:
        target, source = (getattr(buffer, kind)[part] for buffer, part in self.parts)
        target[...] = source


def malloc(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


class PooledMemory(BaseMemory):
    """A block that goes back into the arena of the stream it was made on."""

    def __init__(self, chunk: Memory, home: tuple[int, int], pool: Any) -> None:
        self.chunk, self.home, self.pool = chunk, home, weakref.ref(pool)
        self.ptr, self.size, self.device_id = chunk.ptr, chunk.size, chunk.device_id

    def __del__(self) -> None:
        pool = self.pool()
        if pool is not None:
            with pool.lock:
                pool.used[self.device_id] -= self.size
            pool.arenas.setdefault(self.home, []).append(self.chunk)


class MemoryPool:
    """``cupy.cuda.MemoryPool``; it finds blocks of the very size only."""

    def __init__(self, allocator: Any = None) -> None:
        self.arenas: dict[tuple[int, int], list[Memory]] = {}
        self.lock = threading.RLock()
        self.used = [0] * MACHINE.devices
        self.total = [0] * MACHINE.devices
        self.limit = [0] * MACHINE.devices
        self.emptied = 0

    def malloc(self, size: int) -> MemoryPointer:
        if size == 0:
            return MemoryPointer(BaseMemory(), 0)
        size, device = -(-size // UNIT) * UNIT, State.device
        home = (device, current_stream().ptr)
        with self.lock:
            free = self.arenas.get(home, [])
            chunk = next((chunk for chunk in reversed(free) if chunk.size == size), None)
            if chunk is not None:
                free.remove(chunk)
            else:
                chunk = self._new(size, device)
            self.used[device] += size
        return MemoryPointer(PooledMemory(chunk, home, self), 0)

    def _new(self, size: int, device: int) -> Memory:
        limit = self.limit[device]
        for retry in (True, False):
            if not limit or self.total[device] + size <= limit:
                with contextlib.suppress(CUDARuntimeError):
                    made = Memory(size)
                    self.total[device] += size
                    return made
            if retry:
                self.free_all_blocks()
        raise OutOfMemoryError(size, self.total[device], limit)

    def free_all_blocks(self, stream: Any = None) -> None:
        self.emptied += 1
        for device, ptr in list(self.arenas):
            if device == State.device and (stream is None or stream.ptr == ptr):
                for chunk in self.arenas.pop((device, ptr)):
                    self.total[device] -= chunk.size
                    chunk.release()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        self.limit[State.device] = size or int((fraction or 0) * MACHINE.capacity)

    def get_limit(self) -> int:
        return self.limit[State.device]

    def used_bytes(self) -> int:
        return self.used[State.device]

    def total_bytes(self) -> int:
        return self.total[State.device]

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self) -> int:
        return sum(len(free) for (device, _), free in self.arenas.items() if device == State.device)


_current: list[Any] = [malloc]


def set_allocator(allocator: Any = None) -> None:
    """``cupy.cuda.set_allocator``."""
    if State.allocator is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator`")
    _current[0] = allocator or malloc


def get_allocator() -> Any:
    return State.allocator or _current[0]


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """``cupy.cuda.using_allocator``: for this thread."""
    before, State.allocator = State.allocator, allocator or malloc
    try:
        yield
    finally:
        State.allocator = before


def alloc(size: int) -> MemoryPointer:
    found = get_allocator()(size)
    if not isinstance(found, MemoryPointer):
        raise TypeError(f"Cannot convert {type(found).__name__} to MemoryPointer")
    return found


# -- pinned memory -------------------------------------------------------------------------

_pinned: dict[int, np.ndarray] = {}  # address -> block, for good


class PinnedMemoryPool:
    """``cupy.cuda.PinnedMemoryPool``; freed blocks are handed out again."""

    def __init__(self) -> None:
        self.free: list[Any] = []
        self.emptied = 0

    def malloc(self, size: int) -> Any:
        size = max(UNIT, 1 << (size - 1).bit_length())
        found = next((block for block in reversed(self.free) if block.nbytes == size), None)
        if found is None:
            found = np.full(size, 0xFF, np.uint8)
            _pinned[found.ctypes.data] = found
        else:
            self.free = [block for block in self.free if block is not found]
        return _pointer(found, self)

    def free_all_blocks(self) -> None:
        self.emptied += 1
        self.free.clear()

    def n_free_blocks(self) -> int:
        return len(self.free)


def _pointer(block: Any, pool: PinnedMemoryPool) -> Any:
    """An object with the buffer of ``block`` that gives it back to the pool when it is gone."""
    kind = ctypes.c_uint8 * block.nbytes
    made = type("PinnedMemoryPointer", (kind,), {}).from_buffer(block)  # type: ignore[attr-defined]
    made.ptr = block.ctypes.data
    weakref.finalize(made, lambda: pool.free.append(block))
    return made


def is_memory_pinned(ptr: int) -> bool:
    """Whether ``cudaPointerGetAttributes`` says host memory known to the driver."""
    return any(start <= ptr < start + block.nbytes for start, block in _pinned.items())


def view_of_pinned(array: np.ndarray) -> np.ndarray:
    """``array``, which is in pinned memory, without keeping the memory from being freed."""
    at = array.ctypes.data
    start, block = next((s, b) for s, b in _pinned.items() if s <= at < s + b.nbytes)
    return np.ndarray(array.shape, array.dtype, block, at - start, array.strides)


HOST_POOL = PinnedMemoryPool()


def alloc_pinned_memory(size: int) -> Any:
    return HOST_POOL.malloc(size)


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """``cupyx.empty_pinned``."""
    count = int(np.prod(shape, dtype=np.int64))
    dtype = np.dtype(dtype)
    memory = alloc_pinned_memory(max(1, count * dtype.itemsize))
    return np.frombuffer(memory, np.uint8)[: count * dtype.itemsize].view(dtype).reshape(shape)
