"""Half precision: what takes less time by its bits, or in float64, than in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import dtypes, numpy_dtype
from coredispatch_cpu_numba.arrays import HALVES
from coredispatch_cpu_numba.kernels.elementwise import pointwise
from coredispatch_cpu_numba.kernels.halves import narrowed, widened

__all__ = ["KERNELS", "PRIORITY", "WHEN"]

#: above the kernels that go by way of those for float32
PRIORITY = 6
_LEAST = 256
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_SIGN = 0x8000
#: the bits of infinity
_INFINITY = {numpy_dtype(dtypes.bfloat16): 0x7F80, np.dtype(np.float16): 0x7C00}


def power(self: Any, exponent: Any) -> Any:
    """``self ** exponent``, rounded once but for results that float32 rounds to a midpoint.

    NumPy's powers of float64 are computed in vectors, even where they overflow.
    """
    dtype = next(x.dtype for x in (self, exponent) if type(x) is np.ndarray and x.ndim)
    base, power = (
        float(x) if type(x) is np.ndarray and not x.ndim else x for x in (self, exponent)
    )
    if type(power) is not np.ndarray and power == 2:
        return pointwise.KERNELS["square"](base)
    base, power = (widened(x) if type(x) is np.ndarray else float(x) for x in (base, power))
    with np.errstate(all="ignore"):
        if type(power) is float and power == 3:
            found = base * base
            found *= base
        elif type(power) is float and power == 0.5 and base.min() > -np.inf:
            base += 0  # the power of -0.0 is 0.0
            found = np.sqrt(base, base)
        else:
            base, power = (
                x.astype(_FLOAT64) if type(x) is np.ndarray else x for x in (base, power)
            )
            found = np.power(base, power).astype(_FLOAT32)
    return narrowed(found, dtype)


def _is_half(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in HALVES


def _accepts_power(self: Any, exponent: Any) -> bool:
    """Arrays of one dtype and shape, one of which may be a number or without dimensions."""
    array, other = (self, exponent) if getattr(self, "ndim", 0) else (exponent, self)
    if not _is_half(array) or array.size < _LEAST or not array.flags.c_contiguous:
        return False
    if type(other) is float or type(other) is int:
        return True
    return _is_half(other) and (
        other.dtype == array.dtype and (not other.ndim or other.shape == array.shape)
    )


def amax(self: np.ndarray, dim: Any, keepdim: bool) -> Any:
    """The greatest elements, found among the bits.

    Those of positive numbers are in the order of int16, those of negative ones in the opposite of
    that of uint16. What has NaN is left to others, and zeros, whose first is taken.
    """
    if not dim and not keepdim:
        return _one_of(self, True)
    axis = dim or None
    high = np.maximum.reduce(self.view(np.int16), axis, keepdims=keepdim)
    words = self.view(np.uint16)
    most = np.maximum.reduce(words, axis, keepdims=keepdim)
    infinity = _INFINITY[self.dtype]
    if ((high == 0) | (high > infinity) | (most > infinity + _SIGN)).any():
        return NotImplemented
    found = high.astype(np.uint16)
    negative = high < 0
    if negative.any():
        least = np.minimum.reduce(words, axis, keepdims=keepdim)
        found = np.where(negative, least, found)
    return np.asarray(found).view(self.dtype)


def _one_of(self: np.ndarray, greatest: bool) -> Any:
    """The extreme of all elements. Python's numbers take a third of the time of NumPy's."""
    high, words = int(self.view(np.int16).max()), self.view(np.uint16)
    most, infinity = int(words.max()), _INFINITY[self.dtype]
    if high > infinity or most > infinity + _SIGN:
        return NotImplemented
    if greatest:
        if high == 0:
            return NotImplemented
        bits = int(words.min()) if high < 0 else high
    else:
        if most == _SIGN:
            return NotImplemented
        bits = int(words.min()) if most < _SIGN else most
    return np.array(bits, np.uint16).view(self.dtype)


def amin(self: np.ndarray, dim: Any, keepdim: bool) -> Any:
    """The least elements, as :func:`amax` finds the greatest."""
    if not dim and not keepdim:
        return _one_of(self, False)
    axis = dim or None
    words = self.view(np.uint16)
    most = np.maximum.reduce(words, axis, keepdims=keepdim)
    high = np.maximum.reduce(self.view(np.int16), axis, keepdims=keepdim)
    infinity = _INFINITY[self.dtype]
    if ((most == _SIGN) | (high > infinity) | (most > infinity + _SIGN)).any():
        return NotImplemented
    found, positive = most, most < _SIGN
    if positive.any():
        least = np.minimum.reduce(words, axis, keepdims=keepdim)
        found = np.where(positive, least, found)
    return np.asarray(found).view(self.dtype)


def _accepts_extreme(self: Any, dim: Any, keepdim: bool) -> bool:
    """Whole arrays, or dimensions in order, over rows that are worth a call each."""
    if not _is_half(self) or self.size < _LEAST or not self.flags.c_contiguous:
        return False
    if not dim:
        return True
    n = self.ndim
    if any(type(d) is not int or not -n <= d < n for d in dim) or len(dim) != 1:
        return False
    return bool(self.shape[dim[0]] >= 16)


KERNELS: dict[str, Callable[..., Any]] = {"amax": amax, "amin": amin, "pow": power}
WHEN: dict[str, Callable[..., bool]] = {
    "amax": _accepts_extreme,
    "amin": _accepts_extreme,
    "pow": _accepts_power,
}
