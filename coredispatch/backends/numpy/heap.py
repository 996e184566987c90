"""The heap that NumPy's arrays lie in: what it holds, and how much of what is freed it keeps.

The pool of buffers on the CPU is glibc's heap. A buffer that is freed stays with the process and is
taken again, whoever frees it: a view, an array that another library was given, another thread.
Other C libraries have neither the statistics nor the settings.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any, NamedTuple

__all__ = ["MOST", "Heap", "keep", "keep_unless_told", "kept", "state", "trim"]

#: the most that can be kept: mallopt takes an int
MOST = 2**31 - 1

# Numbers of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20  # the most that glibc takes for the second
_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class Heap(NamedTuple):
    """What the heap holds, in bytes.

    Attributes:
        allocated: blocks in use, of the whole process: arrays, and Python's own objects
        reserved: what the heap has from the system, blocks in use and blocks kept
        mapped: blocks in use that are mapped one by one and given back when they are freed
    """

    allocated: int
    reserved: int
    mapped: int


@cache
def _glibc() -> Any:
    """glibc, None where the C library is another or older than 2.33."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not all(hasattr(library, name) for name in ("mallinfo2", "malloc_trim", "mallopt")):
        return None
    library.mallinfo2.restype = _Mallinfo2
    library.malloc_trim.argtypes = [ctypes.c_size_t]
    return library


def state() -> Heap | None:
    """What the heap holds now; None where the C library does not tell."""
    library = _glibc()
    if library is None:
        return None
    info = library.mallinfo2()
    return Heap(info.uordblks + info.hblkhd, info.arena + info.hblkhd, info.hblkhd)


def trim(left: int = 0) -> bool:
    """Give what is kept back to the system, but for ``left`` bytes; whether anything was given."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(left))


_kept: int | None = None


def keep(size: int) -> bool:
    """Keep up to ``size`` bytes of what is freed from now on; whether the C library does so."""
    global _kept
    library = _glibc()
    if library is None or not library.mallopt(_TRIM_THRESHOLD, size):
        return False
    # Larger blocks are mapped and given back; so is every block where nothing is to be kept.
    library.mallopt(_MMAP_THRESHOLD, min(max(size, 128 << 10), _LARGEST))
    _kept = size
    return True


def keep_unless_told(size: int) -> bool:
    """:func:`keep` for a plugin: a program that has said how much before has its way."""
    return _kept is not None or keep(size)


def kept() -> int | None:
    """How much may be kept, as :func:`keep` was told; None before."""
    return _kept
