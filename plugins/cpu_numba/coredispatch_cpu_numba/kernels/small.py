"""Operators on small matrices, where what counts is the number of calls.

A kernel here takes contiguous float32 or float64 arrays of the commonest shapes and up to
``MOST`` elements; everything else it rejects by returning NotImplemented, and the next kernel
of the table serves. So it does while its function is compiled in the background, without the
wrapper of ``background.patient``, which costs a tenth of the call. Numba is imported when the
first of them runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from coredispatch_cpu_numba import background
from coredispatch_cpu_numba.arrays import INT64

__all__ = ["KERNELS", "MOST", "PATIENT", "PRIORITY"]

#: the kernels reject by themselves what is not compiled yet
PATIENT = True

#: above the kernels for large arrays, which see the calls rejected here
PRIORITY = 20
MOST = 2048
_MOST_EXPONENTIALS = 8192  # of softmax, whose loops are those for large arrays
_PRODUCT = 16384  # multiplications of a matrix product
_VECTOR = 16  # elements of the shortest rows that are gone through in whole vectors


_TOTALS = ("mean", "sum")
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class _Functions(dict[str, Callable[..., Any]]):
    """The compiled functions of one dtype by name, made when first asked for.

    A function that is being compiled in the background is None, and is asked for again.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __missing__(self, name: str) -> Any:
        try:
            return background.made_by(partial(self.made, name), (name, self.number))
        except background.NotReady:
            return None

    def made(self, name: str, cached_only: bool) -> Callable[..., Any]:
        """The function; raises NotReady where it is not on disk but should be."""
        from coredispatch_cpu_numba.loops.small import compile_function

        self[name] = function = compile_function(name, self.number, cached_only)
        return function


_single, _double = _Functions(0), _Functions(1)


def _functions(x: np.ndarray) -> _Functions | None:
    """The functions for ``x``; None unless it is contiguous, aligned, writeable and floating.

    The compiled functions read memory as if it were so: everything must be asked beforehand.
    """
    if x.flags.carray:
        dtype = x.dtype
        # Arrays out of compiled functions have dtype objects of their own.
        if dtype is _FLOAT32 or dtype == _FLOAT32:
            return _single
        if dtype is _FLOAT64 or dtype == _FLOAT64:
            return _double
    return None


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether ``b`` is of the dtype of ``a``, contiguous, aligned and writeable."""
    dtype = b.dtype
    return (dtype is a.dtype or dtype == a.dtype) and b.flags.carray


def _labels_fit(y: np.ndarray, rows: int) -> bool:
    dtype = y.dtype
    return (dtype is INT64 or dtype == INT64) and y.shape == (rows,) and y.flags.carray


@lru_cache(maxsize=64)
def _constant(n: int, dtype: np.dtype[Any], value: float) -> np.ndarray:
    return np.full(n, value, dtype)


def _totals(name: str) -> Callable[..., Any]:
    """``sum`` or ``mean`` of all elements, and of the rows or columns of a matrix."""
    of_matrix, of_vector = f"{name}_2", f"{name}_1"
    of_rows, of_columns = f"{name}_rows", f"{name}_columns"

    def kernel(x: np.ndarray, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if dtype is not None or x.size > MOST:
            return NotImplemented
        f, ndim = _functions(x), x.ndim
        if f is None:
            return NotImplemented
        if not dim:
            if keepdim:
                return NotImplemented
            if ndim == 2:
                function = f[of_matrix]
            elif ndim == 1:
                function = f[of_vector]
            else:
                return NotImplemented
            out = np.empty((), x.dtype)
        elif ndim == 2 and (dim == (1,) or dim == (-1,)):
            function = f[of_rows]
            out = np.empty(x.shape[0], x.dtype)
        elif ndim == 2 and (dim == (0,) or dim == (-2,)):
            function = f[of_columns]
            out = np.empty(x.shape[1], x.dtype)
        else:
            return NotImplemented
        if function is None:
            return NotImplemented
        function(x, out)
        if keepdim:
            return out.reshape((-1, 1) if function is f[of_rows] else (1, -1))
        return out

    kernel.__name__ = name
    return kernel


def _softmax(name: str) -> Callable[..., Any]:
    """Of the rows or columns of a matrix."""
    short, long, columns = f"{name}_short", f"{name}_long", f"{name}_columns"

    def kernel(x: np.ndarray, dim: int, dtype: Any = None) -> Any:
        if x.size <= _MOST_EXPONENTIALS and x.ndim == 2 and -2 <= dim < 2 and dtype is None:
            f = _functions(x)
            if f is not None:
                if dim == 0 or dim == -2:
                    function = f[columns]
                else:
                    function = f[short if x.shape[1] < _VECTOR else long]
                if function is not None:
                    out = np.empty(x.shape, x.dtype)
                    function(x, out)
                    return out
        return NotImplemented

    kernel.__name__ = name
    return kernel


def _rows_backward(name: str) -> Callable[..., Any]:
    def kernel(grad: np.ndarray, output: np.ndarray, dim: int) -> Any:
        if grad.ndim == 2 and (dim == 1 or dim == -1) and output.size <= MOST:
            f = _functions(grad)
            if f is not None and grad.shape == output.shape and _alike(grad, output):
                function = f[name]
                if function is not None:
                    out = np.empty(output.shape, output.dtype)
                    function(grad, output, out)
                    return out
        return NotImplemented

    kernel.__name__ = name
    return kernel


def linear(x: np.ndarray, w: np.ndarray, b: Any) -> Any:
    """``x @ w.T + b``"""
    if x.ndim == 2 and w.ndim == 2:
        rows, depth = x.shape
        width, inner = w.shape
        if depth == inner and rows * depth * width <= _PRODUCT:
            f = _functions(x)
            if b is None:
                b = _constant(width, w.dtype, 0.0)
            if f is not None and b.shape == (width,) and _alike(x, w) and _alike(x, b):
                function = f["linear"]
                if function is not None:
                    out = np.empty((rows, width), x.dtype)
                    function(x, w, b, out)
                    return out
    return NotImplemented


def layer_norm(x: np.ndarray, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Rows normalized to mean 0 and variance 1, times ``weight``, plus ``bias``."""
    if x.ndim == 2 and x.size <= MOST and x.shape[1:] == normalized_shape:
        f = _functions(x)
        if f is None:
            return NotImplemented
        function = f["layer_norm_plain" if weight is None and bias is None else "layer_norm"]
        if function is None:
            return NotImplemented
        out = np.empty(x.shape, x.dtype)
        if weight is None and bias is None:
            function(x, float(eps), out)
            return out
        weight = _constant(x.shape[1], x.dtype, 1.0) if weight is None else weight
        bias = _constant(x.shape[1], x.dtype, 0.0) if bias is None else bias
        if weight.shape == bias.shape == normalized_shape:
            if _alike(x, weight) and _alike(x, bias):
                function(x, weight, bias, float(eps), out)
                return out
    return NotImplemented


def cross_entropy(
    x: np.ndarray, y: np.ndarray, weight: Any, ignored: int, reduction: str, smoothing: float
) -> Any:
    """Mean or sum of ``log sum exp(row) - row[label]``."""
    if weight is None and smoothing == 0.0 and reduction in _TOTALS and x.ndim == 2:
        if 0 < x.size <= MOST and _labels_fit(y, len(x)):
            f = _functions(x)
            name = "cross_entropy" if x.shape[1] < _VECTOR else "cross_entropy_long"
            function = None if f is None else f[name]
            if function is not None:
                out = np.empty((), x.dtype)
                try:
                    function(x, y, ignored, reduction == "mean", out)
                except ValueError:
                    return NotImplemented  # a bad label: the next kernel says which
                return out
    return NotImplemented


def cross_entropy_backward(
    grad: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    weight: Any,
    ignored: int,
    reduction: str,
    smoothing: float,
) -> Any:
    """``(softmax(row) - onehot(label)) * grad``, over the number of labels for a mean."""
    if weight is None and smoothing == 0.0 and reduction in _TOTALS and x.ndim == 2:
        if 0 < x.size <= MOST and grad.ndim == 0 and _labels_fit(y, len(x)):
            f = _functions(x)
            if f is not None and _alike(x, grad):
                function = f["cross_entropy_backward"]
                if function is not None:
                    out = np.empty(x.shape, x.dtype)
                    function(grad, x, y, ignored, reduction == "mean", out)
                    return out
    return NotImplemented


def threshold_backward(grad: np.ndarray, x: np.ndarray, threshold: Any) -> Any:
    """``grad`` where ``x > threshold``, else 0."""
    if x.ndim == 2 and x.size <= MOST and grad.shape == x.shape:
        f = _functions(x)
        if f is not None:
            if _alike(x, grad):
                name = "threshold_backward"
            elif grad.dtype == x.dtype and grad.flags.aligned:
                name = "threshold_backward_strided"
            else:
                return NotImplemented
            function = f[name]
            if function is not None:
                out = np.empty(x.shape, x.dtype)
                function(grad, x, float(threshold), out)
                return out
    return NotImplemented


KERNELS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "layer_norm": layer_norm,
    "linear": linear,
    "log_softmax": _softmax("log_softmax"),
    "log_softmax_backward": _rows_backward("log_softmax_backward"),
    "mean": _totals("mean"),
    "softmax": _softmax("softmax"),
    "softmax_backward": _rows_backward("softmax_backward"),
    "sum": _totals("sum"),
    "threshold_backward": threshold_backward,
}
