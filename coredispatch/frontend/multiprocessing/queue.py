"""Python's queues, which send tensors as shared memory (see :mod:`.reductions`)."""

from __future__ import annotations

from multiprocessing.queues import Queue, SimpleQueue

__all__ = ["Queue", "SimpleQueue"]
