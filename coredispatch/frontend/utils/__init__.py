"""``cd.utils``: the name under which PyTorch's users look for ``data`` and its relatives."""

from __future__ import annotations

from coredispatch.frontend import data
from coredispatch.frontend.utils import benchmark, checkpoint, dlpack, hooks, tensorboard
from coredispatch.frontend.utils.model_summary import summary
from coredispatch.frontend.utils.swapping import swap_tensors

__all__ = [
    "benchmark",
    "checkpoint",
    "data",
    "dlpack",
    "hooks",
    "summary",
    "swap_tensors",
    "tensorboard",
]
