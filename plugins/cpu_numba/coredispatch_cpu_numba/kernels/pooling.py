"""The gradient of max pooling by windows of 2 by 2 of contiguous arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_LEAST = 1024
_SPLIT = 32768
_halving = Loop("pooling", "halving_backward", _SPLIT)
#: kernel size, stride, padding and dilation of the windows; others take NumPy as long as a loop
_HALVING = [(2, 2), (2, 2), (0, 0), (1, 1)]


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
    if options != _HALVING or not (is_dense(input, _LEAST) and is_dense(grad, 1)):
        return NotImplemented
    pooled = (*shape[:-2], shape[-2] // 2, shape[-1] // 2)
    if grad.shape != pooled or grad.dtype != own:  # also where ceil_mode adds a window
        return NotImplemented
    out = np.empty(shape, own)
    planes, plane = prod(shape[:-2]), prod(shape[-2:])
    _halving(own, input.size, planes, grad, input, out, *shape[-2:], weight=plane)
    return out


KERNELS: dict[str, Callable[..., Any]] = {"max_pool_backward": max_pool_backward}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
