"""NumPy kernels on quantized arrays: conversions, linear, convolution, pooling, reshaping.

Products of 8-bit integers are summed by floating-point BLAS, which is exact here and many times
faster than NumPy's integer matrix product: with ``|x - zero_point| <= mx`` and
``|w - zero_point| <= mw`` every partial sum over ``k`` terms, in whatever order and with or
without fused multiply-add, is an integer of magnitude at most ``k * mx * mw``, and float32
represents every integer up to ``2**24``. Longer sums are cut into pieces that keep the bound and
the pieces are added in float64 (exact up to ``2**53``).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DTypeError, OpError, ShapeError
from coredispatch_quant.array import QuantizedArray, limits, storage_dtype, tensor_parameters
from coredispatch_quant.requantize import requantize

__all__ = ["conv2d", "dequantize", "linear", "max_pool", "quantize", "relu"]

_EXACT = 1 << 24  # every integer up to here is a float32
_INT32 = np.iinfo(np.int32)


def quantize(
    x: np.ndarray, scale: Any, zero_point: Any, axis: int | None, dtype: Any
) -> QuantizedArray:
    """``clamp(round(x / scale) + zero_point)``, midpoints to even, computed in float64.

    This is ONNX's QuantizeLinear. Infinities saturate; raises ArgumentError for NaN.
    """
    if x.dtype.kind in "iubc":
        raise DTypeError(f"only floating point is quantized, got {x.dtype}")
    blank = QuantizedArray(np.empty(x.shape, storage_dtype(dtype)), scale, zero_point, axis)
    low, high = limits(dtype)
    steps = x.astype(np.float64) / blank.along_axis(blank.scale)
    if np.isnan(steps).any():
        raise ArgumentError("the input holds NaN, which no integer stands for")
    np.rint(steps, out=steps)
    steps += blank.along_axis(blank.zero_point)
    return blank.like(np.clip(steps, low, high, out=steps).astype(blank.data.dtype))


def dequantize(q: QuantizedArray) -> np.ndarray:
    """``(data - zero_point) * scale`` in float32; the difference is exact."""
    steps = centred(q)
    return np.multiply(steps, np.asarray(q.along_axis(q.scale), np.float32), out=steps)


def centred(q: QuantizedArray) -> np.ndarray:
    """``data - zero_point`` as float32, exact."""
    return np.subtract(q.data, np.asarray(q.along_axis(q.zero_point), np.float32), dtype=np.float32)


def magnitude(q: QuantizedArray) -> int:
    """An upper bound of ``|data - zero_point|`` that needs no look at the data."""
    low, high = limits(q.dtype)
    zero = np.asarray(q.zero_point)
    return int(max(zero.max() - low, high - zero.min()))


def exact_matmul(a: np.ndarray, b: np.ndarray, bound: int) -> np.ndarray:
    """``a @ b`` of integer-valued float32 arrays whose products are at most ``bound``; exact.

    Float32 where the whole sum keeps below 2**24, else float64.
    """
    terms = a.shape[-1]
    piece = max(1, _EXACT // bound)
    if terms <= piece:
        return np.matmul(a, b)
    total = np.matmul(a[..., :piece], b[..., :piece, :]).astype(np.float64)
    for first in range(piece, terms, piece):
        total += np.matmul(a[..., first : first + piece], b[..., first : first + piece, :])
    return total


def accumulator(products: np.ndarray, bias: np.ndarray | None, bound: int) -> np.ndarray:
    """Products plus bias as int64 whose values fit int32; raises OpError where they do not.

    ``bound`` is the largest magnitude the products can have: the data is looked at only where
    an overflow is possible at all.
    """
    total = products.astype(np.int64)
    if bias is not None:
        total += bias
        bound += int(np.abs(bias).max(initial=0))
    if bound > _INT32.max and total.size and (total.max() > _INT32.max or total.min() < _INT32.min):
        raise OpError(
            "the int32 accumulator overflows",
            fix="split the reduction, or use smaller weights (a larger weight scale)",
        )
    return total


def bias_steps(bias: np.ndarray | None, scale: Any, channels: int) -> np.ndarray | None:
    """The bias in steps of ``scale`` (input scale times weight scale), rounded half to even.

    An int32 bias is taken as steps already. Raises ArgumentError where a step number does not
    fit int32: saturating it would silently change the result.
    """
    if bias is None:
        return None
    if bias.shape != (channels,):
        raise ShapeError(f"bias has the shape {bias.shape}, expected ({channels},)")
    if bias.dtype == np.int32:
        return bias.astype(np.int64)
    if bias.dtype.kind in "iubc":
        raise DTypeError(f"a bias is floating point or int32, got {bias.dtype}")
    steps = np.rint(bias.astype(np.float64) / scale)
    if not (np.abs(steps) <= _INT32.max).all():
        worst = int(np.argmax(np.where(np.isnan(steps), np.inf, np.abs(steps))))
        raise ArgumentError(
            f"bias[{worst}] = {bias[worst]} is {steps[worst]:.3g} steps of the accumulator, "
            "which do not fit int32",
            fix="use a larger weight scale for this output channel",
        )
    return steps.astype(np.int64)


def check_operands(x: QuantizedArray, weight: QuantizedArray) -> None:
    """Activations carry one scale; weights one, or one per output channel."""
    if x.per_channel:
        raise ArgumentError(
            "the input is quantized per channel", fix="quantize activations per tensor"
        )
    if weight.axis not in (None, 0):
        raise ArgumentError(
            f"the weight is quantized along dimension {weight.axis}, expected 0",
            fix="quantize weights per output channel: axis=0",
        )


def finish(
    total: np.ndarray,
    x: QuantizedArray,
    weight: QuantizedArray,
    channel_axis: int,
    scale: float,
    zero_point: int,
    relu: bool,
) -> QuantizedArray:
    """Requantize an accumulator whose output channels lie along ``channel_axis``."""
    scale, zero = tensor_parameters(scale, zero_point, x.dtype)
    factor = x.scale * np.asarray(weight.scale) / scale
    if factor.ndim:
        factor = factor.reshape([-1 if d == channel_axis else 1 for d in range(total.ndim)])
    low, high = limits(x.dtype)
    data = requantize(total, factor, zero, zero if relu else low, high, x.data.dtype)
    return QuantizedArray(data, scale, zero)


def linear(
    x: QuantizedArray,
    weight: QuantizedArray,
    bias: np.ndarray | None,
    scale: float,
    zero_point: int,
    relu: bool = False,
) -> QuantizedArray:
    """``x @ weight.T + bias`` in integers; ``x`` is ``(..., k)``, ``weight`` ``(n, k)``."""
    check_operands(x, weight)
    n, k = weight.shape
    steps = bias_steps(bias, x.scale * weight.scale, n)
    bound = magnitude(x) * magnitude(weight)
    columns = weight.cache.get("columns")
    if columns is None:
        columns = weight.cache["columns"] = np.ascontiguousarray(centred(weight).T)
    rows = centred(x).reshape(-1, x.shape[-1])
    total = accumulator(exact_matmul(rows, columns, bound), steps, bound * k)
    return finish(total.reshape(*x.shape[:-1], n), x, weight, x.ndim - 1, scale, zero_point, relu)


def conv2d(
    x: QuantizedArray,
    weight: QuantizedArray,
    bias: np.ndarray | None,
    scale: float,
    zero_point: int,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    relu: bool = False,
) -> QuantizedArray:
    """Cross-correlation in integers; NCHW input, OIHW weight, padded with the zero point."""
    check_operands(x, weight)
    batch = x.shape[0]
    n, per_group, kh, kw = weight.shape
    k = per_group * kh * kw
    steps = bias_steps(bias, x.scale * weight.scale, n)
    # The input's zero point stands for real zero, so padding comes after subtracting it.
    (top, left) = padding
    padded = np.pad(centred(x), ((0, 0), (0, 0), (top, top), (left, left)))
    patches = windows(padded, (kh, kw), stride, dilation)
    oh, ow = patches.shape[2:4]
    # (batch, groups, k, positions), with k in the order of the weight's channels and taps.
    columns = patches.transpose(0, 1, 4, 5, 2, 3).reshape(batch, groups, k, oh * ow)
    kernel = weight.cache.get("rows")
    if kernel is None:
        kernel = weight.cache["rows"] = np.ascontiguousarray(centred(weight))
    bound = magnitude(x) * magnitude(weight)
    products = exact_matmul(kernel.reshape(groups, n // groups, k), columns, bound)
    products = products.reshape(batch, n, oh, ow)
    if steps is not None:
        steps = steps[:, None, None]
    total = accumulator(products, steps, bound * k)
    return finish(total, x, weight, 1, scale, zero_point, relu)


def windows(
    x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> np.ndarray:
    """All windows of an NCHW array as a view ``(n, c, out_h, out_w, kernel_h, kernel_w)``."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def relu(q: QuantizedArray) -> QuantizedArray:
    """``max(data, zero_point)``: scale and zero point stay."""
    zero = np.asarray(q.along_axis(q.zero_point)).astype(q.data.dtype)
    return q.like(np.maximum(q.data, zero))


def max_pool(
    q: QuantizedArray,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> QuantizedArray:
    """Maximum over windows of the integers: a positive scale keeps their order.

    Pools the last ``len(kernel_size)`` dimensions. One pass per element of a window; padding
    holds the smallest integer.
    """
    n = len(kernel_size)
    spatial = zip(q.shape[-n:], kernel_size, stride, padding, dilation, strict=True)
    sizes = [pooled(*window, ceil_mode) for window in spatial]
    reach = [
        (size - 1) * s + (k - 1) * d + 1
        for size, k, s, d in zip(sizes, kernel_size, stride, dilation, strict=True)
    ]
    # Behind, enough for the last window, which ceil_mode may let overhang.
    border = [
        (p, max(0, r - length - p))
        for length, r, p in zip(q.shape[-n:], reach, padding, strict=True)
    ]
    data = np.pad(q.data, [(0, 0)] * (q.ndim - n) + border, constant_values=limits(q.dtype)[0])
    out: np.ndarray | None = None
    for place in itertools.product(*map(range, kernel_size)):
        starts = [i * d for i, d in zip(place, dilation, strict=True)]
        taps = tuple(
            slice(at, at + (size - 1) * s + 1, s)
            for at, size, s in zip(starts, sizes, stride, strict=True)
        )
        tap = data[(..., *taps)]
        out = tap.copy() if out is None else np.maximum(out, tap, out=out)
    assert out is not None
    return q.like(out)


def pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Output length of a pooled dimension; with ``ceil`` a last window must start inside."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (out - 1) * stride >= size + padding:
        out -= 1
    return out
