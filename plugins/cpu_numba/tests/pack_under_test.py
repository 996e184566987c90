"""The pack's kernels by op name, for tests that call them on raw arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.kernels import (
    MODULES,
    half_arithmetic,
    half_pointwise,
    halves,
    small,
    small_parametrized,
    small_pointwise,
    strided,
)
from coredispatch_cpu_numba.kernels.conv import bfloat16, dense, depthwise, tuned
from coredispatch_cpu_numba.kernels.elementwise import strided as strided_pointwise
from coredispatch_cpu_numba.kernels.linalg import products_bfloat16
from coredispatch_cpu_numba.kernels.nn import recurrent_bfloat16

__all__ = ["DTYPES", "KERNELS", "WHEN", "Reference"]

#: kernels by op name, as the embedded backend's are
Reference = dict[str, Callable[..., Any]]

_OTHERS = (
    half_arithmetic,
    half_pointwise,
    small,
    small_parametrized,
    small_pointwise,
    halves,
    bfloat16,
    dense,
    depthwise,
    products_bfloat16,
    recurrent_bfloat16,
    strided,
    strided_pointwise,
    tuned,
)  # of names that come twice
_LARGE = [module for module in MODULES if module not in _OTHERS]
KERNELS: Reference = {k: v for m in _LARGE for k, v in m.KERNELS.items()}
WHEN: dict[str, Callable[..., bool]] = {
    k: v for m in _LARGE for k, v in getattr(m, "WHEN", {}).items()
}
DTYPES = [np.float32, np.float64]
