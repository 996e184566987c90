"""Python's pool, whose queues send tensors as shared memory (see :mod:`.reductions`)."""

from __future__ import annotations

from multiprocessing.pool import Pool, ThreadPool

__all__ = ["Pool", "ThreadPool"]
