"""Reductions and scans: ufunc ``reduce`` and ``accumulate`` called directly.

``np.sum`` and its kind add 1 us of Python around ``np.add.reduce``. Half precision accumulates
in float32. Sums of float32 are NumPy's pairwise sums along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch._warnings import warn_of_no_freedom
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.sizes import normalize_dim, normalize_dims

__all__ = ["KERNELS", "summed"]

_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)

Dims = tuple[int, ...] | None


def _axis(x: np.ndarray, dim: Dims) -> Any:
    if not dim:
        return None
    if not x.ndim:
        normalize_dims(dim, 0)
        return None
    return dim[0] if len(dim) == 1 else dim


def _accumulator(x: np.ndarray, dtype: DType | None) -> tuple[np.dtype, np.dtype]:
    """The dtype to accumulate in and the one of the result."""
    if dtype is None:
        native = x.dtype
        if native is _FLOAT32 or native is _FLOAT64:
            return native, native
        if native.kind in "biu":
            return _INT64, _INT64
    else:
        native = numpy_dtype(dtype)
    return (_FLOAT32 if native.itemsize == 2 and native.kind in "fV" else native), native


#: elements that one accumulator in single precision may add up
_LONG = 4096
_BLOCK = 512


def summed(x: np.ndarray, axis: Any, wide: np.dtype, keepdim: bool) -> Any:
    """The sum in the dtype ``wide``.

    NumPy adds pairwise along the fastest dimension and with one accumulator along the others,
    where many elements drift by more than single precision holds. There blocks are added first,
    and their sums in double precision.
    """
    if wide is not _FLOAT32 or x.size <= _LONG or _pairwise(x, axis):
        return np.add.reduce(x, axis, wide, None, keepdim)
    if type(axis) is not int:
        return np.add.reduce(x, axis, _FLOAT64, None, keepdim).astype(wide)
    axis %= x.ndim
    rows = x.shape[axis] // _BLOCK * _BLOCK
    head = x[(slice(None),) * axis + (slice(rows),)]
    blocks = head.reshape(*x.shape[:axis], -1, _BLOCK, *x.shape[axis + 1 :])
    tail = x[(slice(None),) * axis + (slice(rows, None),)]
    out = np.add.reduce(np.add.reduce(blocks, axis + 1, wide), axis, _FLOAT64, None, keepdim)
    return (out + np.add.reduce(tail, axis, _FLOAT64, None, keepdim)).astype(wide)


def _pairwise(x: np.ndarray, axis: Any) -> bool:
    """Whether NumPy adds pairwise along ``axis``, or there are few elements to add."""
    if axis is None:
        return x.flags.c_contiguous or x.flags.f_contiguous
    return _count(x.shape, axis) <= _LONG or (type(axis) is int and x.strides[axis] == x.itemsize)


@silent
def added(x: np.ndarray, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
    """Sum of the elements."""
    wide, narrow = _accumulator(x, dtype)
    if wide.kind != x.dtype.kind and (wide.kind == "b" or x.dtype.kind == "c"):
        x = x.astype(wide)
    out = summed(x, _axis(x, dim), wide, keepdim)
    return out if wide is narrow else out.astype(narrow)


def _accumulating(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce = ufunc.reduce

    @silent
    def kernel(x: np.ndarray, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
        wide, narrow = _accumulator(x, dtype)
        if wide.kind != x.dtype.kind and (wide.kind == "b" or x.dtype.kind == "c"):
            x = x.astype(wide)
        out = reduce(x, _axis(x, dim), wide, None, keepdim)
        return out if wide is narrow else out.astype(narrow)

    return kernel


def _extremum(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce = ufunc.reduce

    @silent
    def kernel(x: np.ndarray, dim: Dims, keepdim: bool) -> Any:
        return reduce(x, _axis(x, dim), None, None, keepdim)

    return kernel


def _truth(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce = ufunc.reduce

    def kernel(x: np.ndarray, dim: Dims, keepdim: bool) -> Any:
        return reduce(x, _axis(x, dim), np.bool_, None, keepdim)

    return kernel


def _position(method: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, method)  # the function of this name asks what x is

    def kernel(x: np.ndarray, dim: int | None, keepdim: bool) -> Any:
        if x.dtype.kind == "V":
            x = x.astype(np.float32)  # bfloat16 has no comparison loop of its own there
        if dim is not None and not x.ndim:
            normalize_dim(dim, 0)
            dim = None
        return function(x, dim, None, keepdims=keepdim)

    return kernel


@silent
def mean(x: np.ndarray, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
    """Sum over the number of elements."""
    wide, narrow = _accumulator(x, dtype)
    if wide.kind not in "fc" or (dtype is None and x.dtype.kind in "biu"):
        raise DTypeError(
            f"the mean of {x.dtype} elements needs a floating dtype",
            fix="pass dtype=cd.float32, or convert with x.float()",
        )
    axis = _axis(x, dim)
    out = summed(x, axis, wide, keepdim)
    count = x.size if axis is None else _count(x.shape, axis)
    out = np.true_divide(out, wide.type(count), out if type(out) is np.ndarray else None)
    return out if wide is narrow else out.astype(narrow)


def _count(shape: tuple[int, ...], axis: Any) -> int:
    if type(axis) is int:
        return shape[axis]
    count = 1
    for a in axis:
        count *= shape[a]
    return count


@silent
def var(x: np.ndarray, dim: Dims, correction: Any, keepdim: bool, name: str = "var") -> Any:
    """Mean square of the deviations from the mean, in two passes. ``name`` is for a warning."""
    if x.dtype.kind not in "fcV":
        raise DTypeError(
            f"the variance of {x.dtype} elements needs a floating dtype",
            fix="convert with x.float()",
        )
    axis = _axis(x, dim)
    wide = x.astype(np.float32) if x.itemsize == 2 else x
    count = x.size if axis is None else _count(x.shape, axis)
    center = summed(wide, axis, wide.dtype, True)
    center = np.true_divide(center, center.dtype.type(count))
    deviation = np.asarray(np.subtract(wide, center))
    # The mean of numbers that differ little is rounded by more than they differ: once more.
    center = summed(deviation, axis, wide.dtype, True)
    np.subtract(deviation, np.true_divide(center, center.dtype.type(count)), out=deviation)
    if deviation.dtype.kind == "c":
        deviation = np.abs(deviation)
    square = np.multiply(deviation, deviation)
    total = summed(square, axis, square.dtype, keepdim)
    freedom = count - (1 if correction is None else correction)
    if freedom <= 0:
        warn_of_no_freedom(name)
        freedom = 0
    out = np.true_divide(total, total.dtype.type(freedom))
    return out.astype(x.dtype) if x.itemsize == 2 else out


@silent
def std(x: np.ndarray, dim: Dims, correction: Any, keepdim: bool) -> Any:
    """Root of :func:`var`."""
    return np.sqrt(var(x, dim, correction, keepdim, "std"))


_SMALL_PAIR = 2048


def _pair(ufunc: np.ufunc, position: Callable[..., Any]) -> Callable[..., Any]:
    reduce = ufunc.reduce

    @silent
    def kernel(x: np.ndarray, dim: int, keepdim: bool) -> Any:
        if not x.ndim:
            normalize_dim(dim, 0)
            return x.copy(), np.zeros((), np.int64)
        places = position(x, dim, True)
        if x.size < _SMALL_PAIR:  # Measured: a reduction takes 1 us, reading the places 4
            values = reduce(x, dim, None, None, True)
            if not values.all():  # a zero may have the sign of another one
                values = np.take_along_axis(x, places, dim)
        else:
            values = np.take_along_axis(x, places, dim)
        return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))

    return kernel


# ---- scans ------------------------------------------------------------------------------------


def _scanning(ufunc: np.ufunc) -> Callable[..., Any]:
    accumulate = ufunc.accumulate

    @silent
    def kernel(x: np.ndarray, dim: int, dtype: DType | None) -> Any:
        wide, narrow = _accumulator(x, dtype)
        if not x.ndim:
            normalize_dim(dim, 0)
            return x.astype(narrow)
        # One accumulator for all: in single precision it drifts, so it is a double.
        out = accumulate(x, dim, _FLOAT64 if wide is _FLOAT32 else wide)
        return out if wide is narrow and wide is not _FLOAT32 else out.astype(narrow)

    return kernel


def _running(ufunc: np.ufunc) -> Callable[..., Any]:
    accumulate = ufunc.accumulate

    @silent
    def kernel(x: np.ndarray, dim: int) -> Any:
        if not x.ndim:
            normalize_dim(dim, 0)
            return x.copy(), np.zeros((), np.int64)
        values = accumulate(x, dim)
        reached = (x == values) | (x != x)  # where the extremum is attained, or NaN
        shape = [1] * x.ndim
        shape[dim] = x.shape[dim]
        places = np.arange(x.shape[dim]).reshape(shape)
        return values, np.maximum.accumulate(np.where(reached, places, 0), dim)

    return kernel


_argmax, _argmin = _position("argmax"), _position("argmin")

KERNELS: dict[str, Callable[..., Any]] = {
    "sum": added,
    "prod": _accumulating(np.multiply),
    "amax": _extremum(np.maximum),
    "amin": _extremum(np.minimum),
    "any": _truth(np.logical_or),
    "all": _truth(np.logical_and),
    "argmax": _argmax,
    "argmin": _argmin,
    "max_dim": _pair(np.maximum, _argmax),
    "min_dim": _pair(np.minimum, _argmin),
    "mean": mean,
    "var": var,
    "std": std,
    "cumsum": _scanning(np.add),
    "cumprod": _scanning(np.multiply),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
}
