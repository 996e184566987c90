"""Activations in NumPy: few passes, in place in their own output.

Half precision is computed in float32. Elementwise activations work through the array in blocks
that stay in the cache when they need more than two passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.numpy.elementwise.error_functions import normal
from coredispatch.backends.numpy.elementwise.pointwise import bounded, sigmoid
from coredispatch.backends.numpy.reduction.sums import summed
from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.sizes import normalize_dim

__all__ = ["KERNELS"]


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute half precision in float32, and round once."""

    def kernel(x: np.ndarray, *rest: Any) -> Any:
        if x.itemsize != 2:
            return function(x, *rest)
        rest = tuple(
            r.astype(np.float32) if type(r) is np.ndarray and r.itemsize == 2 else r for r in rest
        )
        return function(x.astype(np.float32), *rest).astype(x.dtype)

    return silent(kernel)


# ---- rectifiers -------------------------------------------------------------------------------


# Measured: an array as the second operand takes 0.35 us, a Python number 0.65 us.
_ZEROS: dict[Any, np.ndarray] = {}


def relu(x: np.ndarray, out: Any = None) -> Any:
    """``maximum(x, 0)``."""
    if x.size < 1024:
        zero = _ZEROS.get(x.dtype)
        if zero is None:
            zero = _ZEROS[x.dtype] = np.zeros((), x.dtype)
        return np.maximum(x, zero) if out is None else np.maximum(x, zero, out=out)
    return bounded(np.maximum, x, 0, out)


_INTEGERS = {2: np.int16, 4: np.int32, 8: np.int64}


@silent
def threshold_backward(grad: np.ndarray, x: np.ndarray, threshold: Any) -> Any:
    """0 where ``x <= threshold`` (whatever ``grad`` is there), else ``grad``.

    The bits of the gradient are masked: on 1e6 float32 a fifth of the time of ``np.where``.
    """
    drop = x <= threshold
    if grad.shape != x.shape or grad.dtype.kind == "c" or not grad.ndim:
        return np.where(drop, grad.dtype.type(0), grad)
    integer = _INTEGERS.get(grad.itemsize, np.int8)
    mask = drop.astype(integer)
    np.subtract(mask, integer(1), mask)  # all ones where the gradient stays
    return np.bitwise_and(np.ascontiguousarray(grad).view(integer), mask, mask).view(grad.dtype)


@silent
def leaky_relu(x: np.ndarray, slope: float, out: Any = None) -> Any:
    """``x`` where positive, else ``slope * x``; one maximum where the slope allows."""
    low = np.multiply(x, x.dtype.type(slope))
    if 0 <= slope <= 1:
        return np.maximum(x, low, out=low if out is None and x.ndim else out)
    chosen = np.where(x > 0, x, low)
    if out is None:
        return chosen
    np.copyto(out, chosen)
    return out


def leaky_relu_backward(grad: np.ndarray, x: np.ndarray, slope: float) -> Any:
    """``grad`` where ``x > 0``, else ``slope * grad``."""
    return np.where(x > 0, grad, np.multiply(grad, grad.dtype.type(slope)))


# ---- gates ------------------------------------------------------------------------------------


@_in_float32
def gelu(x: np.ndarray, approximate: str) -> Any:
    """``x * Phi(x)``."""
    if approximate == "none":
        cumulative = normal(x)[0]
        return np.multiply(cumulative, x, cumulative)
    if approximate != "tanh":
        raise ArgumentError(f"approximate={approximate!r} is not 'none' or 'tanh'")
    t = np.asarray(x * x)
    t *= 0.044715
    t += 1
    t *= x
    t *= math.sqrt(2 / math.pi)
    np.tanh(t, t)
    t += 1
    t *= 0.5  # before x, or numbers near the largest overflow
    t *= x
    return t


@_in_float32
def gelu_backward(grad: np.ndarray, x: np.ndarray, approximate: str) -> Any:
    """``grad * (Phi(x) + x * phi(x))``, or that of the approximation."""
    if approximate == "none":
        cumulative, slope = normal(x)
        slope *= x
        slope *= 1 / math.sqrt(2 * math.pi)
        slope += cumulative
        return grad * slope
    root = math.sqrt(2 / math.pi)
    square = x * x
    t = np.tanh(x * (square * (0.044715 * root) + root))
    steep = square * (3 * 0.044715 * root) + root
    slope = np.asarray((1 - t * t) * steep)
    slope *= x
    slope += 1
    slope += t
    slope *= 0.5
    return grad * slope


@_in_float32
def silu(x: np.ndarray) -> Any:
    """``x * sigmoid(x)``, which at minus infinity is 0."""
    out = sigmoid(x)
    out = np.multiply(out, x, out if x.ndim else None)
    return out


@_in_float32
def silu_backward(grad: np.ndarray, x: np.ndarray) -> Any:
    """``grad * s * (1 + x * (1 - s))``."""
    s = sigmoid(x)
    slope = 1 - s
    slope *= x
    slope += 1
    slope *= s
    return grad * slope


@_in_float32
def softplus(x: np.ndarray, beta: float, threshold: float) -> Any:
    """``log1p(exp(-|bx|)) + max(bx, 0)`` over b."""
    scaled = x if beta == 1 else x * x.dtype.type(beta)
    out = np.log1p(np.exp(-np.abs(scaled)))
    out += np.maximum(scaled, 0)
    if beta != 1:
        out /= x.dtype.type(beta)
    return np.where(scaled > threshold, x, out)


@_in_float32
def softplus_backward(grad: np.ndarray, x: np.ndarray, beta: float, threshold: float) -> Any:
    """``grad * sigmoid(b * x)``."""
    scaled = x if beta == 1 else x * x.dtype.type(beta)
    return np.where(scaled > threshold, grad, grad * sigmoid(scaled))


@_in_float32
def mish(x: np.ndarray) -> Any:
    """``x * tanh(softplus(x))``."""
    return x * np.tanh(softplus(x, 1.0, 20.0))


@_in_float32
def logsigmoid(x: np.ndarray) -> Any:
    """``min(x, 0) - log1p(exp(-|x|))``."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _elu(x: np.ndarray, alpha: float, scale: float, input_scale: float) -> Any:
    below = np.minimum(x, 0)
    if input_scale != 1:
        below = below * x.dtype.type(input_scale)
    below = np.expm1(below) * x.dtype.type(alpha * scale)
    # At -0.0 the line is taken, which keeps the sign.
    return np.where(x < 0, below, x * x.dtype.type(scale) if scale != 1 else x)


@_in_float32
def elu(x: np.ndarray, alpha: float) -> Any:
    """``x`` where positive, else ``alpha * expm1(x)``."""
    return _elu(x, alpha, 1.0, 1.0)


@_in_float32
def elu_backward(
    grad: np.ndarray, x: np.ndarray, alpha: float, scale: float, input_scale: float
) -> Any:
    """Gradient of the exponential linear units."""
    slope = np.exp(np.minimum(x, 0) * x.dtype.type(input_scale))
    slope *= x.dtype.type(alpha * scale * input_scale)
    return grad * np.where(x > 0, x.dtype.type(scale), slope)


# ---- softmax ----------------------------------------------------------------------------------


def _prepared(x: np.ndarray, dtype: DType | None) -> tuple[np.ndarray, np.dtype]:
    """``x`` in the dtype computed in, and the dtype of the result."""
    native = x.dtype if dtype is None else numpy_dtype(dtype)
    if native.kind not in "fV":
        raise DTypeError(
            f"softmax of {native} elements needs a floating dtype",
            fix="pass dtype=cd.float32, or convert with x.float()",
        )
    wide = np.dtype(np.float32) if native.itemsize == 2 else native
    return (x if x.dtype is wide else x.astype(wide)), native


def _shifted(x: np.ndarray, dim: int) -> np.ndarray:
    """``x`` less its maximum along ``dim``, in new memory."""
    high = np.maximum.reduce(x, dim, None, None, True)
    return np.subtract(x, high)


@silent
def softmax(x: np.ndarray, dim: int, dtype: DType | None) -> Any:
    """Softmax along ``dim``."""
    x, native = _prepared(x, dtype)
    if not x.ndim:
        normalize_dim(dim, 0)
        return np.exp(x - x).astype(native)
    if not x.size:
        normalize_dim(dim, x.ndim)
        return x.astype(native)
    e = _shifted(x, dim)
    np.exp(e, e)
    np.divide(e, summed(e, dim, e.dtype, True), e)
    return e if e.dtype is native else e.astype(native)


@silent
def log_softmax(x: np.ndarray, dim: int, dtype: DType | None) -> Any:
    """Logarithm of the softmax along ``dim``."""
    x, native = _prepared(x, dtype)
    if not x.ndim:
        normalize_dim(dim, 0)
        return np.subtract(x, x).astype(native)
    if not x.size:
        normalize_dim(dim, x.ndim)
        return x.astype(native)
    out = _shifted(x, dim)
    total = summed(np.exp(out), dim, out.dtype, True)
    np.subtract(out, np.log(total, total), out)
    return out if out.dtype is native else out.astype(native)


@_in_float32
def softmax_backward(grad: np.ndarray, y: np.ndarray, dim: int) -> Any:
    """``(grad - sum(grad * y)) * y``."""
    if not y.ndim:
        return np.multiply(grad, y) - np.multiply(grad, y) * y
    weighted = np.multiply(grad, y)
    total = summed(weighted, dim, weighted.dtype, True)
    return np.subtract(weighted, np.multiply(y, total), weighted)


@_in_float32
def log_softmax_backward(grad: np.ndarray, y: np.ndarray, dim: int) -> Any:
    """``grad - exp(y) * sum(grad)``."""
    if not y.ndim:
        return grad - np.exp(y) * grad
    e = np.exp(y)
    np.multiply(e, summed(grad, dim, grad.dtype, True), e)
    return np.subtract(grad, e, e)


KERNELS: dict[str, Callable[..., Any]] = {
    "relu": relu,
    "threshold_backward": threshold_backward,
    "leaky_relu": leaky_relu,
    "leaky_relu_backward": leaky_relu_backward,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "silu": silu,
    "silu_backward": silu_backward,
    "softplus": softplus,
    "softplus_backward": softplus_backward,
    "mish": mish,
    "logsigmoid": logsigmoid,
    "elu": elu,
    "elu_backward": elu_backward,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
}
