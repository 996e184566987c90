"""Array-API kernels of the indexing family: subscripts, and the gather and scatter ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.indexing import gather_scatter, subscripts

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    return {**subscripts.kernels(xp), **gather_scatter.kernels(xp)}
