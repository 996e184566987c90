"""The gradient of max pooling over two dimensions of contiguous arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import CoreDispatchError, operator
from coredispatch_cpu_numba.arrays import FLOATS, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 64
_SPLIT = 32768
_halving = Loop("pooling", "halving_backward", _SPLIT)
_windows = Loop("pooling", "windows_backward", _SPLIT)
_PLACES = 2**31 - 1
#: kernel size, stride, padding and dilation of windows of 2 by 2 side by side
_HALVING = [(2, 2), (2, 2), (0, 0), (1, 1)]


def _pooled(input: np.ndarray, *options: Any) -> Any:
    """The shape of the pooled input; None where the operator refuses the options."""
    try:
        return operator("max_pool").out_rule(input, *options)
    except CoreDispatchError:
        return None


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
    if any(len(v) != 2 for v in options) or not (is_dense(input, _LEAST) and is_dense(grad, 1)):
        return NotImplemented
    if grad.dtype != own or grad.ndim != input.ndim:
        return NotImplemented
    planes, plane, out = prod(shape[:-2]), prod(shape[-2:]), np.empty(shape, own)
    if options == _HALVING and grad.shape == (*shape[:-2], shape[-2] // 2, shape[-1] // 2):
        _halving(own, input.size, planes, grad, input, out, *shape[-2:], weight=plane)
        return out
    if own not in FLOATS or plane > _PLACES or grad.shape != _pooled(input, *options, ceil_mode):
        return NotImplemented
    numbers = np.array([*shape[-2:], *grad.shape[-2:], *(n for v in options for n in v)])
    work = grad.size * prod(kernel_size)
    _windows(own, work, planes, grad, input, out, numbers, weight=max(1, work // planes))
    return out


KERNELS: dict[str, Callable[..., Any]] = {"max_pool_backward": max_pool_backward}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
