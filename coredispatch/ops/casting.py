"""Conversions that bodies start with.

The dispatcher promotes arguments for kernels; a body gets them as the caller passed them, and an
unsigned integer must not meet ``1 - x`` before it is floating.
"""

from __future__ import annotations

from typing import Any

from coredispatch.ops import late
from coredispatch.registry.dtypes import default_dtype
from coredispatch.registry.value import dtype_of


def floating(x: Any) -> Any:
    """A floating or complex tensor as it is, any other in the default floating dtype."""
    return x if dtype_of(x).category >= 2 else late.to_dtype(x, default_dtype())


def filled(like: Any, shape: Any, value: Any, dtype: Any = None) -> Any:
    """A tensor of one value with the device, and the dtype unless given, of ``like``."""
    return late.full(tuple(shape), value, dtype=dtype or dtype_of(like), device=like.device)
