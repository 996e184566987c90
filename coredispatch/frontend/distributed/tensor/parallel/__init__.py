"""Tensor parallelism: layers whose weights lie in parts on the ranks of a mesh."""

from __future__ import annotations

from coredispatch.frontend.distributed.tensor.parallel.styles import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "parallelize_module"]
