"""Average pooling over one or two dimensions of contiguous arrays, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import CoreDispatchError, operator
from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 32768
_forward = Loop("averages", "forward", _SPLIT)
_backward = Loop("averages", "backward", _SPLIT)
_means = Loop("reduction.sums", "mean_rows", _SPLIT)


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], *options: Any) -> Any:
    """The result's shape, what the loops take beside the arrays, planes, and elements of one.

    ``options`` are those of ``avg_pool``, or the size of the result of ``adaptive_avg_pool``. None
    for what has more than two dimensions, or is refused, or where a window has no elements.
    """
    adaptive, n = len(options) == 1, len(options[0])
    if n not in (1, 2) or len(shape) < n or not prod(shape):
        return None
    try:
        name = "adaptive_avg_pool" if adaptive else "avg_pool"
        given = np.broadcast_to(np.float32(0), shape)
        pooled = tuple(operator(name).out_rule(given, *options))
    except CoreDispatchError:
        return None
    if not prod(pooled):
        return None
    bounds = []
    for i in range(n):
        size, window = shape[i - n], np.arange(pooled[i - n])
        if adaptive:
            count = pooled[i - n]
            first, stop = window * size // count, -(-(window + 1) * size // count)
            among = stop - first
        else:
            k, s, p = (v[i] for v in options[:3])
            begin = window * s - p
            first, stop = np.maximum(begin, 0), np.minimum(begin + k, size)
            among = np.minimum(begin + k, size + p) - begin if options[4] else stop - first
            if options[5]:
                among = np.full_like(window, options[5] if i == 0 else 1)
        if (first >= stop).any():
            return None
        bounds += [first, stop, among]
    if n == 1:
        bounds = [np.array([v]) for v in (0, 1, 1)] + bounds
    h, w = (1, shape[-1]) if n == 1 else shape[-2:]
    numbers = np.concatenate(bounds).astype(INT64)
    arguments = (numbers, h, w, len(bounds[0]), len(bounds[3]))
    return pooled, arguments, prod(shape[:-n]), h * w


def _averaged(input: np.ndarray, *options: Any) -> Any:
    if not is_dense(input, 1):
        return NotImplemented
    plan = _plan(input.shape, *options)
    if plan is None:
        return NotImplemented
    pooled, arguments, planes, plane = plan
    out = np.empty(pooled, input.dtype)
    _forward(input.dtype, input.size, planes, input, *arguments, out, weight=plane)
    return out


def _shared(grad: np.ndarray, input_shape: Sequence[int], *options: Any) -> Any:
    if not is_dense(grad, 1):
        return NotImplemented
    shape = tuple(input_shape)
    plan = _plan(shape, *options)
    if plan is None or plan[0] != grad.shape:
        return NotImplemented
    _, arguments, planes, plane = plan
    out = np.empty(shape, grad.dtype)
    _backward(grad.dtype, planes * plane, planes, grad, *arguments, out, weight=plane)
    return out


def avg_pool(
    input: np.ndarray,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Means of windows."""
    sizes = tuple(kernel_size), tuple(stride), tuple(padding)
    return _averaged(input, *sizes, ceil_mode, count_include_pad, divisor_override)


def avg_pool_backward(
    grad: np.ndarray,
    input_shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """The gradient of the input: each window's is shared among its elements."""
    sizes = tuple(kernel_size), tuple(stride), tuple(padding)
    options = ceil_mode, count_include_pad, divisor_override
    return _shared(grad, input_shape, *sizes, *options)


def adaptive_avg_pool(input: np.ndarray, output_size: Sequence[int]) -> Any:
    """Means of as many windows as are asked for; one for each plane is the mean of a row."""
    n = len(output_size)
    if prod(output_size) != 1:
        return _averaged(input, tuple(output_size))
    if not is_dense(input, 1) or not 0 < n <= input.ndim:
        return NotImplemented
    lead, size = input.shape[: input.ndim - n], prod(input.shape[input.ndim - n :])
    if size == 0:
        return NotImplemented
    out = np.empty((*lead, *output_size), input.dtype)
    _means(input.dtype, input.size, out.size, input, size, size, out, weight=size)
    return out


def adaptive_avg_pool_backward(
    grad: np.ndarray, input_shape: Sequence[int], output_size: Sequence[int]
) -> Any:
    """The gradient of the input."""
    return _shared(grad, input_shape, tuple(output_size))


KERNELS: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool": adaptive_avg_pool,
    "adaptive_avg_pool_backward": adaptive_avg_pool_backward,
    "avg_pool": avg_pool,
    "avg_pool_backward": avg_pool_backward,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
