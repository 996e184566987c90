"""glu and its gradient; prelu with one weight, or one for each channel."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.elementwise.pointwise import leaky_relu
from coredispatch_cpu_numba.layout import along

__all__ = ["KERNELS", "LEAST"]

_LEAST = 256
_SPLIT = 32768
_STEP = 4096  # elements that one thread does at a time
_glu = Loop("elementwise.gates", "glu", _SPLIT)
_glu_backward = Loop("elementwise.gates", "glu_backward", _SPLIT)
_slopes = Loop("elementwise.gates", "slopes", _SPLIT)


def _halves(self: Any, dim: int) -> Any:
    """Rows and the elements of their halves; None where there are no two halves."""
    spans = along(self.shape, dim) if self.ndim and is_dense(self, 1) else None
    if spans is None or spans[1] % 2:
        return None
    outer, n, inner = spans
    return outer, n // 2 * inner


def glu(self: np.ndarray, dim: int) -> Any:
    """The first half along ``dim`` times the sigmoid of the second."""
    halves = _halves(self, dim)
    if halves is None:
        return NotImplemented
    outer, half = halves
    shape = list(self.shape)
    shape[dim] //= 2
    out, steps = np.empty(shape, self.dtype), -(-half // _STEP)
    step = min(half, _STEP)
    _glu(self.dtype, out.size, outer * steps, self, half, step, steps, out, weight=step)
    return out


def glu_backward(grad: np.ndarray, self: np.ndarray, dim: int) -> Any:
    """The gradient of both halves."""
    halves = _halves(self, dim)
    if halves is None or grad.dtype != self.dtype or 2 * grad.size != self.size:
        return NotImplemented
    outer, half = halves
    grad, out = np.ascontiguousarray(grad), np.empty(self.shape, self.dtype)
    steps, step = -(-half // _STEP), min(half, _STEP)
    arguments = (grad, self, half, step, steps, out)
    _glu_backward(self.dtype, self.size, outer * steps, *arguments, weight=2 * step)
    return out


def prelu(self: np.ndarray, weight: np.ndarray) -> Any:
    """``self`` where positive, else a weight times it."""
    if not is_dense(self, 1) or weight.dtype != self.dtype:
        return NotImplemented
    if weight.size == 1:
        return leaky_relu(self, float(weight.item()))
    if self.ndim < 2 or weight.shape != self.shape[1:2] or not weight.flags.c_contiguous:
        return NotImplemented
    samples, channels, out = self.shape[0], self.shape[1], np.empty(self.shape, self.dtype)
    inner = prod(self.shape[2:])
    arguments = (self, weight, channels, inner, out)
    _slopes(self.dtype, self.size, samples, *arguments, weight=channels * inner)
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "glu": glu,
    "glu_backward": glu_backward,
    "prelu": prelu,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
