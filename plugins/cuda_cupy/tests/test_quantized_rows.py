"""Quantized tensors on CUDA: layers give the integers that they give on the CPU."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd

quant = pytest.importorskip("coredispatch_quant")

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


@pytest.fixture
def device(on_host: Any, stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernels, and the stand-in under the name that the rows import."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in.cupy)
    return on_host


def same(program: Any, *given: Any) -> Any:
    """The program gives the same quantized tensor on the device; it is returned."""
    wanted = program(*given)
    got = program(*[x.to("cuda") for x in given])
    assert got.device.type == "cuda" and got.dtype == wanted.dtype
    back = got.cpu()
    assert (quant.q_scale(back), quant.q_zero_point(back)) == (
        quant.q_scale(wanted),
        quant.q_zero_point(wanted),
    )
    cd.testing.assert_close(quant.int_repr(back), quant.int_repr(wanted), rtol=0, atol=0)
    return got


def activations(dtype: Any, *shape: int) -> Any:
    zero = 100 if dtype is quant.quint8 else -5
    return quant.quantize_per_tensor(cd.randn(shape), 0.03, zero, dtype)


def weights(per_channel: bool, *shape: int) -> Any:
    w = cd.randn(shape)
    if not per_channel:
        return quant.quantize_per_tensor(w, 0.02, 3, quant.qint8)
    scales, zeros = cd.rand(shape[0]) * 0.02 + 0.01, cd.randint(-9, 9, shape[:1])
    return quant.quantize_per_channel(w, scales, zeros, 0, quant.qint8)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_linear(device, dtype, per_channel):
    x, w = activations(getattr(quant, dtype), 2, 3, 20), weights(per_channel, 9, 20)
    bias = cd.randn(9)
    same(lambda x, w: quant.quantized_linear(x, w, None, 0.1, 7), x, w)
    same(lambda x, w, b: quant.quantized_linear(x, w, b, 0.1, 7), x, w, bias)
    same(lambda x, w, b: quant.quantized_linear(x, w, b, 0.1, 7, relu=True), x, w, bias)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(device, groups, per_channel):
    x, w = activations(quant.quint8, 2, 4, 6, 5), weights(per_channel, 8, 4 // groups, 3, 3)

    def program(x: Any, w: Any, b: Any) -> Any:
        return quant.quantized_conv2d(x, w, b, 0.2, 90, 2, 1, 1, groups)

    same(program, x, w, cd.randn(8))


def test_layers_follow_each_other_without_a_wait(device):
    x, w = activations(quant.quint8, 5, 20).to("cuda"), weights(True, 20, 20).to("cuda")
    bias = cd.randn(20).to("cuda")

    def program() -> Any:
        y = quant.quantized_linear(x, w, bias, 0.1, 90, relu=True)
        return quant.quantized_linear(y, w, bias, 0.1, 90)

    program()
    MACHINE.syncs.clear()
    y = program()
    assert MACHINE.syncs == []
    assert y.dequantize().device.type == "cuda"


def test_a_layer_whose_first_call_is_on_another_stream(device):
    x, w = activations(quant.quint8, 5, 20), weights(False, 20, 20)
    wanted = quant.quantized_linear(x, w, None, 0.1, 90)
    x, w = x.to("cuda"), w.to("cuda")
    cd.cuda.synchronize()
    MACHINE.delay()
    with cd.cuda.stream(cd.cuda.Stream()):
        first = quant.quantized_linear(x, w, None, 0.1, 90)
    second = quant.quantized_linear(x, w, None, 0.1, 90)
    for found in (second, first):
        cd.cuda.synchronize() if found is first else None
        assert cd.equal(quant.int_repr(found.cpu()), quant.int_repr(wanted))


@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_quantizing_on_the_device(device, dtype):
    x = cd.randn(3, 4, 5) * 4
    x[0, 0] = float("inf")
    kind = getattr(quant, dtype)
    for given in (x, x.half(), x.double().transpose(0, 2), x[:0]):
        same(lambda x: quant.quantize_per_tensor(x, 0.05, 7, kind), given)
        parameters = cd.rand(given.shape[1]) + 0.01, cd.randint(0, 9, given.shape[1:2])
        wanted = quant.quantize_per_channel(given, *parameters, 1, kind)
        found = quant.quantize_per_channel(
            given.to("cuda"), *(p.to("cuda") for p in parameters), 1, kind
        )
        assert cd.equal(quant.int_repr(found.cpu()), quant.int_repr(wanted))
        assert quant.q_per_channel_axis(found) == 1


def test_quantizing_waits_for_nothing_and_nan_is_said_later(device):
    x = cd.tensor([1.0, float("nan")]).to("cuda")
    quant.quantize_per_tensor(x[:1], 0.1, 0, quant.qint8)  # the flag is made once
    MACHINE.syncs.clear()
    q = quant.quantize_per_tensor(x, 0.1, 0, quant.qint8)
    assert MACHINE.syncs == []
    with pytest.raises(ValueError, match="the input holds NaN"):
        cd.cuda.synchronize()
    assert q.device.type == "cuda"
    with pytest.raises(ValueError, match="scale"):
        quant.quantize_per_tensor(x, -1.0, 0, quant.qint8)


def test_a_model_in_8_bits_runs_on_the_device(device):
    x, w = cd.randn(2, 4, 6, 6), weights(True, 8, 4, 3, 3)

    def program(x: Any, w: Any) -> Any:
        q = quant.quantize_per_tensor(x, 0.04, 100, quant.quint8)
        q = quant.quantized_conv2d(q, w, None, 0.125, 80, 1, 1, 1, 1, relu=True)
        return cd.nn.functional.avg_pool2d(q, 2)

    same(program, x, w)


def test_what_else_there_is(device):
    x = activations(quant.quint8, 4, 6)
    same(lambda x: x.relu(), x)
    same(lambda x: x.view(2, 12), x)
    same(lambda x: x.permute(1, 0), x)
    same(lambda x: x[1:3], x)
    cd.testing.assert_close(x.to("cuda").dequantize().cpu(), x.dequantize(), rtol=0, atol=0)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_maximum_pooling(device, dtype, ceil_mode):
    x = activations(getattr(quant, dtype), 2, 3, 9, 8)
    same(lambda x: cd.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=ceil_mode), x)
    channels = quant.quantize_per_channel(
        cd.randn(2, 3, 9, 8), cd.rand(3) + 0.1, cd.zeros(3).long(), 1, getattr(quant, dtype)
    )
    pooled = [cd.nn.functional.max_pool2d(t, 2) for t in (channels, channels.to("cuda"))]
    assert cd.equal(pooled[0].dequantize(), pooled[1].dequantize().cpu())


def test_what_is_refused_is_refused_with_the_reason(device):
    x, w = activations(quant.quint8, 2, 20).to("cuda"), weights(False, 9, 20).to("cuda")
    with pytest.raises(cd.ShapeError):
        quant.quantized_linear(x, w, cd.randn(8).to("cuda"), 0.1, 7)
    with pytest.raises(cd.ArgumentError, match="do not fit int32"):
        quant.quantized_linear(x, w, cd.full((9,), 1e9).to("cuda"), 0.1, 7)
    long = activations(quant.quint8, 1, 120_000).to("cuda")
    with pytest.raises(cd.OpError, match="may leave int32"):
        quant.quantized_linear(long, weights(False, 1, 120_000).to("cuda"), None, 0.1, 7)
