"""Kernels bit for bit against the integer reference."""

from __future__ import annotations

import integer_reference as exact
import numpy as np
import pytest

from coredispatch.plugin import (
    ArgumentError,
    DimError,
    DTypeError,
    MissingKernel,
    OpError,
    ShapeError,
)
from coredispatch_quant import kernels
from coredispatch_quant.array import QuantizedArray, limits, qint8, quint8

pytestmark = pytest.mark.once

RNG = np.random.default_rng(11)


def quantized(shape, dtype, scale, zero, axis=None):
    info = np.iinfo(dtype)
    data = RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    return QuantizedArray(data, scale, zero, axis)


def per_channel(shape, dtype, with_zero):
    n = shape[0]
    info = np.iinfo(dtype)
    zero = RNG.integers(info.min, info.max + 1, n) if with_zero else np.zeros(n, np.int64)
    return quantized(shape, dtype, RNG.uniform(0.001, 0.1, n), zero, 0)


WEIGHTS = {
    "int8": lambda shape: quantized(shape, np.int8, 0.031, 0),
    "int8 with zero point": lambda shape: quantized(shape, np.int8, 0.031, -9),
    "uint8": lambda shape: quantized(shape, np.uint8, 0.02, 131),
    "per channel": lambda shape: per_channel(shape, np.int8, False),
    "per channel with zero points": lambda shape: per_channel(shape, np.uint8, True),
}
INPUTS = [(np.uint8, 0.05, 77), (np.uint8, 0.05, 0), (np.int8, 0.05, -128), (np.int8, 0.07, 5)]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(("dtype", "sx", "zx"), INPUTS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("k", [1, 9, 40])
def test_linear(weight, dtype, sx, zx, relu, k):
    x = quantized((5, k), dtype, sx, zx)
    w = WEIGHTS[weight]((7, k))
    bias = RNG.uniform(-3, 3, 7).astype(np.float32)
    low, high = limits(x.dtype)
    zero = low + 90
    for b, scale in ((bias, 0.4), (None, 0.03), (bias, 0.0007)):
        got = kernels.linear(x, w, b, scale, zero, relu)
        want = exact.linear(
            x.data.tolist(), zx, sx, w.data.tolist(), w.zero_point, w.scale, b, scale, zero,
            zero if relu else low, high,
        )  # fmt: skip
        assert got.data.dtype == dtype
        assert (got.scale, got.zero_point) == (scale, zero)
        assert got.data.tolist() == want


def test_what_is_kept_follows_the_zero_points():
    """``kept`` belongs to the integers of the weight; what is added to them may change."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 256, s).astype(np.uint8) for s in ((5, 8), (3, 8)))
    kept: dict = {}
    for zero in (0, 200):
        zeros, bias, multiplier, shift = (np.full(3, v) for v in (zero, 0, 2**30, 6))
        given = x, w, zeros, bias, multiplier, shift, 0, 0, 0, 255
        again = kernels.requantized_linear(*given, kept)
        assert again.tolist() == kernels.requantized_linear(*given).tolist()


CONVS = [
    # input, weight, stride, padding, dilation, groups
    ((2, 3, 6, 5), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 4, 7, 7), (6, 2, 3, 2), (2, 1), (0, 2), (1, 2), 2),
    ((1, 3, 5, 5), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    ((2, 2, 4, 4), (3, 2, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((0, 2, 4, 4), (3, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(("dtype", "sx", "zx"), INPUTS[::3])
@pytest.mark.parametrize("case", CONVS)
def test_conv2d(weight, dtype, sx, zx, case):
    xs, ws, *window = case
    x = quantized(xs, dtype, sx, zx)
    w = WEIGHTS[weight](ws)
    bias = RNG.uniform(-1, 1, ws[0]).astype(np.float32)
    low, high = limits(x.dtype)
    for b, relu in ((bias, False), (None, True)):
        got = kernels.conv2d(x, w, b, 0.21, low + 50, *window, relu)
        if not xs[0]:
            assert got.shape == (0, 3, 3, 3)
            continue
        want = exact.conv2d(
            x.data.tolist(), zx, sx, w.data.tolist(), w.zero_point, w.scale, b, 0.21, low + 50,
            low + 50 if relu else low, high, *window,
        )  # fmt: skip
        assert got.data.tolist() == want


def test_images_are_unfolded_in_portions(monkeypatch):
    x = quantized((5, 2, 6, 6), np.uint8, 0.05, 3)
    w = per_channel((4, 2, 3, 3), np.int8, False)
    window = (1, 1), (1, 1), (1, 1), 1
    whole = kernels.conv2d(x, w, None, 0.2, 9, *window)
    monkeypatch.setattr(kernels, "_COLUMNS", 2 * 2 * 9 * 36)
    portions = kernels.conv2d(x, w, None, 0.2, 9, *window)
    assert whole.data.tolist() == portions.data.tolist()


@pytest.mark.parametrize("k", [1023, 1024, 1025, 5000])
def test_long_sums_are_exact(k):
    """Past 2**24 float32 would drop the last bit; worst case first, all products extreme."""
    x = QuantizedArray(np.zeros((2, k), np.uint8), 1.0, 128)
    w = QuantizedArray(np.full((3, k), -128, np.int8), 1.0, 0)
    x.data[1] = 255
    x.data[1, 0] = 254
    products = kernels.exact_matmul(kernels.centred(x), kernels.centred(w).T, 128 * 128)
    assert products[0].tolist() == [128 * 128 * k] * 3
    assert products[1].tolist() == [-128 * (127 * k - 1)] * 3


def test_exactness_bound_is_the_float32_limit():
    odd = np.full((1, 300), 255, np.float32)
    bound = 255 * 255
    got = kernels.exact_matmul(odd, odd.T, bound)
    assert got.dtype == np.float64
    assert got.item() == 300 * bound
    assert kernels.exact_matmul(odd[:, :258], odd[:, :258].T, bound).dtype == np.float32


def test_accumulator_overflow_is_an_error():
    k = 2**31 // (128 * 128) + 1
    x = QuantizedArray(np.zeros((1, k), np.uint8), 1.0, 128)
    w = QuantizedArray(np.full((1, k), -128, np.int8), 1.0)
    with pytest.raises(OpError, match="int32 accumulator overflows"):
        kernels.linear(x, w, None, 1e6, 0)


def test_bias():
    x = QuantizedArray(np.full((1, 2), 10, np.uint8), 0.5, 10)
    w = QuantizedArray(np.ones((3, 2), np.int8), 0.25)
    # Steps of 0.125: 0.5 and 1.5 steps lie midway and go to the even neighbour.
    bias = np.array([0.0625, 0.1875, -0.0625], np.float32)
    assert kernels.linear(x, w, bias, 0.125, 0).data.tolist() == [[0, 2, 0]]
    steps = np.array([7, -3, 200], np.int32)
    assert kernels.linear(x, w, steps, 0.125, 5).data.tolist() == [[12, 2, 205]]
    with pytest.raises(ArgumentError, match=r"bias\[1\]"):
        kernels.linear(x, w, np.array([0, 1e12, 0], np.float32), 0.1, 0)
    with pytest.raises(ArgumentError, match=r"bias\[2\]"):
        kernels.linear(x, w, np.array([0, 1, np.nan], np.float32), 0.1, 0)
    with pytest.raises(DTypeError):
        kernels.linear(x, w, np.zeros(3, np.int64), 0.1, 0)
    with pytest.raises(ShapeError):
        kernels.linear(x, w, np.zeros(4, np.float32), 0.1, 0)


@pytest.mark.parametrize("dtype", [qint8, quint8])
def test_quantize_and_dequantize(dtype):
    low, high = limits(dtype)
    # Multiples of one half of the scale: every second one is a midpoint.
    x = (np.arange(-600, 601) * 0.125).astype(np.float32)
    zero = low + 100
    q = kernels.quantize(x, 0.25, zero, None, dtype)
    want = [min(max(round(v / 0.25) + zero, low), high) for v in x.tolist()]
    assert q.data.tolist() == want
    back = kernels.dequantize(q)
    assert back.dtype == np.float32
    assert back.tolist() == [(v - zero) * 0.25 for v in want]


def test_quantize_per_channel():
    x = RNG.standard_normal((2, 3, 4))
    scales, zeros = np.array([0.1, 0.02, 1.5]), np.array([0, -5, 7])
    q = kernels.quantize(x, scales, zeros, -2, qint8)
    assert q.axis == 1
    for c in range(3):
        one = kernels.quantize(x[:, c], scales[c], zeros[c], None, qint8)
        np.testing.assert_array_equal(q.data[:, c], one.data)
        np.testing.assert_array_equal(kernels.dequantize(q)[:, c], kernels.dequantize(one))


def test_quantize_special_values():
    q = kernels.quantize(np.array([np.inf, -np.inf, -0.0]), 0.1, 3, None, quint8)
    assert q.data.tolist() == [255, 0, 3]
    with pytest.raises(ArgumentError, match="NaN"):
        kernels.quantize(np.array([np.nan]), 0.1, 3, None, quint8)
    with pytest.raises(DTypeError):
        kernels.quantize(np.array([1]), 0.1, 3, None, quint8)


def test_relu():
    q = QuantizedArray(np.arange(-128, 128).astype(np.int8), 0.1, -20)
    assert kernels.relu(q).data.tolist() == [max(v, -20) for v in range(-128, 128)]
    p = QuantizedArray(np.array([[1, 9], [1, 9]], np.uint8), [1.0, 2.0], [3, 5], 0)
    assert kernels.relu(p).data.tolist() == [[3, 9], [5, 9]]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation"),
    [
        ((6, 7), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((5, 5), (3, 2), (1, 3), (1, 0), (1, 1)),
        ((9, 8), (2, 3), (3, 2), (1, 1), (2, 2)),
        ((2, 2), (2, 2), (5, 5), (1, 1), (1, 1)),
    ],
)
def test_max_pool(size, kernel, stride, padding, dilation, ceil):
    q = quantized((2, 3, *size), np.int8, 0.3, 4)
    got = kernels.max_pool(q, kernel, stride, padding, dilation, ceil)
    assert got.scale == q.scale
    assert got.zero_point == q.zero_point
    data = q.data.tolist()

    def starts(d):
        span = size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        first = range(0, max(span, 0) + 1, stride[d])
        last = first[-1] + stride[d]
        if ceil and span > first[-1] and last < size[d] + padding[d]:
            return [*first, last]
        return [*first]

    def inside(first, d):
        taps = range(first - padding[d], first - padding[d] + kernel[d] * dilation[d], dilation[d])
        return [t for t in taps if 0 <= t < size[d]]

    for b, c in np.ndindex(2, 3):
        want = [
            [max(data[b][c][y][x] for y in inside(i, 0) for x in inside(j, 1)) for j in starts(1)]
            for i in starts(0)
        ]
        assert got.data[b, c].tolist() == want


def test_max_pool_along_the_scales_is_refused():
    q = QuantizedArray(np.zeros((2, 3, 4, 4), np.int8), np.full(4, 0.1), 0, axis=3)
    with pytest.raises(MissingKernel, match="dimension 3"):
        kernels.max_pool(q, (2, 2), (2, 2), (0, 0), (1, 1), False)


def test_max_pool_of_other_dimensions():
    q = quantized((3, 10), np.uint8, 0.3, 4)
    got = kernels.max_pool(q, (3,), (2,), (1,), (1,), False)
    padded = np.pad(q.data, ((0, 0), (1, 1)))
    assert got.data.tolist() == [
        [int(max(row[i : i + 3])) for i in range(0, 10, 2)] for row in padded.tolist()
    ]


def test_parameters_are_checked():
    data = np.zeros((2, 3), np.int8)
    with pytest.raises(DTypeError, match="int8 or uint8"):
        QuantizedArray(np.zeros(3), 1.0)
    for scale in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="scale"):
            QuantizedArray(data, scale)
    with pytest.raises(ArgumentError, match=r"zero_point\[0\] is 200"):
        QuantizedArray(data, 1.0, 200)
    with pytest.raises(DTypeError, match="integer"):
        QuantizedArray(data, 1.0, 0.5)
    with pytest.raises(ShapeError, match="2 channels"):
        QuantizedArray(data, [1.0, 2.0, 3.0], 0, 0)
    with pytest.raises(ShapeError, match="without an axis"):
        QuantizedArray(data, [1.0, 2.0], 0)
    with pytest.raises(DimError):
        QuantizedArray(data, [1.0, 2.0], 0, 2)


def test_operands_are_checked():
    x = QuantizedArray(np.zeros((2, 3), np.uint8), 1.0)
    w = QuantizedArray(np.zeros((4, 3), np.int8), [1.0, 2.0, 3.0], 0, 1)
    with pytest.raises(ArgumentError, match="dimension 1"):
        kernels.linear(x, w, None, 1.0, 0)
    rows = QuantizedArray(np.zeros((2, 3), np.uint8), [1.0, 2.0], 0, 0)
    with pytest.raises(ArgumentError, match="activations per tensor"):
        kernels.linear(rows, QuantizedArray(np.zeros((4, 3), np.int8), 1.0), None, 1.0, 0)


def test_a_convolution_of_nothing_and_one_without_windows():
    w = quantized((2, 0, 3, 3), np.int8, 0.1, 0)
    x = quantized((2, 0, 7, 6), np.uint8, 0.1, 3)
    options = ((1, 1), (0, 0), (1, 1), 1)
    out = kernels.conv2d(x, w, None, 0.1, 120, *options)
    assert out.shape == (2, 2, 5, 4) and (out.data == 120).all()
    none, empty = (quantized(shape, np.int8, 0.1, 0) for shape in ((0, 0, 3, 3), (0, 0, 0, 0)))
    assert kernels.conv2d(x, none, None, 0.1, 120, *options).shape == (2, 0, 5, 4)
    rows = per_channel((0, 0, 3, 3), np.int8, True)  # as many scales as output channels: none
    assert kernels.conv2d(x, rows, None, 0.1, 120, *options).shape == (2, 0, 5, 4)
    with pytest.raises(ShapeError, match="is empty"):
        kernels.conv2d(x, empty, None, 0.1, 120, *options)
    for stride, padding, dilation in (
        ((0, 1), (0, 0), (1, 1)),
        ((1, 1), (0, -1), (1, 1)),
        ((1, 1), (0, 0), (0, 0)),
    ):
        with pytest.raises(ShapeError, match="at least 1, padding"):
            kernels.conv2d(x, w, None, 0.1, 120, stride, padding, dilation, 1)


@pytest.mark.parametrize("lead", [(0,), (2,), (2, 0)])
def test_a_linear_without_rows_or_without_features(lead):
    x = quantized((*lead, 0), np.uint8, 0.1, 3)
    weight = quantized((4, 0), np.int8, 0.2, 0)
    out = kernels.linear(x, weight, np.full(4, 1.0, np.float32), 0.1, 5)
    assert out.shape == (*lead, 4)
    assert (out.data == 15).all()
