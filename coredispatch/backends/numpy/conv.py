"""Convolution in NumPy: gather the windows into columns (im2col), then one matrix product.

Columns keep the order ``(N, groups, C/groups * K, L)`` (``K`` kernel positions, ``L`` output
positions): the product with the ``(groups, O/groups, C/groups * K)`` weight is then already
``(N, O, L)``, so that nothing is transposed. A batch goes in slices whose columns fit the cache.
Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.backends.numpy.windows import (
    Array,
    Ints,
    expand,
    inner_slices,
    offset_slices,
    output_size,
    pad_spatial,
    widen,
    window_view,
)

# Columns of one slice of the batch, in bytes: measured best between 1 and 4 MiB (L2 2 MiB).
_COLUMN_BYTES = 2 << 20


def _slices(batch: int, bytes_each: int) -> Iterator[slice]:
    step = max(1, _COLUMN_BYTES // max(bytes_each, 1))
    return (slice(i, min(i + step, batch)) for i in range(0, batch, step))


def _is_pointwise(kernel: Ints, stride: Ints) -> bool:
    return prod(kernel) == 1 and prod(stride) == 1


@lru_cache(maxsize=1024)
def _padded_output(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    padded = tuple(n + 2 * p for n, p in zip(spatial, padding))
    return output_size(padded, kernel, stride, dilation)


def _correlate(
    x: Array,
    weight: Array,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    kernel = weight.shape[2:]
    batch, channels = x.shape[:2]
    out_channels = weight.shape[0]
    output = _padded_output(x.shape[2:], kernel, stride, padding, dilation)
    x = pad_spatial(x, padding, padding)
    length = prod(output)
    if groups == channels == out_channels and groups > 1:
        return _correlate_depthwise(x, weight, stride, dilation, output)
    rows = channels // groups * prod(kernel)
    matrix = weight.reshape(groups, out_channels // groups, rows)
    if groups == 1:
        matrix, split = matrix[0], ()
    else:
        split = (groups,)
    if _is_pointwise(kernel, stride):
        columns = x.reshape(batch, *split, rows, length)
        return np.matmul(matrix, columns).reshape(batch, out_channels, *output)
    view = window_view(x, kernel, stride, dilation, output)
    bytes_each = channels * prod(kernel) * length * x.itemsize
    if batch * bytes_each <= _COLUMN_BYTES:
        columns = view.reshape(batch, *split, rows, length)
        return np.matmul(matrix, columns).reshape(batch, out_channels, *output)
    result = np.empty((batch, *split, out_channels // groups, length), np.result_type(x, weight))
    buffer = np.empty(0, x.dtype)
    for part in _slices(batch, bytes_each):
        piece = view[part]
        if buffer.shape != piece.shape:
            buffer = np.empty(piece.shape, x.dtype)
        np.copyto(buffer, piece)
        columns = buffer.reshape(piece.shape[0], *split, rows, length)
        np.matmul(matrix, columns, out=result[part])
    return result.reshape(batch, out_channels, *output)


def _correlate_depthwise(
    x: Array, weight: Array, stride: Ints, dilation: Ints, output: Ints
) -> Array:
    # One multiply-add per kernel position beats a batch of 1-row matrix products.
    kernel = weight.shape[2:]
    result = scratch = None
    for offset in product(*map(range, kernel)):
        piece = x[offset_slices(offset, stride, dilation, output)]
        scale = weight[(slice(None), 0, *offset)].reshape(-1, *(1 for _ in kernel))
        if result is None:
            result = piece * scale
            scratch = np.empty_like(result)
        else:
            result += np.multiply(piece, scale, out=scratch)
    return result


def _add_bias(result: Array, bias: Array | None) -> Array:
    if bias is None:
        return result
    if bias.shape != result.shape[1:2]:  # size 1 would broadcast
        raise ValueError(f"bias of shape {bias.shape} for {result.shape[1]} channels")
    result += bias.reshape(-1, *(1 for _ in result.shape[2:]))
    return result


def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Array:
    """Kernel of ``convolution``."""
    ndim = input.ndim - 2
    stride, padding = expand(stride, ndim), expand(padding, ndim)
    dilation, output_padding = expand(dilation, ndim), expand(output_padding, ndim)
    kernel = weight.shape[2:]
    if (
        min(*stride, *dilation, groups) < 1
        or min(*padding, *output_padding) < 0
        or weight.shape[0] % groups
        or input.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups)
        or 0 in kernel
        or (transposed and 0 in input.shape[2:])
    ):
        raise ValueError("convolution")  # the rule of the operator says what is wrong
    x, w = widen(input), widen(weight)
    if transposed:
        spatial = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, s, p, d, k, o in zip(
                input.shape[2:], stride, padding, dilation, kernel, output_padding
            )
        )
        shape = (input.shape[0], weight.shape[1] * groups, *spatial)
        result = conv_input_grad(x, w, shape, stride, padding, dilation, groups)
    else:
        result = _correlate(x, w, stride, padding, dilation, groups)
    return _add_bias(result, bias).astype(input.dtype, copy=False)


def conv_input_grad(
    grad: Array,
    weight: Array,
    input_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    """Kernel of ``conv_input_grad``: columns from one product, added back window by window."""
    ndim = grad.ndim - 2
    stride, padding = expand(stride, ndim), expand(padding, ndim)
    dilation = expand(dilation, ndim)
    dtype = grad.dtype
    grad, weight = widen(grad), widen(weight)
    batch, out_channels, *output = grad.shape
    channels, spatial = input_shape[1], input_shape[2:]
    kernel = weight.shape[2:]
    length = prod(output)
    split = (groups,) if groups > 1 else ()
    inner = weight.shape[1] * prod(kernel)
    matrix = weight.reshape(*split, out_channels // groups, inner).swapaxes(-1, -2)
    rows = grad.reshape(batch, *split, out_channels // groups, length)
    if _is_pointwise(kernel, stride) and tuple(output) == tuple(spatial):
        return np.matmul(matrix, rows).reshape(input_shape).astype(dtype, copy=False)
    padded_shape = (batch, channels, *(n + 2 * p for n, p in zip(spatial, padding)))
    padded = np.zeros(padded_shape, grad.dtype)
    bytes_each = channels * prod(kernel) * length * grad.itemsize
    if groups == channels == out_channels and groups > 1:  # depthwise: no columns to build
        scratch = np.empty_like(grad)
        for offset in product(*map(range, kernel)):
            scale = weight[(slice(None), 0, *offset)].reshape(-1, *(1 for _ in kernel))
            target = padded[offset_slices(offset, stride, dilation, output)]
            target += np.multiply(grad, scale, out=scratch)
        batch = 0
    for part in _slices(batch, bytes_each):
        target = padded[part]
        columns = np.matmul(matrix, rows[part])
        columns = columns.reshape(len(target), channels, *kernel, *output)
        for offset in product(*map(range, kernel)):
            target[offset_slices(offset, stride, dilation, output)] += columns[:, :, *offset]
    return padded[inner_slices(padding, spatial)].astype(dtype, order="C", copy=False)


def conv_weight_grad(
    grad: Array,
    input: Array,
    weight_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    """Kernel of ``conv_weight_grad``: ``sum_n grad[n] @ columns[n]^T``."""
    ndim = grad.ndim - 2
    stride, padding = expand(stride, ndim), expand(padding, ndim)
    dilation = expand(dilation, ndim)
    dtype = grad.dtype
    kernel = tuple(weight_shape[2:])
    grad = widen(grad)
    x = pad_spatial(widen(input), padding, padding)
    batch, channels = x.shape[:2]
    out_channels, output = grad.shape[1], grad.shape[2:]
    length = prod(output)
    split = (groups,) if groups > 1 else ()
    rows = grad.reshape(batch, *split, out_channels // groups, length)
    view = window_view(x, kernel, stride, dilation, output)
    result = np.zeros((*split, out_channels // groups, channels // groups * prod(kernel)), x.dtype)
    bytes_each = channels * prod(kernel) * length * x.itemsize
    for part in _slices(batch, bytes_each):
        columns = view[part]
        inner = channels // groups * prod(kernel)
        columns = columns.reshape(len(columns), *split, inner, length)
        if len(columns) == 1:
            result += np.matmul(rows[part][0], columns[0].swapaxes(-1, -2))
        else:
            result += np.add.reduce(np.matmul(rows[part], columns.swapaxes(-1, -2)), 0)
    return result.reshape(weight_shape).astype(dtype, copy=False)


KERNELS = {
    "convolution": silent(convolution),
    "conv_input_grad": silent(conv_input_grad),
    "conv_weight_grad": silent(conv_weight_grad),
}
