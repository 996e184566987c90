"""Observers, batch normalization folding, and a whole network quantized after training."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import numpy as np
import pytest

import coredispatch as cd
import coredispatch_quant as quant
from coredispatch import nn
from coredispatch.plugin import ArgumentError, OpError, to_raw
from coredispatch_quant.convert import fold_batch_norm
from coredispatch_quant.observers import SMALLEST_SCALE

pytestmark = pytest.mark.once

OBSERVERS = (
    quant.MinMaxObserver,
    quant.MovingAverageMinMaxObserver,
    quant.PerChannelMinMaxObserver,
)


def test_minmax():
    observer = quant.MinMaxObserver()
    observer.observe(np.array([-1.0, 0.5]))
    observer.observe(np.array([[1.55]]))
    observer.observe(np.zeros((0, 3)))
    scale, zero = observer.parameters()
    assert scale == pytest.approx(2.55 / 255)
    assert zero == 100
    # The extremes lie on representable values, and so does zero.
    assert (0 - zero) * scale == pytest.approx(-1.0)
    assert (255 - zero) * scale == pytest.approx(1.55)


@pytest.mark.parametrize(("low", "high"), [(1.0, 3.0), (-3.0, -1.0), (0.0, 0.0)])
def test_zero_is_always_exact(low, high):
    for dtype, bottom, top in (("quint8", 0, 255), ("qint8", -128, 127)):
        observer = quant.MinMaxObserver(dtype)
        observer.observe(np.array([low, high]))
        scale, zero = observer.parameters()
        assert bottom <= zero <= top
        assert scale >= SMALLEST_SCALE
        if high > 0:
            assert zero == bottom
        if low < 0:
            assert zero == top


def test_symmetric_puts_zero_in_the_middle():
    observer = quant.MinMaxObserver("qint8", symmetric=True)
    observer.observe(np.array([-2.54, 1.0]))
    assert observer.parameters() == (pytest.approx(0.02), 0)
    observer = quant.MinMaxObserver("quint8", symmetric=True)
    observer.observe(np.array([-1.0, 2.54]))
    assert observer.parameters() == (pytest.approx(0.02), 128)


def test_moving_average():
    observer = quant.MovingAverageMinMaxObserver(rate=0.1)
    observer.observe(np.array([0.0, 1.0]))
    observer.observe(np.array([-1.0, 11.0]))
    assert observer.low == pytest.approx(-0.1)
    assert observer.high == pytest.approx(2.0)
    with pytest.raises(ArgumentError):
        quant.MovingAverageMinMaxObserver(rate=0.0)


def test_per_channel():
    observer = quant.PerChannelMinMaxObserver(axis=1)
    observer.observe(np.array([[1.27, -2.54], [0.0, 1.0]]))
    scale, zero = observer.parameters()
    np.testing.assert_allclose(scale, [0.01, 0.02])
    assert zero.tolist() == [0, 0]


@pytest.mark.parametrize("observer", OBSERVERS)
def test_observers_refuse_what_they_cannot_use(observer):
    with pytest.raises(OpError, match="no values"):
        observer().parameters()
    for bad in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match="NaN or infinity"):
            observer().observe(np.array([[1.0, bad]]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_folding(bias, affine):
    cd.manual_seed(0)
    conv = nn.Conv2d(3, 5, 3, bias=bias)
    norm = nn.BatchNorm2d(5, affine=affine)
    norm.train()
    for _ in range(3):
        norm(conv(cd.randn(4, 3, 6, 6)) * 2 + 1)
    if affine:
        with cd.no_grad():
            norm.weight.copy_(cd.rand(5) + 0.5)
            norm.bias.copy_(cd.randn(5))
    norm.eval()
    weight, shift = fold_batch_norm(conv, [norm])
    x = cd.randn(2, 3, 6, 6)
    folded = cd.nn.functional.conv2d(
        x, cd.from_numpy(weight.astype(np.float32)), cd.from_numpy(shift.astype(np.float32))
    )
    with cd.no_grad():
        np.testing.assert_allclose(folded.numpy(), norm(conv(x)).numpy(), rtol=1e-4, atol=1e-5)


def network():
    cd.manual_seed(1)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8 * 3 * 3, 10),
    )


def test_quantize_model():
    model = network().train()
    with cd.no_grad():
        for _ in range(5):
            model[0](cd.randn(16, 1, 16, 16))
    batches = [cd.randn(16, 1, 16, 16) for _ in range(4)]
    small = quant.quantize_model(model, [(batch, None) for batch in batches])
    assert all(m.training for m in model.modules())
    kinds = [type(m).__name__ for m in small]
    assert kinds == [
        "Quantize", "QuantizedConv2d", "MaxPool2d", "QuantizedConv2d", "Flatten",
        "QuantizedLinear", "DeQuantize",
    ]  # fmt: skip
    model.eval()
    x = batches[0]
    with cd.no_grad():
        want, got = model(x).numpy(), small(x).numpy()
    spread = want.max() - want.min()
    assert np.abs(got - want).mean() < 0.02 * spread
    assert np.abs(got - want).max() < 0.1 * spread
    # Every tensor between the ends really is quantized.
    for module in list(small)[:-1]:
        x = module(x)
        assert x.is_quantized
        assert x.dtype is quant.quint8
    assert small[1].weight.q_per_channel_axis() == 0
    assert small[1].relu
    assert not small[5].relu
    assert "zero_point" in repr(small)


@pytest.mark.parametrize(
    ("observer", "per_channel"),
    [
        (quant.MovingAverageMinMaxObserver, True),
        (lambda: quant.MinMaxObserver("qint8"), False),
        (lambda: quant.MinMaxObserver("quint8", symmetric=True), True),
    ],
)
def test_quantize_model_options(observer, per_channel):
    model = network().eval()
    batches = [cd.randn(8, 1, 16, 16) for _ in range(2)]
    small = quant.quantize_model(model, batches, observer=observer, per_channel=per_channel)
    with cd.no_grad():
        want, got = model(batches[1]).numpy(), small(batches[1]).numpy()
    assert np.abs(got - want).mean() < 0.03 * (want.max() - want.min())
    assert to_raw(small[1].weight).per_channel == per_channel


def test_state_of_a_quantized_network():
    model = network().eval()
    x = cd.randn(4, 1, 16, 16)
    small = quant.quantize_model(model, [x])
    other = quant.quantize_model(model, [x * 3 - 1])
    assert small(x).tolist() != other(x).tolist()
    buffer = io.BytesIO()
    cd.save(small.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(cd.load(buffer))
    assert small(x).tolist() == other(x).tolist()


def test_a_fresh_process_loads_a_quantized_state(tmp_path):
    model = network().eval()
    small = quant.quantize_model(model, [cd.randn(4, 1, 16, 16)])
    cd.save([small.state_dict(), cd.qint8], tmp_path / "small.cd")
    program = "import sys, coredispatch as cd; s, d = cd.load(sys.argv[1]); print(d, len(s) > 0)"
    env = {name: value for name, value in os.environ.items() if name != "COREDISPATCH_PLUGINS"}
    command = [sys.executable, "-c", program, str(tmp_path / "small.cd")]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["cd.qint8", "True"], done.stderr


def test_a_large_bias_beside_tiny_weights_fits():
    layer = nn.Linear(4, 2)
    with cd.no_grad():
        layer.weight.fill_(0.0)
        layer.weight[1] = 1.0
        layer.bias.copy_(cd.tensor([50.0, 0.5]))
    model = nn.Sequential(layer)
    x = cd.rand(8, 4)
    small = quant.quantize_model(model, [x])
    with cd.no_grad():
        np.testing.assert_allclose(small(x).numpy(), model(x).numpy(), atol=0.15)


def test_unknown_parts_are_named():
    batch = [cd.randn(2, 4)]
    with pytest.raises(ArgumentError, match=r"1\.0 \(Softmax\)"):
        quant.quantize_model(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Softmax(-1))), batch)
    with pytest.raises(ArgumentError, match="BatchNorm1d"):
        quant.quantize_model(nn.Sequential(nn.BatchNorm1d(4)), batch)
    with pytest.raises(ArgumentError, match="no calibration batches"):
        quant.quantize_model(nn.Sequential(nn.Linear(4, 4)), [])
