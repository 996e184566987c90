"""Equal weights on ranks that are threads: they share the default generator."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import coredispatch as cd

_generator = threading.Lock()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws inside are those that follow `seed`, whatever the other ranks draw."""
    with _generator:
        cd.manual_seed(seed)
        yield
