"""Operators on small matrices, where what counts is the number of calls.

A kernel here is mostly one call of a compiled function, which takes contiguous float32 or float64
arrays of the commonest shapes and few elements; everything else it rejects by returning
NotImplemented, and the next kernel of the table serves. So it does while its function is compiled
in the background, without the wrapper of ``background.patient``, which costs a tenth of the call.
Numba is imported when the first of them runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from coredispatch_cpu_numba import background
from coredispatch_cpu_numba.functions import Functions

__all__ = ["KERNELS", "PATIENT", "PRIORITY"]

#: the kernels reject by themselves what is not compiled yet
PATIENT = True

#: above the kernels for large arrays, which see the calls rejected here
PRIORITY = 20
_TOTALS = ("mean", "sum")


def _rejects(*_: Any) -> Any:
    """Stands for a function that is being compiled."""
    return NotImplemented


class _Functions(Functions):
    """Functions that reject while they are being compiled."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        try:
            return super().__missing__(name)
        except background.NotReady:
            return _rejects


_functions, _joins = _Functions("small"), _Functions("small_joins")


@lru_cache(maxsize=64)
def _constant(n: int, dtype: np.dtype[Any], value: float) -> np.ndarray:
    return np.full(n, value, dtype)


def _totals(name: str) -> Callable[..., Any]:
    """``sum`` or ``mean`` of all elements, and of the rows or columns of a matrix."""
    of_all, of_rows, of_columns = f"{name}_all", f"{name}_rows", f"{name}_columns"

    def kernel(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if dtype is not None:
            return NotImplemented
        if not dim:
            return NotImplemented if keepdim else _functions[of_all](x)
        if dim == (1,) or dim == (-1,):
            out, kept = _functions[of_rows](x), (-1, 1)
        elif dim == (0,) or dim == (-2,):
            out, kept = _functions[of_columns](x), (1, -1)
        else:
            return NotImplemented
        return out.reshape(kept) if keepdim and out is not NotImplemented else out

    kernel.__name__ = name
    return kernel


def _softmax(name: str) -> Callable[..., Any]:
    """Of the rows or columns of a matrix."""
    short, long, columns = f"{name}_short", f"{name}_long", f"{name}_columns"

    def kernel(x: Any, dim: int, dtype: Any = None) -> Any:
        if dtype is not None:
            return NotImplemented
        if dim == 1 or dim == -1:
            out = _functions[short](x)
            return _functions[long](x) if out is NotImplemented else out
        return _functions[columns](x) if dim == 0 or dim == -2 else NotImplemented

    kernel.__name__ = name
    return kernel


def _rows_backward(name: str) -> Callable[..., Any]:
    def kernel(grad: Any, output: Any, dim: int) -> Any:
        return _functions[name](grad, output) if dim == 1 or dim == -1 else NotImplemented

    kernel.__name__ = name
    return kernel


def linear(x: Any, w: Any, b: Any) -> Any:
    """``x @ w.T + b``"""
    if b is None:
        if w.ndim != 2:
            return NotImplemented
        b = _constant(len(w), w.dtype, 0.0)
    return _functions["linear"](x, w, b)


def layer_norm(x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Rows normalized to mean 0 and variance 1, times ``weight``, plus ``bias``."""
    if x.shape[-1:] != tuple(normalized_shape):
        return NotImplemented
    (n,) = normalized_shape
    if weight is None and bias is None:
        return _functions["layer_norm_plain"](x, n, eps)
    weight = _constant(n, x.dtype, 1.0) if weight is None else weight
    bias = _constant(n, x.dtype, 0.0) if bias is None else bias
    return _functions["layer_norm"](x, weight, bias, eps)


def cross_entropy(
    x: Any, y: Any, weight: Any, ignored: int, reduction: str, smoothing: float
) -> Any:
    """Mean or sum of ``log sum exp(row) - row[label]``."""
    if weight is not None or smoothing != 0.0 or reduction not in _TOTALS:
        return NotImplemented
    average = reduction == "mean"
    out = _functions["cross_entropy"](x, y, ignored, average)
    if out is NotImplemented:
        return _functions["cross_entropy_long"](x, y, ignored, average)
    return out


def cross_entropy_backward(
    grad: Any, x: Any, y: Any, weight: Any, ignored: int, reduction: str, smoothing: float
) -> Any:
    """``(softmax(row) - onehot(label)) * grad``, over the number of labels for a mean."""
    if weight is not None or smoothing != 0.0 or reduction not in _TOTALS:
        return NotImplemented
    return _functions["cross_entropy_backward"](grad, x, y, ignored, reduction == "mean")


def threshold_backward(grad: Any, x: Any, threshold: Any) -> Any:
    """``grad`` where ``x > threshold``, else 0."""
    out = _functions["threshold_backward"](grad, x, threshold)
    if out is NotImplemented:
        return _functions["threshold_backward_strided"](grad, x, threshold)
    return out


def cat(tensors: Any, dim: int) -> Any:
    """The arrays one after the other along ``dim``."""
    return _joins["cat"](tensors, dim)


def stack(tensors: Any, dim: int) -> Any:
    """The arrays side by side along a new dimension."""
    return _joins["stack"](tensors, dim)


KERNELS: dict[str, Callable[..., Any]] = {
    "cat": cat,
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "layer_norm": layer_norm,
    "linear": linear,
    "log_softmax": _softmax("log_softmax"),
    "log_softmax_backward": _rows_backward("log_softmax_backward"),
    "mean": _totals("mean"),
    "softmax": _softmax("softmax"),
    "stack": stack,
    "softmax_backward": _rows_backward("softmax_backward"),
    "sum": _totals("sum"),
    "threshold_backward": threshold_backward,
}
