"""Half precision computed in float32: the two ends of such a computation."""

from __future__ import annotations

from coredispatch.ops.support.annotations import Tensor
from coredispatch.registry.model.dtypes import float32

__all__ = ["narrow", "wide"]


def wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; everything else as it is."""
    return x.to(float32) if x.dtype.is_floating_point and x.dtype.itemsize == 2 else x


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """``x`` in the dtype of ``like``."""
    return x if x.dtype is like.dtype else x.to(like.dtype)
