"""``fold``: columns of windows added into planes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST"]

_SPLIT = 32768
_added = Loop("nn.columns", "added", _SPLIT)


def _two(value: Any, least: int) -> tuple[int, int] | None:
    """Two whole numbers, given as two or as one."""
    pair = (value, value) if type(value) is int else tuple(value)
    pair = pair * 2 if len(pair) == 1 else pair
    return pair if len(pair) == 2 and all(type(n) is int and n >= least for n in pair) else None


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], *options: Any) -> Any:
    """The result's shape and what the loop takes; None for what does not fit."""
    pairs = [_two(v, least) for v, least in zip(options, (1, 1, 1, 0, 1), strict=True)]
    if len(shape) not in (2, 3) or None in pairs:
        return None
    size, kernel, dilation, padding, stride = pairs
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)
    )
    channels, rest = divmod(shape[-2], prod(kernel))
    if min(counts) < 1 or prod(counts) != shape[-1] or rest or not prod(shape):
        return None
    numbers = np.array([*size, *counts, *kernel, *stride, *padding, *dilation], INT64)
    return (*shape[:-2], channels, *size), numbers, prod(shape[:-2]) * channels


def col2im(
    input: np.ndarray, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    """Columns ``(N, C * K, L)`` added into ``(N, C, H, W)``."""
    if not is_dense(input, 1):
        return NotImplemented
    options = (
        v if type(v) is int else tuple(v)
        for v in (output_size, kernel_size, dilation, padding, stride)
    )
    plan = _plan(input.shape, *options)
    if plan is None:
        return NotImplemented
    shape, numbers, planes = plan
    out = np.empty(shape, input.dtype)
    weight = max(1, input.size // planes)
    _added(input.dtype, input.size, planes, input, numbers, out, weight=weight)
    return out


KERNELS: dict[str, Callable[..., Any]] = {"col2im": col2im}
LEAST: dict[str, int] = {"col2im": 1}
