"""Tensor parallelism: layers whose weights lie in parts on the ranks of a mesh."""

from __future__ import annotations

from coredispatch.frontend.distributed.tensor.parallel.plans import (
    loss_parallel,
    parallelize_module,
)
from coredispatch.frontend.distributed.tensor.parallel.preparing import (
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
)
from coredispatch.frontend.distributed.tensor.parallel.styles import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
