"""Half precision computed in float32, its two ends; references that take no wider arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.ops.support.annotations import Tensor
from coredispatch.registry.model.dtypes import float32

__all__ = ["narrow", "of_bits", "wide"]


def wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; everything else as it is."""
    return x.to(float32) if x.dtype.is_floating_point and x.dtype.itemsize == 2 else x


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """``x`` in the dtype of ``like``."""
    return x if x.dtype is like.dtype else x.to(like.dtype)


def of_bits(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a reference that is right in the dtype of its arrays alone: it is not given doubles."""
    reference.__dict__["of_bits"] = True
    return reference
