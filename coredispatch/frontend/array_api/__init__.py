"""The array API standard (2024.12) over coredispatch's tensors: ``x.__array_namespace__()``.

Functions have the standard's names, arguments and promotion, also where those of PyTorch, which
``coredispatch`` follows, differ: 0-dim arrays count like any others, ``std`` divides by N, sums of
unsigned integers are uint64. Operators of tensors (``x + y``) are PyTorch's in either case.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import Any

from coredispatch.frontend.array_api import creation, elementwise, fft, linalg, manipulation
from coredispatch.frontend.array_api import statistics as statistics
from coredispatch.frontend.array_api.creation import *  # noqa: F403
from coredispatch.frontend.array_api.elementwise import *  # noqa: F403
from coredispatch.frontend.array_api.info import Info
from coredispatch.frontend.array_api.linalg import matmul, tensordot, vecdot
from coredispatch.frontend.array_api.manipulation import *  # noqa: F403
from coredispatch.frontend.array_api.statistics import *  # noqa: F403
from coredispatch.registry.model.dtypes import bool_ as bool
from coredispatch.registry.model.dtypes import (
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

__array_api_version__ = "2024.12"
newaxis = None

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "bool", "complex64", "complex128", "e",
    "fft", "float32", "float64", "inf", "int8", "int16", "int32", "int64", "linalg", "matmul",
    "nan", "newaxis", "pi", "tensordot", "uint8", "uint16", "uint32", "uint64", "vecdot",
    *creation.__all__, *elementwise.__all__, *manipulation.__all__, *statistics.__all__,
]  # fmt: skip


def __array_namespace_info__() -> Any:
    """What the namespace can do; see :class:`.info.Info`."""
    return Info()
