"""NumPy kernels of the family ``reduction``: sums, extrema, scans, sorting and searching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy.reduction import sorting, sums

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {**sums.KERNELS, **sorting.KERNELS}
