"""What a caller may write where a signature asks for numbers, dtypes and devices.

The stubs use these names, and a plugin's operators are annotated with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = ["DTypeLike", "DeviceLike", "FloatList", "Index", "IntList", "Scalar"]

Scalar: TypeAlias = bool | int | float | complex
IntList: TypeAlias = int | Sequence[int]
FloatList: TypeAlias = float | Sequence[float]
Index: TypeAlias = Any
DTypeLike: TypeAlias = DType | str | type[Any] | np.dtype[Any]
DeviceLike: TypeAlias = Device | str | int
