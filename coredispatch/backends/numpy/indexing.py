"""NumPy kernels of the indexing family: subscripts, and the gather and scatter ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy import scatter, subscript

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {**subscript.KERNELS, **scatter.KERNELS}
