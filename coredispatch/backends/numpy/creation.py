"""NumPy kernels that create arrays from sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype, stored
from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.dtypes import DType, default_dtype, scalar_dtype
from coredispatch.registry.model.scalars import arange_bounds, single_number
from coredispatch.registry.model.sizes import as_size, as_sizes

__all__ = ["KERNELS"]


def _dtype(dtype: DType | None) -> np.dtype:
    return numpy_dtype(default_dtype() if dtype is None else dtype)


def _filled(size: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.names is not None:
        value = stored(np.asarray(value), dtype)
    return np.full(size, value, dtype)


def full(size: tuple[int, ...], value: Any, dtype: DType | None, device: Any) -> np.ndarray:
    """An array of one value."""
    return _filled(size, value, numpy_dtype(scalar_dtype(value) if dtype is None else dtype))


def zeros(size: tuple[int, ...], dtype: DType | None, device: Any) -> np.ndarray:
    """An array of zeros."""
    return np.zeros(size, _dtype(dtype))


def ones(size: tuple[int, ...], dtype: DType | None, device: Any) -> np.ndarray:
    """An array of ones."""
    return np.ones(size, _dtype(dtype))


def empty(size: tuple[int, ...], dtype: DType | None, device: Any) -> np.ndarray:
    """An array of whatever was in memory."""
    return np.empty(size, _dtype(dtype))


def full_like(x: np.ndarray, value: Any, dtype: DType | None) -> np.ndarray:
    """An array of one value in the shape and the order of ``x``."""
    wanted = x.dtype if dtype is None else numpy_dtype(dtype)
    if _has_order(x) and wanted.names is None:
        return np.full_like(x, value, wanted, "K", False)
    return _filled(x.shape, value, wanted)


def zeros_like(x: np.ndarray, dtype: DType | None) -> np.ndarray:
    """An array of zeros in the shape and the order of ``x``."""
    wanted = x.dtype if dtype is None else numpy_dtype(dtype)
    if _has_order(x):
        return np.zeros_like(x, wanted, "K", False)
    return np.zeros(x.shape, wanted)


def ones_like(x: np.ndarray, dtype: DType | None) -> np.ndarray:
    """An array of ones in the shape and the order of ``x``."""
    out = empty_like(x, dtype)
    out.fill(1)  # every backward pass begins here; np.ones takes three times as long
    return out


def empty_like(x: np.ndarray, dtype: DType | None) -> np.ndarray:
    """An array of whatever was in memory in the shape and the order of ``x``."""
    wanted = x.dtype if dtype is None else numpy_dtype(dtype)
    if _has_order(x):
        return np.empty_like(x, wanted, "K", False)
    return np.empty(x.shape, wanted)


def _has_order(x: np.ndarray) -> bool:
    """Whether the dimensions of ``x`` lie in memory in another order than the row-major one."""
    return not x.flags.c_contiguous and 0 not in x.strides


#: beyond every index
_INDICES = 1 << 62

#: the distance up to which doubles hold each integer: NumPy divides by the step in them
_DOUBLES = 1 << 53


def _far_range(start: int, step: int, count: int) -> np.ndarray:
    """``count`` integers of 64 bits, modulo ``2**64``."""
    first, further = (np.array(v % (1 << 64), np.uint64) for v in (start, step))
    found: np.ndarray = np.arange(count, dtype=np.uint64) * further + first
    return found


def arange(start: Any, end: Any, step: Any, dtype: DType | None, device: Any) -> np.ndarray:
    """The numbers from ``start`` up to, not including, ``end``."""
    if dtype is None and type(start) is int and (end is None or type(end) is int) and step == 1:
        low, high = (0, start) if end is None else (start, end)
        if -_INDICES < low <= high < _INDICES:  # there is nothing to refuse
            return np.arange(low, high, 1, np.int64)
    start, end, step = arange_bounds(start, end, step, dtype)
    if dtype is None:
        exact = all(isinstance(v, int) for v in (start, end, step))
        wanted = np.dtype(np.int64) if exact else numpy_dtype(default_dtype())
    else:
        wanted = numpy_dtype(dtype)
    if wanted.kind in "iu" and abs(end - start) > _DOUBLES:
        return _far_range(start, step, -((start - end) // step)).astype(wanted)
    if wanted.kind in "iu":  # of Python integers; negative ones wrap to unsigned types
        drawn = np.uint64 if max(start, end) >= 1 << 63 else np.int64
        return np.arange(start, end, step, drawn).astype(wanted, copy=False)
    if wanted == np.float64:
        return np.arange(start, end, step, wanted)
    # Rounding once at the end keeps the number of elements independent of the dtype.
    return np.arange(start, end, step, np.float64).astype(wanted)


def linspace(start: Any, end: Any, steps: int, dtype: DType | None, device: Any) -> np.ndarray:
    """``steps`` evenly spaced numbers from ``start`` to ``end``, both included."""
    as_size(steps, "steps")
    start, end = single_number(start, "start"), single_number(end, "end")
    if dtype is None and (isinstance(start, complex) or isinstance(end, complex)):
        dtype = default_dtype().to_complex()
    return np.linspace(start, end, steps).astype(_dtype(dtype))


def eye(n: int, m: int | None, dtype: DType | None, device: Any) -> np.ndarray:
    """The n by m matrix with ones on its diagonal."""
    if n < 0 or (m is not None and m < 0):  # NumPy reads a negative number of columns as 0
        as_sizes((n, n if m is None else m))
    return np.eye(n, m, dtype=_dtype(dtype))


KERNELS: dict[str, Callable[..., Any]] = {
    "full": full,
    "zeros": zeros,
    "ones": ones,
    "empty": empty,
    "full_like": full_like,
    "zeros_like": zeros_like,
    "ones_like": ones_like,
    "empty_like": empty_like,
    "arange": arange,
    "linspace": silent(linspace),
    "eye": eye,
}
