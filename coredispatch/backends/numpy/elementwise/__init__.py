"""NumPy kernels of the family ``elementwise``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy.elementwise import pointwise

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {**pointwise.KERNELS}
