"""The NumPy dtype of each :class:`DType`. bfloat16 and 8-bit floats come from ``ml_dtypes``."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from coredispatch.registry.model.dtypes import ALL_DTYPES, STORAGE_DTYPES, DType, bfloat16
from coredispatch.registry.model.errors import DTypeError

__all__ = ["BFLOAT16", "element_name", "numpy_dtype", "readable", "stored"]

#: bfloat16 as a NumPy dtype; its kind is ``'V'``, so kernels compare with it by identity
BFLOAT16: np.dtype = np.dtype(ml_dtypes.bfloat16)

_NUMPY: dict[DType, np.dtype] = {
    dtype: BFLOAT16 if dtype is bfloat16 else np.dtype(dtype.name) for dtype in ALL_DTYPES
}

# 8-bit floats are stored, moved and converted, and not computed with. In NumPy they are records of
# one number of ml_dtypes: what moves elements works on those, and arithmetic is refused.
_FIELD = "value"
_STORED: dict[DType, np.dtype] = {
    dtype: np.dtype([(_FIELD, getattr(ml_dtypes, dtype.name))])
    for dtype in STORAGE_DTYPES
    if hasattr(ml_dtypes, dtype.name)
}
_NUMPY |= _STORED
for _dtype, _native in _STORED.items():
    DType._remember(_native, _dtype)
_NAMES = {native: dtype.name for dtype, native in _NUMPY.items()}


def element_name(dtype: np.dtype) -> str:
    """The name of the element type that arrays of this NumPy dtype have; NumPy's for others."""
    return _NAMES.get(dtype, dtype.name)


def readable(x: np.ndarray) -> np.ndarray:
    """``x`` itself, or the numbers of 8-bit floats, as a view that NumPy can convert."""
    return x if x.dtype.names is None else x[_FIELD]


def stored(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """A copy of ``x`` in a NumPy dtype, that of an 8-bit float included.

    PyTorch rounds to float32 first. ``float8_e4m3fn`` saturates, infinities included;
    ``float8_e8m0fnu`` is the nearest power of two of the absolute value, ties upwards.
    """
    if x.dtype.names is not None:
        if x.dtype == target:
            return x.copy()
        x = readable(x).astype(np.float32)
    if x.dtype.kind == "c" and target.kind not in "cb":
        x = x.real
    if target.names is None:
        return x.astype(target)
    single = x.astype(np.float32)
    number = target[_FIELD]
    if number == ml_dtypes.float8_e8m0fnu:
        return _exponents(single).view(target)
    if number == ml_dtypes.float8_e4m3fn:
        single = np.clip(single, -448, 448)
    with np.errstate(all="ignore"):
        found = single.astype(number)
    if number == ml_dtypes.float8_e5m2:  # which has several NaNs
        undefined = np.isnan(single)
        found.view(np.uint8)[undefined] = np.where(np.signbit(single[undefined]), 0xFF, 0x7F)
    return found.view(target)


def _exponents(single: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(single).view(np.uint32).reshape(single.shape)
    exponent = (bits >> 23) & 0xFF
    rest = bits & 0x7FFFFF
    up = (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0))
    return np.where(exponent == 0xFF, exponent, exponent + up).astype(np.uint8)


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
