"""Optimizers over several ranks."""

from __future__ import annotations

from coredispatch.frontend.distributed.optim.apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,  # noqa: F401
    _get_in_backward_optimizers,  # noqa: F401
)
from coredispatch.frontend.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from coredispatch.frontend.distributed.optim.zero_redundancy_optimizer import (
    ZeroRedundancyOptimizer,
)

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
