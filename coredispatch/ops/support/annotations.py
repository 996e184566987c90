"""The type names of op signatures.

A schema reads its annotations as text (``Tensor | Scalar``); these names exist so that editors
and type checkers can follow the text. What each admits is listed in ``registry/model/schema.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "DType",
    "DTypeLike",
    "Device",
    "DeviceLike",
    "FloatList",
    "Generator",
    "Index",
    "IntList",
    "Scalar",
    "Tensor",
]

# The frontend's class; ops sit below it and may not import it.
Tensor: TypeAlias = Any
Generator: TypeAlias = Any
Index: TypeAlias = Any
Scalar: TypeAlias = bool | int | float | complex
IntList: TypeAlias = int | Sequence[int]
FloatList: TypeAlias = float | Sequence[float]

#: what a user may write for a dtype and for a device
DTypeLike: TypeAlias = DType | str | type[Any] | np.dtype[Any]
DeviceLike: TypeAlias = Device | str
