"""Freed memory stays with the process, so that the next step need not ask for it again.

glibc gives large blocks back to the system as soon as they are freed. A step of training that makes
some megabytes of temporaries then pays for each page anew: an LSTM over 50 steps of 32 sequences
takes 8.1 ms with, 4.9 ms without these page faults. A user who sets one of glibc's own
variables has decided otherwise.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

__all__ = ["keep_freed_memory"]

# Numbers of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST = 256 << 20, 32 << 20  # the second is the most that glibc takes
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Keep up to 256 MB, and blocks of up to 32 MB; False where that is not for us to say."""
    if sys.platform != "linux" or any(os.environ.get(name) for name in _VARIABLES):
        return False
    setter = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if setter is None:
        return False
    return bool(setter(_TRIM_THRESHOLD, _KEPT)) and bool(setter(_MMAP_THRESHOLD, _LARGEST))
