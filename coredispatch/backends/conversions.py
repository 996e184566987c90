"""Conversions of NumPy arrays from one element type to another, rounded once."""

from __future__ import annotations

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype, stored
from coredispatch.registry.model.dtypes import ALL_DTYPES, DType

__all__ = ["rounded_once", "to_dtype"]

#: type codes of NumPy's own real numbers, which NumPy converts among each other in one rounding
_OWN = frozenset("?bBhHiIlLqQefd")
#: the types among them, which an array of any other of them is converted to without further ado
_TARGETS = {dtype: numpy_dtype(dtype) for dtype in ALL_DTYPES if numpy_dtype(dtype).char in _OWN}


def to_dtype(x: np.ndarray, dtype: DType) -> np.ndarray:
    """A copy of ``x`` in ``dtype``; out-of-range values as C casts them, without warnings."""
    given, own = x.dtype.char, _TARGETS.get(dtype)
    if own is not None and given in _OWN:
        return x.astype(own)  # the commonest
    target = numpy_dtype(dtype)
    if given == "f" and target.names is None:
        return x.astype(target)  # single precision rounds once wherever it goes
    if target.names is not None or x.dtype.names is not None:
        return stored(x, target)
    if x.dtype.kind == "c" and target.kind not in "cb":
        x = x.real
    return rounded_once(x, target).astype(target)


def rounded_once(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """``x`` as it is converted to ``target`` in one rounding.

    ml_dtypes goes from doubles and wide integers to bfloat16 by way of single precision. Rounded to
    odd on the way, the result is that of rounding once (Boldo and Melquiond, "When double rounding
    is odd", 2005).
    """
    if target.kind != "V" or x.dtype.kind not in "fiu" or x.dtype.itemsize < 4:
        return x
    if x.dtype.kind in "iu":
        if x.dtype.itemsize == 8:  # what a double cannot hold, odd at its sixteenth bit
            large = (x >> 31 != 0) & (x >> 31 != -1)
            sixteen = x.dtype.type(16)
            odd = ((x >> sixteen) | ((x & x.dtype.type(0xFFFF)) != 0)) << sixteen
            x = np.where(large, odd, x)
        x = x.astype(np.float64)
    return _to_odd(x) if x.dtype == np.float64 else x


def _to_odd(x: np.ndarray) -> np.ndarray:
    """Doubles in single precision, made odd where that loses digits."""
    near = x.astype(np.float32)
    beyond = np.abs(near) > np.abs(x)  # infinity among them
    low = np.where(beyond, np.nextafter(near, np.float32(0)), near)
    lost = (low != x) & ~np.isnan(x)
    return (low.view(np.uint32) | lost.astype(np.uint32)).view(np.float32)
