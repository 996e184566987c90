"""The NumPy dtype of each :class:`DType`. bfloat16 comes from ``ml_dtypes``."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from coredispatch.registry.model.dtypes import ALL_DTYPES, DType, bfloat16
from coredispatch.registry.model.errors import DTypeError

__all__ = ["BFLOAT16", "numpy_dtype"]

#: bfloat16 as a NumPy dtype; its kind is ``'V'``, so kernels compare with it by identity
BFLOAT16: np.dtype = np.dtype(ml_dtypes.bfloat16)

_NUMPY: dict[DType, np.dtype] = {
    dtype: BFLOAT16 if dtype is bfloat16 else np.dtype(dtype.name) for dtype in ALL_DTYPES
}


def numpy_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype that stands for ``dtype``.

    Raises :class:`DTypeError` for an element type that only some layout has.
    """
    try:
        return _NUMPY[dtype]
    except KeyError:
        raise DTypeError(
            f"dense tensors have no elements of type {dtype}",
            fix="use one of " + ", ".join(d.name for d in _NUMPY),
        ) from None
