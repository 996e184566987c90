"""How PyTorch may split the product of a linear map and cross entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LinearCrossEntropyOptions"]


@dataclass
class LinearCrossEntropyOptions:
    """Options of PyTorch's chunked product; accepted, and without effect on the result."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str | None = "auto"
    acc_dtype: Any = None
