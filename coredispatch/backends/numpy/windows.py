"""Sliding windows over the spatial dimensions of NumPy arrays.

Convolution and pooling share these: zero-copy window views and padding in front of them. The
spatial dimensions are the last ones, as many as the kernel size has; those before are "lead".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Array = Any
Ints = Sequence[int]


def expand(value: Ints, ndim: int) -> tuple[int, ...]:
    """``value`` once per spatial dimension: a single int stands for all of them."""
    if type(value) is tuple and len(value) == ndim:
        return value
    return tuple(value) if len(value) == ndim else tuple(value) * ndim


def widen(x: Array) -> Array:
    """Half precision as float32, in which it accumulates; everything else as it is."""
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":  # V: bfloat16
        return x.astype(np.float32)
    return x


def pad_spatial(x: Array, before: Ints, after: Ints, value: Any = 0) -> Array:
    """``x`` with its spatial dimensions padded; ``x`` itself, made contiguous, when none is."""
    if not any(before) and not any(after):
        return x if x.flags.c_contiguous else np.ascontiguousarray(x)
    shape, inner = _padding(x.shape, tuple(before), tuple(after))
    padded = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    padded[inner] = x
    return padded


@lru_cache(maxsize=1024)
def _padding(
    shape: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The padded shape, and the index of what was there before."""
    lead, spatial = shape[: -len(before)], shape[-len(before) :]
    padded = lead + tuple(b + n + a for b, n, a in zip(before, spatial, after))
    return padded, inner_slices(before, spatial)


def inner_slices(before: Ints, spatial: Ints) -> tuple[Any, ...]:
    """Index of the unpadded part of an array padded by ``before``."""
    return (..., *(slice(b, b + n) for b, n in zip(before, spatial)))


def output_size(spatial: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[int, ...]:
    """Number of windows in each (already padded) spatial dimension.

    Raises ``ValueError`` where a window does not fit once: NumPy would go on with size 0.
    """
    size = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(spatial, kernel, stride, dilation)
    )
    if min(size) < 1:
        raise ValueError(f"window {tuple(kernel)} does not fit in {tuple(spatial)}")
    return size


def window_view(x: Array, kernel: Ints, stride: Ints, dilation: Ints, output: Ints) -> Array:
    """Zero-copy view ``(*lead, *kernel, *output)`` of contiguous ``x`` of ``(*lead, *spatial)``.

    ``np.ndarray`` is called instead of ``as_strided``: it checks the bounds, and costs 0.5 us
    against 4 us.
    """
    if x.size == 0:
        nothing = np.empty((*x.shape[: -len(kernel)], *kernel, *output), x.dtype)
        if nothing.size:
            raise ValueError("windows")  # the rule of the operator says what is wrong
        return nothing
    shape, strides = _window_layout(
        x.shape, x.strides, tuple(kernel), tuple(stride), tuple(dilation), tuple(output)
    )
    return np.ndarray(shape, x.dtype, x, 0, strides)


@lru_cache(maxsize=1024)
def _window_layout(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    output: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = len(kernel)
    lead, spatial = strides[:-n], strides[-n:]
    within = tuple(d * step for d, step in zip(dilation, spatial))
    between = tuple(s * step for s, step in zip(stride, spatial))
    return (*shape[:-n], *kernel, *output), (*lead, *within, *between)


def offset_slices(offset: Ints, stride: Ints, dilation: Ints, output: Ints) -> tuple[Any, ...]:
    """Index of the elements that stand at kernel position ``offset`` of every window."""
    return (
        ...,
        *(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, s, n in zip(offset, dilation, stride, output)
        ),
    )
