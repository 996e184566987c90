"""Updates of lists of tensors in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent

__all__ = ["KERNELS"]

Array = Any


def unscale_each(tensors: list[Array], found_inf: Array, inv_scale: Any) -> Any:
    """Kernel of ``unscale_each``; what is no floating number is left to the definition."""
    inverse = inv_scale.item() if isinstance(inv_scale, np.ndarray) else inv_scale
    if isinstance(inverse, complex) or any(x.dtype.kind in "biuc" for x in tensors):
        return NotImplemented
    for x in tensors:
        if not np.isfinite(x).all():
            found_inf[...] = 1
        x *= x.dtype.type(inverse)
    return None


KERNELS = {"unscale_each": silent(unscale_each)}
