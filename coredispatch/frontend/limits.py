"""``finfo`` and ``iinfo``: the numerical limits of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.dtypes import DType, default_dtype
from coredispatch.registry.model.errors import DTypeError

__all__ = ["finfo", "iinfo"]


class finfo:
    """Limits of a floating dtype: ``bits``, ``eps``, ``max``, ``min``, ``tiny``, ``resolution``.

    Complex dtypes have those of their parts. Raises :class:`DTypeError` for other dtypes.
    """

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = default_dtype() if dtype is None else DType.of(dtype)
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise DTypeError(f"finfo: {self.dtype} is not floating", fix="use cd.iinfo")
        read: Any = ml_dtypes.finfo  # np.finfo does not know bfloat16
        stored = getattr(ml_dtypes, self.dtype.name, None) if self.dtype.itemsize == 1 else None
        info = read(numpy_dtype(self.dtype.to_real()) if stored is None else stored)
        self.bits = int(info.bits)
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 1.0 if stored is not None else 10.0 ** -int(info.precision)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype.name})"
        )


class iinfo:
    """Limits of an integer dtype: ``bits``, ``max``, ``min``.

    Raises :class:`DTypeError` for other dtypes.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = DType.of(dtype)
        if not self.dtype.is_integral:
            raise DTypeError(f"iinfo: {self.dtype} is no integer dtype", fix="use cd.finfo")
        info = np.iinfo(numpy_dtype(self.dtype))
        self.bits = int(info.bits)
        self.max = int(info.max)
        self.min = int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"
