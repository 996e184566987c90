"""``cd.masked``: reductions of what a mask lets through; there are no masked tensors yet."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_class, announced_function
from coredispatch.frontend.masked_functions import (
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)  # fmt: skip

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum",
    "is_masked_tensor", "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_FIX = "keep the mask beside the data: where(mask, x, 0)"

MaskedTensor = announced_class("masked.MaskedTensor", _FIX)
masked_tensor = announced_function("masked.masked_tensor", _FIX)
as_masked_tensor = announced_function("masked.as_masked_tensor", _FIX)


def is_masked_tensor(obj: Any, /) -> bool:
    """False: there are none."""
    return False
