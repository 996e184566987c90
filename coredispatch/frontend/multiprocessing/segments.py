"""Memory that several processes see.

A segment is a file without a place on any disk, mapped into memory. With the strategy
``file_descriptor`` it has no name either: it is gone when the last process that has it open ends,
however that ends. With ``file_system`` it has a name below ``/dev/shm`` and a count of the
processes that use it, and takes no file descriptor; what killed processes left is removed by
Python's resource tracker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import struct
import sys
import weakref
from collections.abc import Iterator
from multiprocessing.util import Finalize, register_after_fork
from typing import Any

import numpy as np

from coredispatch.frontend.memory_spans import bytes_between, owner_behind

try:
    import _posixshmem  # type: ignore[import-not-found]
    import fcntl
except ImportError:  # Windows
    _posixshmem = None
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Segment",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "new_segment",
    "segment_of",
    "set_sharing_strategy",
]

_PREFIX = "/coredispatch_"
_COUNT = struct.Struct("<q")  # behind the bytes of a segment with a name: who uses it
_READ_WRITE, _SHARED = 3, 1  # of mmap(2)

_ALL = {"file_system"} if sys.platform == "darwin" else {"file_descriptor", "file_system"}
_strategy = ["file_system" if sys.platform == "darwin" else "file_descriptor"]


def set_sharing_strategy(new_strategy: str) -> None:
    """How tensors get to other processes: ``"file_descriptor"`` or ``"file_system"``.

    The first leaves nothing behind whatever happens, and takes an open file for each shared
    storage; the second takes none.
    """
    if new_strategy not in _ALL:
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {sorted(_ALL)}"
        )
    _strategy[0] = new_strategy


def get_sharing_strategy() -> str:
    """The strategy in force."""
    return _strategy[0]


def get_all_sharing_strategies() -> set[str]:
    """The strategies that this system has."""
    return set(_ALL)


class Segment:
    """Mapped memory: as long as an array over it lives, so does the mapping.

    Attributes:
        size: bytes.
        name: below ``/dev/shm``, or None.
        number: of the open file, -1 for a segment with a name.
    """

    def __init__(self, number: int, size: int, name: str | None = None) -> None:
        self.size = size
        self.name = name
        length = size + (_COUNT.size if name is not None else 0)
        try:
            address = _map(number, length)
        finally:
            if name is not None:
                os.close(number)
        self.number = -1 if name is not None else number
        self._address = address
        weakref.finalize(self, _release, address, length, self.number, name).atexit = False
        if name is not None:
            _named.add(self)
        else:
            status = os.fstat(number)
            _open[status.st_dev, status.st_ino] = self

    @property
    def memory(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes, as an array that holds the segment."""
        return bytes_between(self._address, self._address + self.size, self, writeable=True)


_open: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()
_named: weakref.WeakSet[Segment] = weakref.WeakSet()


_made: set[str] = set()  # names of segments that this process itself made


class _Names(set[str]):
    """A set that can be referred to weakly."""


_left = _Names()  # names that this process, which is ending, has given up


def new_segment(size: int) -> Segment:
    """A segment with `size` bytes of 0, made as :func:`get_sharing_strategy` says."""
    if fcntl is None:
        raise NotImplementedError(
            "memory shared between processes needs a POSIX system; send tensors as NumPy arrays"
        )
    if get_sharing_strategy() == "file_descriptor":
        number = _nameless()
        try:
            os.ftruncate(number, size)
            return Segment(number, size)
        except BaseException:
            os.close(number)
            raise
    from multiprocessing import resource_tracker

    name = f"{_PREFIX}{os.getpid()}_{secrets.token_hex(8)}"
    number = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    resource_tracker.register(name, "shared_memory")
    _made.add(name)
    os.ftruncate(number, size + _COUNT.size)
    os.pwrite(number, _COUNT.pack(1), size)
    return Segment(number, size, name)


def opened(number: int, size: int) -> Segment:
    """The segment of a file that another process sent; `number` belongs to it from now on.

    Raises:
        ValueError: the file is not as large as it should be.
    """
    status = os.fstat(number)
    found = _open.get((status.st_dev, status.st_ino))
    if found is not None or status.st_size < size:
        os.close(number)
    if found is not None:
        return found
    if status.st_size < size:
        raise ValueError(f"a shared segment has {status.st_size} bytes, not {size}")
    return Segment(number, size)


def opened_by_name(name: str, size: int) -> Segment:
    """The segment of that name, which :func:`count_up` has counted for this process."""
    for found in list(_named):
        if found.name == name:
            _count(name, size, -1)
            return found
    return Segment(_posixshmem.shm_open(name, os.O_RDWR, 0o600), size, name)


def count_up(segment: Segment) -> None:
    """Count one more user of a segment with a name, which is on its way there."""
    assert segment.name is not None
    _count(segment.name, segment.size, 1)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("coredispatch", os.MFD_CLOEXEC)
    name = f"{_PREFIX}{os.getpid()}_{secrets.token_hex(8)}"
    number: int = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    _posixshmem.shm_unlink(name)
    return number


# -- mapping: Python's own mmap would hold a second file descriptor ------------------------------


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        *[ctypes.c_int] * 3,
        ctypes.c_int64,
    ]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _map(number: int, length: int) -> int:
    address = _libc().mmap(None, length, _READ_WRITE, _SHARED, number, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {length} bytes of shared memory: {os.strerror(code)}")
    return int(address)


def _release(address: int, length: int, number: int, name: str | None) -> None:
    _libc().munmap(address, length)
    if number >= 0:
        os.close(number)
    if name is not None and name not in _left:
        _give_up(name, length - _COUNT.size)


# -- counting the users of segments with a name --------------------------------------------------


@contextlib.contextmanager
def _locked(name: str) -> Iterator[int]:
    number = _posixshmem.shm_open(name, os.O_RDWR, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield number
    finally:
        os.close(number)


def _count(name: str, size: int, change: int) -> None:
    with _locked(name) as number:
        (users,) = _COUNT.unpack(os.pread(number, _COUNT.size, size))
        os.pwrite(number, _COUNT.pack(users + change), size)
        if users + change <= 0:
            _posixshmem.shm_unlink(name)


def _give_up(name: str, size: int) -> None:
    """Count one user less: this process."""
    if name in _made:
        # Only who made it has told a tracker; other processes may have another tracker.
        from multiprocessing import resource_tracker

        _made.discard(name)
        resource_tracker.unregister(name, "shared_memory")
    with contextlib.suppress(FileNotFoundError):
        _count(name, size, -1)


def _count_for_child() -> None:
    for segment in list(_named):
        with contextlib.suppress(OSError):
            count_up(segment)


def _release_all() -> None:
    """At the end of a process arrays may live on; their segments are not needed any more."""
    for segment in list(_named):
        assert segment.name is not None
        _left.add(segment.name)
        with contextlib.suppress(OSError):
            _give_up(segment.name, segment.size)


def _release_at_end(_: Any = None) -> None:
    # Unlike atexit, it also runs at the end of multiprocessing's children.
    Finalize(None, _release_all, exitpriority=-1000)


if fcntl is not None:
    os.register_at_fork(before=_count_for_child, after_in_child=_made.clear)
    _release_at_end()
    register_after_fork(_left, _release_at_end)  # children forget their parent's finalizers


def segment_of(array: np.ndarray[Any, Any]) -> Segment | None:
    """The segment that an array lies in, or None."""
    owner = owner_behind(array)
    return owner if isinstance(owner, Segment) else None
