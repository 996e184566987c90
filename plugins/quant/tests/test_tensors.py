"""Quantized tensors through the public interface: what works, and what is refused."""

from __future__ import annotations

import copy
import io
import pickle

import integer_reference as exact
import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
import coredispatch_quant as quant
from coredispatch.plugin import (
    ArgumentError,
    DTypeError,
    MissingKernel,
    OpError,
    ShapeError,
    to_raw,
)


def normal(*shape, seed=0):
    return cd.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.fixture
def x():
    return quant.quantize_per_tensor(normal(3, 8), 0.03, 120, "quint8")


@pytest.fixture
def w():
    scales = cd.tensor([0.01, 0.02, 0.03, 0.04])
    return quant.quantize_per_channel(normal(4, 8, seed=1), scales, cd.zeros(4).long(), 0, "qint8")


def test_details(x, w):
    assert x.layout == "quantized"
    assert x.is_quantized
    assert not cd.zeros(1).is_quantized
    assert tuple(x.shape) == (3, 8)
    assert x.dtype is quant.quint8
    assert w.dtype is quant.qint8
    assert not x.is_floating_point()
    assert x.q_scale() == quant.q_scale(x) == 0.03
    assert x.qscheme() is cd.per_tensor_affine
    with pytest.raises(RuntimeError, match="not quantized"):
        cd.zeros(1).qscheme()
    assert x.q_zero_point() == quant.q_zero_point(x) == 120
    assert w.q_per_channel_axis() == 0
    assert w.qscheme() is cd.per_channel_affine
    np.testing.assert_allclose(w.q_per_channel_scales().numpy(), [0.01, 0.02, 0.03, 0.04], 1e-7)
    assert w.q_per_channel_zero_points().tolist() == [0, 0, 0, 0]
    with pytest.raises(ArgumentError, match="per channel"):
        w.q_scale()
    with pytest.raises(ArgumentError, match="per tensor"):
        x.q_per_channel_scales()
    with pytest.raises(ArgumentError, match="not quantized"):
        quant.q_scale(cd.ones(2))


def test_round_trip(x):
    dense = normal(3, 8)
    assert x.int_repr().dtype is cd.uint8
    back = x.dequantize()
    assert back.dtype is cd.float32
    assert back.layout == "strided"
    inside = (dense > -120 * 0.03) & (dense < 135 * 0.03)
    assert ((back - dense).abs()[inside] <= 0.5001 * 0.03).all()
    again = quant.quantize_per_tensor(back, x.q_scale(), x.q_zero_point(), x.dtype)
    assert again.int_repr().tolist() == x.int_repr().tolist()


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "int8", "uint8", quant.qint8, cd.uint8])
def test_dtype_spellings(dtype):
    q = quant.quantize_per_tensor(cd.ones(2), 0.1, 0, dtype)
    assert q.dtype in (quant.qint8, quant.quint8)
    assert q.int_repr().tolist() == [10, 10]


def test_int_repr_is_a_copy(x):
    integers = x.int_repr()
    before = x.dequantize().tolist()
    integers.fill_(0)
    assert x.dequantize().tolist() == before


@pytest.mark.parametrize("relu", [False, True])
def test_linear(x, w, relu):
    bias = normal(4, seed=2)
    y = quant.quantized_linear(x, w, bias, 0.05, 100, relu)
    assert y.layout == "quantized"
    assert (y.q_scale(), y.q_zero_point()) == (0.05, 100)
    raw_x, raw_w = to_raw(x), to_raw(w)
    assert y.int_repr().tolist() == exact.linear(
        raw_x.data.tolist(), 120, 0.03, raw_w.data.tolist(), raw_w.zero_point, raw_w.scale,
        bias.numpy(), 0.05, 100, 100 if relu else 0, 255,
    )  # fmt: skip
    # The float computation on the same numbers, within half a step and the multiplier's error.
    real = F.linear(x.dequantize(), w.dequantize(), bias)
    real = F.relu(real) if relu else real
    error = (y.dequantize() - real.clamp(-100 * 0.05, 155 * 0.05)).abs().max().item()
    assert error <= 0.9 * 0.05


def test_linear_leading_dimensions(w):
    x = quant.quantize_per_tensor(normal(2, 3, 8), 0.03, 120)
    y = quant.quantized_linear(x, w, None, 0.05, 100)
    assert tuple(y.shape) == (2, 3, 4)
    flat = quant.quantized_linear(x.reshape(6, 8), w, None, 0.05, 100)
    assert y.reshape(6, 4).int_repr().tolist() == flat.int_repr().tolist()
    single = quant.quantized_linear(x[0, 0], w, None, 0.05, 100)
    assert single.int_repr().tolist() == y.int_repr()[0, 0].tolist()


def test_conv2d_defaults_and_keywords():
    x = quant.quantize_per_tensor(normal(2, 4, 6, 6), 0.03, 128)
    w = quant.quantize_per_tensor(normal(6, 2, 3, 3, seed=3), 0.02, 0, "qint8")
    y = quant.quantized_conv2d(x, w, None, 0.1, 128, stride=2, padding=(1, 0), groups=2)
    assert tuple(y.shape) == (2, 6, 3, 2)
    real = F.conv2d(x.dequantize(), w.dequantize(), stride=2, padding=(1, 0), groups=2)
    error = (y.dequantize() - real.clamp(-12.8, 12.7)).abs().max().item()
    assert error <= 0.9 * 0.1


def test_relu_and_pooling(x):
    assert x.relu().int_repr().tolist() == x.int_repr().clamp(min=120).tolist()
    assert F.relu(x).q_scale() == x.q_scale()
    image = quant.quantize_per_tensor(normal(2, 3, 6, 6), 0.03, 7, "qint8")
    pooled = F.max_pool2d(image, 3, stride=2, padding=1)
    real = F.max_pool2d(image.dequantize(), 3, stride=2, padding=1)
    assert pooled.dequantize().tolist() == real.tolist()
    assert pooled.layout == "quantized"


def test_shapes(x, w):
    integers = x.int_repr()
    assert x.reshape(4, 6).int_repr().tolist() == integers.reshape(4, 6).tolist()
    assert x.view(2, -1).int_repr().tolist() == integers.view(2, -1).tolist()
    assert x.flatten().int_repr().tolist() == integers.flatten().tolist()
    assert x.T.int_repr().tolist() == integers.T.tolist()
    assert x.T.reshape(24).int_repr().tolist() == integers.T.reshape(24).tolist()
    assert x[1].int_repr().tolist() == integers[1].tolist()
    assert x[:, 2:5].int_repr().tolist() == integers[:, 2:5].tolist()
    assert x.unsqueeze(0).squeeze(0).int_repr().tolist() == integers.tolist()
    assert x.clone().int_repr().tolist() == integers.tolist()
    assert x.detach().q_scale() == 0.03
    assert w.T.q_per_channel_axis() == 1
    np.testing.assert_array_equal(w.T.dequantize().numpy(), w.dequantize().numpy().T)
    with pytest.raises(MissingKernel, match="per channel"):
        w.reshape(32)
    with pytest.raises(ShapeError):
        x.reshape(5, 5)


def test_copy_takes_the_parameters_along(x):
    target = quant.quantize_per_tensor(cd.zeros(3, 8), 1.0, 0)
    target.copy_(x)
    assert target.q_scale() == 0.03
    assert target.int_repr().tolist() == x.int_repr().tolist()
    with pytest.raises(MissingKernel):
        target.copy_(cd.ones(3, 8))
    with pytest.raises(MissingKernel):
        cd.ones(3, 8).copy_(target)
    with pytest.raises(ShapeError):
        target.copy_(x[:2])
    with pytest.raises(DTypeError):
        target.copy_(quant.quantize_per_tensor(cd.zeros(3, 8), 1.0, 0, "qint8"))


def test_relu_in_place(x):
    expected = x.relu().int_repr().tolist()
    assert x.relu_() is x
    assert x.int_repr().tolist() == expected


REFUSED = {
    "exp": lambda q, x: q.exp(),
    "quantized + quantized": lambda q, x: q + q,
    "quantized + number": lambda q, x: q + 1,
    "quantized * number": lambda q, x: q * 2.0,
    "quantized + strided": lambda q, x: q + x,
    "strided @ quantized": lambda q, x: x @ q.T,
    "softmax": lambda q, x: q.softmax(-1, dtype=cd.float32),
    "sum": lambda q, x: q.sum(),
    "comparison": lambda q, x: q > 0,
    "sigmoid": lambda q, x: q.sigmoid(),
    "cat": lambda q, x: cd.cat([q, q]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_dequantized_silently(case, x):
    with pytest.raises(MissingKernel) as raised:
        REFUSED[case](x, normal(3, 8))
    assert "quint8" in str(raised.value) or "quantized" in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 10


def test_errors(x, w):
    with pytest.raises(DTypeError, match="weight is not quantized"):
        quant.quantized_linear(x, normal(4, 8), None, 0.1, 0)
    with pytest.raises(DTypeError, match="input is not quantized"):
        quant.quantized_linear(normal(3, 8), w, None, 0.1, 0)
    with pytest.raises(DTypeError, match="quantized already"):
        quant.quantize_per_tensor(x, 0.1, 0)
    with pytest.raises(DTypeError, match="8-bit"):
        quant.quantize_per_tensor(cd.ones(2), 0.1, 0, cd.int32)
    with pytest.raises(DTypeError, match="floating point"):
        quant.quantize_per_tensor(cd.ones(2).long(), 0.1, 0)
    with pytest.raises(ShapeError, match="in_features"):
        quant.quantized_linear(x[:, :5], w, None, 0.1, 0)
    with pytest.raises(ShapeError, match="bias"):
        quant.quantized_linear(x, w, cd.ones(3), 0.1, 0)
    with pytest.raises(ArgumentError, match="scale"):
        quant.quantized_linear(x, w, None, 0.0, 0)
    with pytest.raises(ArgumentError, match="zero_point"):
        quant.quantized_linear(x, w, None, 0.1, 300)
    with pytest.raises(ShapeError, match="4-d"):
        quant.quantized_conv2d(x, w, None, 0.1, 0)
    image = quant.quantize_per_tensor(normal(1, 3, 2, 2), 0.03, 128)
    kernel = quant.quantize_per_tensor(normal(2, 3, 3, 3), 0.03, 0, "qint8")
    with pytest.raises(ShapeError, match="reaches beyond"):
        quant.quantized_conv2d(image, kernel, None, 0.1, 0)
    with pytest.raises(ShapeError, match="group"):
        quant.quantized_conv2d(image, kernel, None, 0.1, 0, groups=2)
    with pytest.raises(OpError):
        quant.int_repr(cd.ones(2))


def test_quantizing_ends_the_graph():
    leaf = normal(3).requires_grad_()
    assert not quant.quantize_per_tensor(leaf, 0.1, 0).requires_grad


def saved(tensor):
    buffer = io.BytesIO()
    cd.save({"tensor": tensor}, buffer)
    buffer.seek(0)
    return cd.load(buffer)["tensor"]


COPIES = {
    "saved": saved,
    "pickled": lambda t: pickle.loads(pickle.dumps(t)),
    "deep": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
def test_saving_and_copying(how, x, w):
    for tensor in (x, w):
        other = COPIES[how](tensor)
        assert other.dtype is tensor.dtype
        assert other.layout == "quantized"
        assert other.int_repr().tolist() == tensor.int_repr().tolist()
        assert other.dequantize().tolist() == tensor.dequantize().tolist()
    assert COPIES[how](w).q_per_channel_axis() == 0


def test_repr(x, w):
    q = quant.quantize_per_tensor(cd.tensor([0.1, -0.2]), 0.1, 3)
    assert repr(q) == (
        "tensor([ 0.1000, -0.2000],\n"
        "       size=(2,), quantization_scheme=per_tensor_affine, scale=0.1, zero_point=3,\n"
        "       layout=quantized, dtype=cd.quint8)"
    )
    assert "per_channel_affine" in repr(w)
    assert "axis=0" in repr(w)


def test_the_printed_dtype_is_a_public_name() -> None:
    assert "dtype=cd.quint8)" in repr(quant.quantize_per_tensor(cd.ones(2), 0.1, 0, cd.quint8))
    assert cd.quint8 is quant.quint8 and cd.qint8 is quant.qint8
    assert pickle.loads(pickle.dumps(cd.quint8)) is quant.quint8
    with pytest.raises(cd.DTypeError, match="zeros"):
        cd.zeros(2, dtype=cd.quint8)


@pytest.mark.parametrize("size", [2, (2, 2)])
def test_averages_of_a_tensor_quantized_per_channel_are_refused(size):
    x = cd.ones(1, 2, 4, 4)
    q = cd.quantize_per_channel(x, cd.tensor([0.1, 0.2]), cd.tensor([0, 0]), 1, cd.qint8)
    for pool in (cd.nn.functional.avg_pool2d, cd.nn.functional.adaptive_avg_pool2d):
        with pytest.raises(cd.MissingKernel, match="quantized per channel"):
            pool(q, size)
