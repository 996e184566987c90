"""Gradients divided by the scale, and one flag for all of them: is one infinite or NaN?"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Tensor, are_alike, no_grad, operator

__all__ = ["check_and_unscale_"]

_unscale_each: Any = operator("unscale_each")


def check_and_unscale_(tensors: Any, found_inf: Tensor, inv_scale: Any) -> None:
    """Multiply each tensor by ``inv_scale``; ``found_inf`` becomes 1 where one is not finite.

    All are on the device of ``found_inf``, a tensor without dimensions, and no value is read.
    """
    flags = [found_inf, inv_scale] if isinstance(inv_scale, Tensor) else [found_inf]
    with no_grad():
        if are_alike(_unscale_each, [*tensors, *flags]):
            _unscale_each(tensors, found_inf, inv_scale)
        else:  # layers and modes see the operators of each tensor
            _unscale_each.decomposition(tensors, found_inf, inv_scale)
