"""Max pooling over one or two dimensions of contiguous arrays, and its gradient.

With positions, and adaptive, of one dimension as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import CoreDispatchError, operator
from coredispatch_cpu_numba.arrays import FLOATS, INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 32768
_halving = Loop("pooling", "halving", _SPLIT)
_windows = Loop("pooling", "windows", _SPLIT)
_few_halving, _few_windows = _halving.compiled, _windows.compiled
_halving_backward = Loop("pooling", "halving_backward", _SPLIT)
_windows_backward = Loop("pooling", "windows_backward", _SPLIT)
_maxima = Loop("pooling", "maxima", _SPLIT)
_PLACES = 2**31 - 1
#: kernel size, stride, padding and dilation of windows of 2 by 2 side by side
_HALVING = [(2, 2), (2, 2), (0, 0), (1, 1)]


def _pooled(input: np.ndarray, *options: Any) -> Any:
    """The shape of the pooled input; None where the operator refuses the options."""
    try:
        return operator("max_pool").out_rule(input, *options)
    except CoreDispatchError:
        return None


def _numbers(spatial: Any, pooled: Any, sizes: Sequence[Any]) -> np.ndarray:
    """What the loops of any windows take: both sizes, kernel size, stride, padding and dilation.

    One dimension is a plane of one row.
    """
    if len(spatial) == 1:
        spatial, pooled = (1, *spatial), (1, *pooled)
        sizes = [(first, *v) for first, v in zip((1, 1, 0, 1), sizes, strict=True)]
    return np.array([*spatial, *pooled, *(n for v in sizes for n in v)], INT64)


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], *options: Any) -> Any:
    """The result's shape, planes, what the loop of any windows takes, and elements looked at.

    None for what has more than two dimensions, or is refused.
    """
    sizes = options[:4]
    if not all(len(v) == len(sizes[0]) for v in sizes) or len(sizes[0]) not in (1, 2):
        return None
    pooled = _pooled(np.broadcast_to(np.float32(0), shape), *options)
    if pooled is None or not prod(pooled):
        return None
    n = len(sizes[0])
    numbers = _numbers(shape[-n:], pooled[-n:], sizes)
    planes = prod(shape[:-n])
    halving = list(sizes) == _HALVING and not options[4]
    return pooled, planes, None if halving else numbers, prod(pooled) * prod(sizes[0])


def max_pool(
    input: np.ndarray,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Any:
    """The largest elements of windows; NaN is larger than every number."""
    if not is_dense(input, 1):
        return NotImplemented
    shape, own = input.shape, input.dtype
    plan = _plan(
        shape, tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    )
    if plan is None:
        return NotImplemented
    pooled, planes, numbers, work = plan
    out = np.empty(pooled, own)
    if numbers is None and work < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _few_halving[own]
        launch(input, out, shape[-2], shape[-1], planes, planes, task, 0)
    elif numbers is None:
        _halving(own, work, planes, input, out, *shape[-2:], weight=work // planes)
    elif work < _SPLIT:
        launch, task, _ = _few_windows[own]
        launch(input, out, numbers, planes, planes, task, 0)
    else:
        _windows(own, work, planes, input, out, numbers, weight=work // planes)
    return out


def max_pool_backward(
    grad: np.ndarray,
    input: np.ndarray,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Any:
    """The gradient of the input: that of a window goes to its first maximum."""
    own, shape = input.dtype, input.shape
    options = [tuple(v) for v in (kernel_size, stride, padding, dilation)]
    n = len(options[0])
    if n not in (1, 2) or any(len(v) != n for v in options) or input.ndim < n:
        return NotImplemented
    if not (is_dense(input, _LEAST) and is_dense(grad, 1)):
        return NotImplemented
    if grad.dtype != own or grad.ndim != input.ndim:
        return NotImplemented
    planes, plane, out = prod(shape[:-n]), prod(shape[-n:]), np.empty(shape, own)
    if options == _HALVING and grad.shape == (*shape[:-2], shape[-2] // 2, shape[-1] // 2):
        _halving_backward(own, input.size, planes, grad, input, out, *shape[-2:], weight=plane)
        return out
    if own not in FLOATS or plane > _PLACES or grad.shape != _pooled(input, *options, ceil_mode):
        return NotImplemented
    numbers = _numbers(shape[-n:], grad.shape[-n:], options)
    work = grad.size * prod(kernel_size)
    _windows_backward(own, work, planes, grad, input, out, numbers, weight=max(1, work // planes))
    return out


@lru_cache(maxsize=1024)
def _windows_of(shape: tuple[int, ...], *options: Any) -> Any:
    """The result's shape, what the loop of maxima takes, planes, and elements looked at.

    None for what has more than two dimensions, or is refused, or where a window has no elements.
    """
    n = len(options[0])
    given = np.broadcast_to(np.float32(0), shape)
    adaptive = len(options) == 1
    try:
        name = "adaptive_max_pool" if adaptive else "max_pool_with_indices"
        pooled = tuple(operator(name).out_rule(given, *options)[0])
    except CoreDispatchError:
        return None
    if n not in (1, 2) or len(shape) <= n or not prod(pooled):
        return None
    bounds, steps = [], []
    for i in range(n):
        size, count = shape[i - n], pooled[i - n]
        window = np.arange(count)
        if adaptive:
            first, stop, step = window * size // count, -(-(window + 1) * size // count), 1
        else:
            k, s, p, step = (v[i] for v in options[:4])
            first = window * s - p
            stop = np.minimum(first + k * step, size)
            first = np.where(first < 0, first + -(first // step) * step, first)
        if (first >= stop).any():
            return None
        bounds += [first, stop]
        steps.append(step)
    if n == 1:
        bounds, steps = [np.zeros(1, INT64), np.ones(1, INT64), *bounds], [1, *steps]
    h, w = (1, *shape[-1:]) if n == 1 else shape[-2:]
    oh, ow = len(bounds[0]), len(bounds[2])
    lengths = [int((stop - first).max()) for first, stop in (bounds[:2], bounds[2:])]
    numbers = np.concatenate(bounds).astype(INT64)
    planes = prod(shape[:-n])
    return pooled, (numbers, h, w, oh, ow, *steps), planes, prod(pooled) * prod(lengths)


def _maximum_and_place(input: np.ndarray, *options: Any) -> Any:
    if not is_dense(input, 1):
        return NotImplemented
    plan = _windows_of(input.shape, *options)
    if plan is None:
        return NotImplemented
    pooled, numbers, planes, work = plan
    out, places = np.empty(pooled, input.dtype), np.empty(pooled, INT64)
    weight = max(1, work // planes)
    _maxima(input.dtype, work, planes, input, *numbers, out, places, weight=weight)
    return out, places


def max_pool_with_indices(
    input: np.ndarray,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Any:
    """The largest elements of windows, and where they are."""
    options = [tuple(v) for v in (kernel_size, stride, padding, dilation)]
    return _maximum_and_place(input, *options, ceil_mode)


def adaptive_max_pool(input: np.ndarray, output_size: Sequence[int]) -> Any:
    """The largest elements of as many windows as are asked for, and where they are."""
    return _maximum_and_place(input, tuple(output_size))


KERNELS: dict[str, Callable[..., Any]] = {
    "adaptive_max_pool": adaptive_max_pool,
    "max_pool": max_pool,
    "max_pool_backward": max_pool_backward,
    "max_pool_with_indices": max_pool_with_indices,
}
#: the calls of NumPy's forward pass cost more than its elements, however few there are
LEAST: dict[str, int] = {
    "adaptive_max_pool": 1,
    "max_pool": 1,
    "max_pool_backward": _LEAST,
    "max_pool_with_indices": 1,
}
