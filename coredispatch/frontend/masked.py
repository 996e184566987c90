"""``cd.masked``: programs import it; there are no masked tensors yet."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_class, announced_function

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]

_FIX = "keep the mask beside the data: where(mask, x, 0)"

MaskedTensor = announced_class("masked.MaskedTensor", _FIX)
masked_tensor = announced_function("masked.masked_tensor", _FIX)
as_masked_tensor = announced_function("masked.as_masked_tensor", _FIX)


def is_masked_tensor(obj: Any, /) -> bool:
    """False: there are none."""
    return False
