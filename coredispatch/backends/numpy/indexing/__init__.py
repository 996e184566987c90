"""NumPy kernels of the indexing family: subscripts, and the gather and scatter ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy.indexing import gather_scatter, subscripts

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {**subscripts.KERNELS, **gather_scatter.KERNELS}
