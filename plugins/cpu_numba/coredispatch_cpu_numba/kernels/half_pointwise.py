"""Elementwise operators of few bfloat16 or float16 elements.

The loops that read half precision as it lies take over where it pays for float32. NumPy computes
half precision one element at a time, so here they do from some hundred elements on: of the
operators of ``small_pointwise`` when that has rejected a call. A number beside bfloat16 comes as an
array without dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import HALVES, is_like
from coredispatch_cpu_numba.kernels.elementwise import parametrized, pointwise

__all__ = ["FEW", "KERNELS", "LEAST", "PRIORITY", "WHEN", "accepts"]

#: below all kernels that read the arrays as they are
PRIORITY = 3
_LEAST = 256


def _served(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` with numbers for arrays without dimensions."""

    def served(self: np.ndarray, *rest: Any) -> Any:
        return kernel(
            self, *(float(x) if type(x) is np.ndarray and not x.ndim else x for x in rest)
        )

    served.__name__ = kernel.__name__
    return served


def accepts(self: Any, *rest: Any) -> bool:
    """Arrays of one dtype and shape, numbers, and what is left out."""
    if type(self) is not np.ndarray or self.dtype not in HALVES or self.size < _LEAST:
        return False
    if not self.flags.c_contiguous:
        return False
    for x in rest:
        if type(x) is np.ndarray:
            if x.dtype != self.dtype or (x.ndim and not is_like(x, self)):
                return False
        elif x is not None and type(x) is not float and type(x) is not int:
            return False
    return True


def _accepts_bounds(self: Any, low: Any, high: Any, *out: Any) -> bool:
    """Numbers as bounds, none of which is NaN, and at least one."""
    bounds = [x for x in (low, high) if x is not None]
    if not bounds or not accepts(self, low, high, *out):
        return False
    return all(type(x) is not np.ndarray or (not x.ndim and x == x) for x in bounds) and not any(
        x != x for x in bounds if type(x) is float
    )


#: what ``small_pointwise`` leaves to these
FEW: dict[str, Callable[..., Any]] = {
    name: _served(pointwise.KERNELS[name])
    for name in (*pointwise.UNARY, *pointwise.BINARY, *pointwise.COMPARISON)
}
KERNELS: dict[str, Callable[..., Any]] = {"clamp": _served(parametrized.KERNELS["clamp"])}
WHEN: dict[str, Callable[..., bool]] = {"clamp": _accepts_bounds}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
