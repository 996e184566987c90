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
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coredispatch.plugin import (
    ArgumentError,
    DTypeError,
    MissingKernel,
    OpError,
    ShapeError,
    call_raw,
)
from coredispatch_quant.array import QuantizedArray, limits, qint8, quint8, storage_dtype
from coredispatch_quant.requantize import multiplier_and_shift, rescale
from coredispatch_quant.windows import output_size, pair

__all__ = [
    "INTEGER_KERNELS",
    "conv2d",
    "dequantize",
    "linear",
    "max_pool",
    "quantize",
    "relu",
]

_EXACT = 1 << 24  # every integer up to here is a float32
_INT32 = np.iinfo(np.int32)
#: integers of tensors whose parameters alone are wanted
_NOTHING = {dtype: np.empty(0, storage_dtype(dtype)) for dtype in (qint8, quint8)}
_MANY = 8192  # elements from which the best kernel is worth 1 us to find it
_COLUMNS = 1 << 20  # floats of unfolded images at a time: 4 MB


def quantize(
    x: np.ndarray, scale: Any, zero_point: Any, axis: int | None, dtype: Any
) -> QuantizedArray:
    """``clamp(round(x / scale) + zero_point)``, midpoints to even, computed in float64.

    This is ONNX's QuantizeLinear. Infinities saturate; raises ArgumentError for NaN.
    """
    if x.dtype.kind in "iubc":
        raise DTypeError(f"only floating point is quantized, got {x.dtype}")
    if axis is None:
        blank = QuantizedArray(_NOTHING[dtype], scale, zero_point)
        options = blank.scale, blank.zero_point, dtype is qint8
        try:
            return blank.like(call_raw("numbers_to_bytes", "cpu", x, *options))
        except ArgumentError as error:
            error.call = None  # the operator that was called is named instead
            raise
    blank = QuantizedArray(np.empty(x.shape, storage_dtype(dtype)), scale, zero_point, axis)
    scales, zeros = blank.along_axis(blank.scale), blank.along_axis(blank.zero_point)
    return blank.like(_rounded(x, scales, zeros, dtype))


def numbers_to_bytes(x: np.ndarray, scale: float, zero_point: int, signed: bool) -> np.ndarray:
    """The operator of that name."""
    with np.errstate(all="ignore"):
        return _rounded(x, scale, zero_point, qint8 if signed else quint8)


def _rounded(x: np.ndarray, scale: Any, zero_point: Any, dtype: Any) -> np.ndarray:
    low, high = limits(dtype)
    # NumPy turns 0-d results into scalars, which cannot be written to.
    steps = np.asarray(x.astype(np.float64) / scale)
    if np.isnan(steps).any():
        raise ArgumentError(
            "the input holds NaN, which no integer stands for", fix="use x.nan_to_num() before"
        )
    np.rint(steps, out=steps)
    steps += zero_point
    return np.clip(steps, low, high, out=steps).astype(storage_dtype(dtype))


def dequantize(q: QuantizedArray) -> np.ndarray:
    """``(data - zero_point) * scale`` in float32; the difference is exact."""
    if q.axis is None and q.data.size >= _MANY:
        found: np.ndarray = call_raw("bytes_to_numbers", "cpu", q.data, q.scale, q.zero_point)
        return found
    return _scaled(centred(q), q.along_axis(q.scale))


def bytes_to_numbers(data: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """The operator of that name."""
    return _scaled(np.subtract(data, np.float32(zero_point), dtype=np.float32), scale)


def _scaled(steps: Any, scale: Any) -> np.ndarray:
    steps = np.asarray(steps)
    return np.multiply(steps, np.asarray(scale, np.float32), out=steps)


def centred(q: QuantizedArray) -> np.ndarray:
    """``data - zero_point`` as float32, exact."""
    zero = np.asarray(q.along_axis(q.zero_point), np.float32)
    return np.asarray(np.subtract(q.data, zero, dtype=np.float32))


def magnitude(q: QuantizedArray) -> int:
    """An upper bound of ``|data - zero_point|`` that needs no look at the data."""
    return farthest(q.data, q.zero_point)


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


def check_accumulator(products: np.ndarray, bias: np.ndarray | None, bound: int) -> None:
    """Raise OpError where ``products + bias`` does not fit int32.

    ``bound`` is the largest magnitude the products can have: the data is looked at only where
    an overflow is possible at all.
    """
    if bias is not None:
        bound += int(np.abs(bias).max(initial=0))
    if bound <= _INT32.max or not products.size:
        return
    total = products.astype(np.int64) + (0 if bias is None else bias)
    if total.max() > _INT32.max or total.min() < _INT32.min:
        raise OpError(
            "the int32 accumulator overflows",
            fix="split the reduction, or use smaller weights (a larger weight scale)",
        )


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


@dataclass
class Output:
    """How accumulators become 8-bit integers.

    ``channels`` are int64 arrays, one number for each output channel, as the operators
    ``requantized_linear`` and ``requantized_conv2d`` take them: the weight's zero points, bias,
    multipliers and shifts. ``blank`` has the scale and the zero point of the result: checking them
    takes longer than a small product.
    """

    blank: QuantizedArray
    channels: tuple[np.ndarray, ...]
    low: int
    high: int
    bound: int
    added: int

    @classmethod
    def of(
        cls,
        x: QuantizedArray,
        weight: QuantizedArray,
        bias: np.ndarray | None,
        scale: float,
        zero_point: int,
        relu: bool,
    ) -> Output:
        """Check and combine the parameters of the operands and of the result.

        The last is kept with the weight: a layer is called with one set of them.
        """
        given = None if bias is None else (bias.dtype, bias.shape, bias.tobytes())
        asked = (x.dtype, x.axis, x.scale, x.zero_point, given, scale, zero_point, relu)
        known = weight.cache.get("output")
        if x.axis is None and known is not None and known[0] == asked:
            return known[1]
        check_operands(x, weight)
        blank = QuantizedArray(np.empty(0, storage_dtype(x.dtype)), scale, zero_point)
        n = weight.shape[0]
        steps = bias_steps(bias, x.scale * weight.scale, n)
        split = multiplier_and_shift(x.scale * np.asarray(weight.scale) / blank.scale)
        numbers = (weight.zero_point, 0 if steps is None else steps, *split)
        channels = tuple(np.array(np.broadcast_to(v, (n,)), np.int64) for v in numbers)
        low, high = limits(x.dtype)
        made = cls(
            blank,
            channels,
            blank.zero_point if relu else low,
            high,
            magnitude(x) * magnitude(weight),
            0 if steps is None else int(np.abs(steps).max(initial=0)),
        )
        weight.cache["output"] = asked, made
        return made

    def fits(self, terms: int) -> bool:
        """Whether no sum over ``terms`` products each can leave int32, whatever the data."""
        return self.bound * terms + self.added <= _INT32.max


def finished(
    products: np.ndarray, parameters: Any, axis: int, bound: int, zero_point: int,
    low: int, high: int, dtype: np.dtype,
) -> np.ndarray:  # fmt: skip
    """The stored integers of a matrix of sums of at most ``bound``, with its channels on ``axis``.

    ``parameters`` are bias, multipliers and shifts.

    Raises OpError where a sum does not fit int32.
    """
    bias, multiplier, shift = (v[:, None] if axis == 0 else v[None] for v in parameters)
    check_accumulator(products, bias, bound)
    return rescale(products, multiplier, shift, zero_point, low, high, dtype, bias)


def centred_weight(
    weight: np.ndarray, zeros: np.ndarray, kept: dict[str, Any] | None, turned: bool
) -> np.ndarray:
    """``weight - zero point`` as contiguous float32, transposed where ``turned``; kept."""
    kept = {} if kept is None else kept
    name = "columns" if turned else "rows"
    known = kept.get(name)
    if known is None or not np.array_equal(known[0], zeros):
        zero = zeros.reshape(-1, *[1] * (weight.ndim - 1)).astype(np.float32)
        steps = np.subtract(weight, zero, dtype=np.float32)
        found = np.ascontiguousarray(steps.T if turned else steps)
        known = kept[name] = zeros.copy(), found
    return known[1]


def farthest(x: np.ndarray, zero: Any) -> int:
    """An upper bound of ``|x - zero|`` that needs no look at ``x``."""
    limit = np.iinfo(x.dtype)
    zeros = np.asarray(zero)  # of no channel there is none
    return int(
        max(1, zeros.max(initial=limit.min) - limit.min, limit.max - zeros.min(initial=limit.max))
    )


def requantized_linear(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero_point: int, low: int, high: int,
    kept: dict[str, Any] | None = None,
) -> np.ndarray:  # fmt: skip
    """The operator of that name, by floating-point BLAS."""
    n, k = weight.shape
    columns = centred_weight(weight, zeros, kept, True)
    rows = np.subtract(x, np.float32(x_zero), dtype=np.float32)
    # -1 would have no meaning where k is 0.
    rows = rows.reshape(math.prod(x.shape[:-1]), k)
    bound = farthest(x, x_zero) * farthest(weight, zeros)
    products, parameters = exact_matmul(rows, columns, bound), (bias, multiplier, shift)
    data = finished(products, parameters, 1, bound * k, zero_point, low, high, x.dtype)
    return data.reshape(*x.shape[:-1], n)


def linear(
    x: QuantizedArray,
    weight: QuantizedArray,
    bias: np.ndarray | None,
    scale: float,
    zero_point: int,
    relu: bool = False,
) -> QuantizedArray:
    """``x @ weight.T + bias`` in integers; ``x`` is ``(..., k)``, ``weight`` ``(n, k)``."""
    output = Output.of(x, weight, bias, scale, zero_point, relu)
    data = computed("requantized_linear", x, weight, output)
    return output.blank.like(data)


def computed(
    name: str, x: QuantizedArray, weight: QuantizedArray, output: Output, *options: Any
) -> np.ndarray:
    """The best kernel there is for the integers of ``x`` and ``weight``."""
    arguments = (
        x.data, weight.data, *output.channels, x.zero_point, output.blank.zero_point,
        output.low, output.high, *options, weight.cache,
    )  # fmt: skip
    if output.fits(math.prod(weight.shape[1:])):
        found: np.ndarray = call_raw(name, "cpu", *arguments)
        return found
    return INTEGER_KERNELS[name](*arguments)  # which looks whether the sums do


def requantized_conv2d(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero_point: int, low: int, high: int,
    stride: Any, padding: Any, dilation: Any, groups: int,
    kept: dict[str, Any] | None = None,
) -> np.ndarray:  # fmt: skip
    """The operator of that name, by floating-point BLAS over unfolded images."""
    stride, padding, dilation = pair(stride), pair(padding), pair(dilation)
    batch, given, height, width = x.shape
    n, per_group, kh, kw = weight.shape
    k = per_group * kh * kw
    (top, left) = padding
    oh, ow = output_size((height, width), (kh, kw), stride, padding, dilation)
    kernel = centred_weight(weight, zeros, kept, False).reshape(groups, n // groups, k)
    # Channels first, so that one matrix product serves many images. The zero point stands for
    # real zero: padding comes after subtracting it.
    padded = np.zeros((given, batch, height + 2 * top, width + 2 * left), np.float32)
    inside = padded[:, :, top : top + height, left : left + width]
    np.subtract(x.swapaxes(0, 1), np.float32(x_zero), out=inside, dtype=np.float32)
    bound = farthest(x, x_zero) * farthest(weight, zeros)
    data, parameters = np.empty((batch, n, oh, ow), x.dtype), (bias, multiplier, shift)
    step = max(1, _COLUMNS // max(1, groups * k * oh * ow))
    for first in range(0, batch, step):
        images = padded[:, first : first + step]
        count = images.shape[1]
        windows = unfold(images, (kh, kw), stride, dilation, (oh, ow))
        columns = windows.reshape(groups, k, count * oh * ow)
        products = exact_matmul(kernel, columns, bound).reshape(n, count * oh * ow)
        part = finished(products, parameters, 0, bound * k, zero_point, low, high, x.dtype)
        data[first : first + step] = part.reshape(n, count, oh, ow).swapaxes(0, 1)
    return data


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
    # Raises where there are no windows.
    output_size(
        (x.shape[2], x.shape[3]), (weight.shape[2], weight.shape[3]), stride, padding, dilation
    )
    output = Output.of(x, weight, bias, scale, zero_point, relu)
    options = stride, padding, dilation, groups
    data = computed("requantized_conv2d", x, weight, output, *options)
    return output.blank.like(data)


#: kernels of operators of the table, over the integers
INTEGER_KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "bytes_to_numbers": bytes_to_numbers,
    "numbers_to_bytes": numbers_to_bytes,
    "requantized_linear": requantized_linear,
    "requantized_conv2d": requantized_conv2d,
}


def unfold(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
) -> np.ndarray:
    """The windows of ``(c, n, h, w)`` as ``(c, kernel_h, kernel_w, n, out_h, out_w)``.

    One strided copy per element of a window: measured four times faster than copying a view of
    all windows, whose innermost runs are as short as the kernel is wide.
    """
    out = np.empty((x.shape[0], *kernel, x.shape[1], *size), x.dtype)
    for i, j in np.ndindex(*kernel):
        y, z = i * dilation[0], j * dilation[1]
        out[:, i, j] = x[
            :,
            :,
            y : y + (size[0] - 1) * stride[0] + 1 : stride[0],
            z : z + (size[1] - 1) * stride[1] + 1 : stride[1],
        ]
    return out


def relu(q: QuantizedArray) -> QuantizedArray:
    """``max(data, zero_point)``: scale and zero point stay."""
    zero = np.asarray(q.along_axis(q.zero_point)).astype(q.data.dtype)
    return q.like(np.asarray(np.maximum(q.data, zero)))


def per_window(q: QuantizedArray, n: int) -> None:
    """Raise MissingKernel where the scales vary along one of the last ``n`` dimensions."""
    if q.axis is not None and q.axis >= q.ndim - n:
        raise MissingKernel(
            f"there is no kernel that pools dimension {q.axis}, along which the scales vary",
            fix="quantize along another dimension or per tensor, or call .dequantize()",
        )


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
    holds the smallest integer. MissingKernel where the scales vary along one of these.
    """
    n = len(kernel_size)
    per_window(q, n)
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
    data = q.data
    if any(map(any, border)):
        lowest = limits(q.dtype)[0]
        data = np.pad(data, [(0, 0)] * (q.ndim - n) + border, constant_values=lowest)
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
