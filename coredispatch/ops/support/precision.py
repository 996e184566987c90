"""What is computed in a wider dtype and rounded once; references that take no wider arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.ops.support.annotations import Tensor
from coredispatch.registry.around.devices import backend_of_device
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType, float32, float64
from coredispatch.registry.model.value import Value, dtype_of

__all__ = ["narrow", "of_bits", "spacing_at_one", "terms_of", "wide", "widest"]

_SPACING = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def spacing_at_one(x: Tensor) -> float:
    """The distance from 1 to the next number of the tensor's dtype."""
    return _SPACING.get(dtype_of(x).to_real().name, 2.0**-23)


def wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; everything else as it is."""
    return x.to(float32) if x.dtype.is_floating_point and x.dtype.itemsize == 2 else x


def widest(where: Tensor | Device | None) -> DType:
    """The dtype in which approximations are computed on the device of a tensor, or on a device.

    float64; float32 where the backend has no float64, so that results are rounded more than once.
    """
    tensor: Any = where
    device = tensor.device if isinstance(where, Value) else where
    names = backend_of_device(device)[0].dtypes
    return float64 if names is None or "float64" in names else float32


def narrow(x: Tensor, like: Tensor) -> Tensor:
    """``x`` in the dtype of ``like``."""
    return x if x.dtype is like.dtype else x.to(like.dtype)


def terms_of(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function says how large the terms are whose sums are the results.

    It takes the arguments of the reference. The conformance suite asks for it where terms cancel
    whatever the signs of the inputs are: their rounding errors do not.
    """

    def keep(terms: Callable[..., Any]) -> Callable[..., Any]:
        reference.__dict__["terms"] = terms
        return terms

    return keep


def of_bits(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a reference that is right in the dtype of its arrays alone: it is not given doubles."""
    reference.__dict__["of_bits"] = True
    return reference
