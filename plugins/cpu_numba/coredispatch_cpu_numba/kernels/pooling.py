"""The gradient of max pooling over two dimensions of contiguous arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 1024
_SPLIT = 32768
_halving = Loop("pooling", "halving_backward", _SPLIT)
_windows = Loop("pooling", "windows_backward", _SPLIT)
_PLACES = 2**31 - 1
#: kernel size, stride, padding and dilation of windows of 2 by 2 side by side
_HALVING = [(2, 2), (2, 2), (0, 0), (1, 1)]


def _windows_over(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """How many windows there are over ``size`` elements; 0 where the operator may refuse."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if min(kernel, stride, dilation) < 1 or padding < 0 or room < 0:
        return 0
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < size + padding:
        count += 1  # it starts before the padding behind
    return count if 2 * padding <= dilation * (kernel - 1) + 1 else 0


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
    if len(kernel_size) != 2 or not (is_dense(input, _LEAST) and is_dense(grad, 1)):
        return NotImplemented
    if grad.dtype != own or grad.shape[:-2] != shape[:-2] or grad.ndim != input.ndim:
        return NotImplemented
    planes, plane, out = prod(shape[:-2]), prod(shape[-2:]), np.empty(shape, own)
    if options == _HALVING and grad.shape[-2:] == (shape[-2] // 2, shape[-1] // 2):
        _halving(own, input.size, planes, grad, input, out, *shape[-2:], weight=plane)
        return out
    sizes: Any = zip(shape[-2:], *options, strict=True)
    counts = tuple(_windows_over(*size, ceil_mode) for size in sizes)
    if own not in FLOATS or plane > _PLACES or 0 in counts or grad.shape[-2:] != counts:
        return NotImplemented
    numbers = np.array([*shape[-2:], *grad.shape[-2:], *(n for v in options for n in v)])
    work = grad.size * prod(kernel_size)
    _windows(own, work, planes, grad, input, out, numbers, weight=max(1, work // planes))
    return out


KERNELS: dict[str, Callable[..., Any]] = {"max_pool_backward": max_pool_backward}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
