"""Array-API kernels of the family ``nn``: affine maps, embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.nn import embedding, linear

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    return {**embedding.kernels(xp), **linear.kernels(xp)}
