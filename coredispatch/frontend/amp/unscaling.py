"""Gradients divided by the scale, and one flag for all of them: is one infinite or NaN?"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Tensor, no_grad, operator

__all__ = ["check_and_unscale_"]


def check_and_unscale_(tensors: Any, found_inf: Tensor, inv_scale: Any) -> None:
    """Multiply each tensor by ``inv_scale``; ``found_inf`` becomes 1 where one is not finite.

    All are on the device of ``found_inf``, a tensor without dimensions, and no value is read.
    """
    with no_grad():
        finite = [x.isfinite().all() for x in tensors]
        every: Any = operator("stack")(finite).all() if len(finite) > 1 else finite[0]
        found_inf.copy_(operator("maximum")(found_inf, 1 - every.to(found_inf.dtype)))
        for x in tensors:
            x.mul_(inv_scale.to(x.dtype) if isinstance(inv_scale, Tensor) else inv_scale)
