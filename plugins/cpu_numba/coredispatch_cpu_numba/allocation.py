"""Freed memory stays with the process, so that the next step need not ask for it again.

glibc gives large blocks back to the system as soon as they are freed. A step of training that makes
some megabytes of temporaries then pays for each page anew: an LSTM over 50 steps of 32 sequences
takes 8.1 ms with, 4.9 ms without these page faults. A user who sets one of glibc's own
variables has decided otherwise.
"""

from __future__ import annotations

import os
from functools import cache

from coredispatch.plugin import keep_freed_memory as keep

__all__ = ["keep_freed_memory"]

_KEPT = 256 << 20
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Keep up to 256 MiB, once; False where that is not for us to say."""
    if any(os.environ.get(name) for name in _VARIABLES):
        return False
    return keep(_KEPT)
