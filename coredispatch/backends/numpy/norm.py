"""Normalization in NumPy: one pass for the mean, one for the spread, the rest in place.

The variance is the mean of squared deviations, never ``E[x^2] - E[x]^2``. Backward kernels
compute the normalized values anew from the input: on a CPU that costs less than keeping them.
Half precision is computed in float32.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.backends.numpy.windows import Array, Ints, widen

# Up to this many elements the mean of each row is a product with a constant matrix, which also
# spreads it over the row: on an 8x8 array 0.4 us, and later operands of equal shape cost 0.3 us
# each, against 1.6 us for a ufunc reduction and a division and 0.9 us for broadcast operands.
_SMALL = 1024


@lru_cache(maxsize=256)
def _averaging(n: int, dtype: Any) -> tuple[Any, bool]:
    """The matrix that averages rows of length ``n``, and whether to divide by ``n`` afterwards.

    ``1 / n`` is exact for powers of two; elsewhere the matrix sums, so that equal elements have
    themselves as mean.
    """
    exact = n & (n - 1) == 0
    return np.full((n, n), 1.0 / n if exact else 1.0, dtype), not exact


@lru_cache(maxsize=64)
def _scalar(value: float, dtype: Any) -> Any:
    """0-d array of ``value``: adding it costs half of what a Python float does."""
    return np.array(value, dtype)


def _row_mean(rows: Array) -> Array:
    """Mean of each row of a 2-d array, shape ``(rows, 1)``, or spread over the whole row."""
    n = rows.shape[1]
    if 0 < rows.size <= _SMALL and n * n <= _SMALL:
        matrix, divide = _averaging(n, rows.dtype)
        mean = rows.dot(matrix)
        if divide:
            mean /= n
        return mean
    mean = np.add.reduce(rows, 1, None, None, True)
    mean /= n
    return mean


def _standardize(rows: Array, eps: float) -> tuple[Array, Array]:
    """``(rows - mean) / std`` as a new array, and ``std = sqrt(var + eps)`` to divide rows by."""
    centered = rows - _row_mean(rows)
    n = rows.shape[1]
    if n & (n - 1) or rows.size > _SMALL:
        # What rounding left of the mean counts where the mean is much larger than the spread.
        centered -= _row_mean(centered)
    std = _row_mean(centered * centered)
    std += _scalar(eps, rows.dtype)
    np.sqrt(std, std)
    centered /= std
    return centered, std


def _standardize_backward(grad: Array, normal: Array, std: Array) -> Array:
    """Gradient of :func:`_standardize`; overwrites none of the arguments.

    ``(grad - mean(grad) - normal * mean(grad * normal)) / std``, Ba et al., 2016.
    """
    scratch = grad * normal
    np.multiply(normal, _row_mean(scratch), out=scratch)
    result = grad - _row_mean(grad)
    result -= scratch
    result /= std
    return result


def _rows(x: Array, normalized_shape: Ints) -> Array:
    """``x`` as a 2-d array whose rows are what is normalized; ``ValueError`` where it cannot be."""
    n = len(normalized_shape)
    if n == 1 and x.ndim == 2 and x.shape[1] == normalized_shape[0]:
        return x
    if n == 0 or x.shape[-n:] != normalized_shape:
        raise ValueError(f"shape {x.shape} does not end in {normalized_shape}")
    return x.reshape(prod(x.shape[:-n]), prod(x.shape[-n:]))


def _check_affine(shape: Ints, weight: Array | None, bias: Array | None = None) -> None:
    # A weight of size 1 would broadcast silently.
    if (weight is not None and weight.shape != shape) or (bias is not None and bias.shape != shape):
        raise ValueError(f"weight and bias must have shape {shape}")


def layer_norm(
    input: Array, normalized_shape: Ints, weight: Array | None, bias: Array | None, eps: float
) -> Array:
    """Kernel of ``layer_norm``."""
    _check_affine(normalized_shape, weight, bias)
    x = widen(input)
    result, _ = _standardize(_rows(x, normalized_shape), eps)
    if weight is not None:
        result *= weight if weight.ndim == 1 else weight.reshape(-1)
    if bias is not None:
        result += bias if bias.ndim == 1 else bias.reshape(-1)
    if result.ndim != input.ndim or result.shape != input.shape:
        result = result.reshape(input.shape)
    return result if x is input else result.astype(input.dtype)


def layer_norm_backward(
    grad: Array, input: Array, normalized_shape: Ints, weight: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Kernel of ``layer_norm_backward``: gradients of the input, the weight and the bias."""
    x = widen(input)
    normal, std = _standardize(_rows(x, normalized_shape), eps)
    rows = widen(grad).reshape(normal.shape)
    weight_grad = np.add.reduce(rows * normal, 0).reshape(normalized_shape)
    bias_grad = np.add.reduce(rows, 0).reshape(normalized_shape)
    if weight is not None:
        rows = rows * weight.reshape(-1)
    result = _standardize_backward(rows, normal, std).reshape(input.shape)
    if x is input:
        return result, weight_grad, bias_grad
    return tuple(a.astype(input.dtype) for a in (result, weight_grad, bias_grad))


def _root_mean_square(rows: Array, eps: float) -> Array:
    rms = _row_mean(rows * rows)
    rms += _scalar(eps, rows.dtype)
    return np.sqrt(rms, rms)


def _rms_eps(eps: float | None, dtype: Any) -> float:
    if eps is not None:
        return eps
    return 2.0**-52 if dtype.itemsize == 8 and dtype.kind == "f" else 2.0**-23


def rms_norm(
    input: Array, normalized_shape: Ints, weight: Array | None, eps: float | None
) -> Array:
    """Kernel of ``rms_norm``."""
    _check_affine(normalized_shape, weight)
    x = widen(input)
    rows = _rows(x, normalized_shape)
    result = rows / _root_mean_square(rows, _rms_eps(eps, input.dtype))
    if weight is not None:
        result *= weight.reshape(-1)
    return result.reshape(input.shape).astype(input.dtype, copy=False)


def rms_norm_backward(
    grad: Array, input: Array, normalized_shape: Ints, weight: Array | None, eps: float | None
) -> tuple[Array, Array]:
    """Kernel of ``rms_norm_backward``: gradients of the input and the weight."""
    rows = _rows(widen(input), normalized_shape)
    rms = _root_mean_square(rows, _rms_eps(eps, input.dtype))
    normal = rows / rms
    given = widen(grad).reshape(normal.shape)
    weight_grad = np.add.reduce(given * normal, 0).reshape(normalized_shape)
    if weight is not None:
        given = given * weight.reshape(-1)
    normal *= _row_mean(given * normal)
    result = given - normal
    result /= rms
    return (
        result.reshape(input.shape).astype(input.dtype, copy=False),
        weight_grad.astype(input.dtype, copy=False),
    )


def _grouped(x: Array, num_groups: int) -> Array:
    batch, channels = x.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"{channels} channels do not split into {num_groups} groups")
    return x.reshape(batch * num_groups, channels // num_groups * prod(x.shape[2:]))


def group_norm(
    input: Array, num_groups: int, weight: Array | None, bias: Array | None, eps: float
) -> Array:
    """Kernel of ``group_norm``."""
    _check_affine(input.shape[1:2], weight, bias)
    x = widen(input)
    result, _ = _standardize(_grouped(x, num_groups), eps)
    result = result.reshape(*input.shape[:2], prod(input.shape[2:]))
    if weight is not None:
        result *= weight[:, None]
    if bias is not None:
        result += bias[:, None]
    return result.reshape(input.shape).astype(input.dtype, copy=False)


def group_norm_backward(
    grad: Array, input: Array, num_groups: int, weight: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Kernel of ``group_norm_backward``: gradients of the input, the weight and the bias."""
    normal, std = _standardize(_grouped(widen(input), num_groups), eps)
    per_channel = (*input.shape[:2], prod(input.shape[2:]))
    given = widen(grad).reshape(per_channel)
    weight_grad = np.add.reduce(np.vecdot(given, normal.reshape(per_channel)), 0)
    bias_grad = np.add.reduce(np.add.reduce(given, 2), 0)
    if weight is not None:
        given = given * weight[:, None]
    result = _standardize_backward(given.reshape(normal.shape), normal, std)
    dtype = input.dtype
    return (
        result.reshape(input.shape).astype(dtype, copy=False),
        weight_grad.astype(dtype, copy=False),
        bias_grad.astype(dtype, copy=False),
    )


def _by_channel(x: Array) -> Array:
    """``(N, C, *)`` as ``(N, C, L)``; a 2-d input keeps its shape."""
    return x if x.ndim == 2 else x.reshape(*x.shape[:2], prod(x.shape[2:]))


def _channel_sum(x: Array) -> Array:
    """Sum over all dimensions but the second of ``(N, C)`` or ``(N, C, L)``, in float64.

    Along the first axis NumPy adds one row after the other; in float32 the mean of a large batch
    far from zero would lose several digits.
    """
    return np.add.reduce(x if x.ndim == 2 else np.add.reduce(x, 2), 0, np.float64)


def _channel_dot(x: Array, y: Array) -> Array:
    products = np.multiply(x, y) if x.ndim == 2 else np.vecdot(x, y)
    return np.add.reduce(products, 0, np.float64)


def _per_channel(v: Array, x: Array) -> Array:
    """Vector over channels, shaped to broadcast against ``x``."""
    return v if x.ndim == 2 else v[:, None]


def batch_norm_train(
    input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Kernel of ``batch_norm_train``: result, batch mean, biased batch variance."""
    _check_affine(input.shape[1:2], weight, bias)
    x = _by_channel(widen(input))
    count = x.shape[0] * prod(x.shape[2:])
    if count < 2:
        raise ValueError("batch statistics need more than one value per channel")
    mean = (_channel_sum(x) / count).astype(x.dtype)
    result = x - _per_channel(mean, x)
    var = (_channel_dot(result, result) / count).astype(x.dtype)
    scale = 1 / np.sqrt(var + eps, dtype=var.dtype)
    if weight is not None:
        scale *= weight
    result *= _per_channel(scale, x)
    if bias is not None:
        result += _per_channel(bias, x)
    return result.reshape(input.shape).astype(input.dtype, copy=False), mean, var


def batch_norm_train_backward(
    grad: Array,
    mean_grad: Array,
    var_grad: Array,
    input: Array,
    weight: Array | None,
    mean: Array,
    var: Array,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Kernel of ``batch_norm_train_backward``: gradients of the input, the weight and the bias.

    Per channel the input's gradient is ``a * grad + b * (x - mean) + c``.
    """
    mean, var, mean_grad, var_grad = (widen(v) for v in (mean, var, mean_grad, var_grad))
    g = _by_channel(widen(grad))
    x = _by_channel(widen(input))
    count = x.size // max(x.shape[1], 1)
    centered = x - _per_channel(mean, x)
    scale = 1 / np.sqrt(var + eps)
    bias_grad = _channel_sum(g).astype(x.dtype)
    weight_grad = _channel_dot(g, centered).astype(x.dtype)
    weight_grad *= scale
    a = scale if weight is None else scale * weight
    b = (2 * var_grad - a * scale * weight_grad) / count
    c = (mean_grad - a * bias_grad) / count
    centered *= _per_channel(b, x)
    centered += _per_channel(c, x)
    centered += g * _per_channel(a, x)
    result = centered.reshape(input.shape).astype(input.dtype, copy=False)
    return result, weight_grad, bias_grad


def batch_norm_inference(
    input: Array, mean: Array, var: Array, weight: Array | None, bias: Array | None, eps: float
) -> Array:
    """Kernel of ``batch_norm_inference``."""
    _check_affine(input.shape[1:2], mean, var)
    _check_affine(input.shape[1:2], weight, bias)
    x = _by_channel(widen(input))
    scale = 1 / np.sqrt(widen(var) + eps)
    if weight is not None:
        scale = scale * weight
    shift = mean * scale
    shift = np.negative(shift, shift) if bias is None else np.subtract(bias, shift, shift)
    result = x * _per_channel(scale, x)
    result += _per_channel(shift, x)
    return result.reshape(input.shape).astype(input.dtype, copy=False)


KERNELS = {
    "layer_norm": silent(layer_norm),
    "layer_norm_backward": silent(layer_norm_backward),
    "rms_norm": silent(rms_norm),
    "rms_norm_backward": silent(rms_norm_backward),
    "group_norm": silent(group_norm),
    "group_norm_backward": silent(group_norm_backward),
    "batch_norm_train": silent(batch_norm_train),
    "batch_norm_train_backward": silent(batch_norm_train_backward),
    "batch_norm_inference": silent(batch_norm_inference),
}
