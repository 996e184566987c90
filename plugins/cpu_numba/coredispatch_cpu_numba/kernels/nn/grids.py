"""Sampling of images at places between their elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_SPLIT = 8192
_LARGEST = (1 << 31) - 1  # offsets in a channel have 32 bits
_forward = Loop("nn.grids", "grid_sample", _SPLIT)
_backward = Loop("nn.grids", "grid_sample_backward", _SPLIT)
_MODES = {"nearest": 0, "bilinear": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _dense(x: np.ndarray) -> np.ndarray:
    """``x`` as the loops take it: half precision in float32, contiguous."""
    return np.ascontiguousarray(x, None if x.dtype in FLOATS else np.float32)


def _sizes(input: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: bool) -> Any:
    dims = input.ndim - 2
    if (
        dims not in (2, 3)
        or grid.shape[:1] + grid.shape[-1:] != (len(input), dims)
        or grid.ndim != input.ndim
        or grid.dtype != input.dtype
        or 0 in input.shape[2:]
        or (dims == 3 and mode == "bicubic")
    ):
        raise ValueError("grid_sample")  # the rule of the operator says what is wrong
    spatial = (1,) * (3 - dims) + input.shape[2:]
    places = prod(grid.shape[1:-1])
    codes = _MODES[mode], _PADDINGS[padding], int(align)
    return (input.shape[1], *spatial, dims, places, *codes)


def grid_sample(
    input: np.ndarray, grid: np.ndarray, mode: str, padding_mode: str, align_corners: bool
) -> Any:
    """Neighbours gathered channel by channel, 64 places at a time."""
    sizes = _sizes(input, grid, mode, padding_mode, align_corners)
    if prod(input.shape[2:]) > _LARGEST:
        return NotImplemented
    x, at = _dense(input), _dense(grid)
    own, places = x.dtype, sizes[5]
    out = np.empty((*input.shape[:2], *grid.shape[1:-1]), own)
    count = len(input) * ((places + 63) // 64)
    if out.size:
        _forward(own, out.size, count, x, at, *sizes, out, weight=64 * sizes[0])
    return out.astype(input.dtype, copy=False)


def grid_sample_backward(
    grad: np.ndarray,
    input: np.ndarray,
    grid: np.ndarray,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> Any:
    """Both gradients at once; images are shared among threads, their places are not."""
    sizes = _sizes(input, grid, mode, padding_mode, align_corners)
    if prod(input.shape[2:]) > _LARGEST:
        return NotImplemented
    if grad.shape != (*input.shape[:2], *grid.shape[1:-1]):
        raise ValueError("grid_sample_backward")  # as above
    x, at, arriving = _dense(input), _dense(grid), _dense(grad)
    own = x.dtype
    into, of_grid = np.zeros(input.shape, own), np.zeros(grid.shape, own)
    if arriving.size:
        weight = sizes[0] * sizes[5]
        arguments = (arriving.astype(own, copy=False), x, at, *sizes, into, of_grid)
        _backward(own, arriving.size, len(input), *arguments, weight=weight)
    return into.astype(input.dtype, copy=False), of_grid.astype(input.dtype, copy=False)


KERNELS: dict[str, Callable[..., Any]] = {
    "grid_sample": grid_sample,
    "grid_sample_backward": grid_sample_backward,
}
