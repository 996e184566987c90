"""Array-API kernels of the family ``elementwise``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.elementwise import pointwise

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    return {**pointwise.kernels(xp)}
