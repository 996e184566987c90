"""NumPy kernels of the families ``shape`` and ``creation`` that look at, move or copy memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy.shape import copying, rearranging, views

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {**views.KERNELS, **rearranging.KERNELS, **copying.KERNELS}
