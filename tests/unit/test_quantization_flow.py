"""``ao.quantization`` in eager mode: observers, prepare and convert, training, dynamic layers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.ao.quantization as tq
from coredispatch import nn

pytest.importorskip("coredispatch_quant")
pytestmark = pytest.mark.filterwarnings("ignore:must run observer")


class Net(nn.Module):
    """A convolution with norm and ReLU, a pool, a linear layer, an addition."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(54, 5)
        self.sum = nn.quantized.FloatFunctional()

    def forward(self, x: Any) -> Any:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.fc(cd.flatten(self.pool(x), 1))
        return self.dequant(self.sum.add(x, x))


@pytest.fixture
def batches() -> list[Any]:
    cd.manual_seed(0)
    return [cd.randn(4, 3, 8, 8) for _ in range(4)]


def trained(batches: list[Any]) -> Net:
    net = Net()
    for x in batches:
        net(x)  # statistics of the norm
    return net.eval()


def test_static_quantization(batches: list[Any]) -> None:
    net = trained(batches)
    fused = tq.fuse_modules(net, [["conv", "bn", "relu"]])
    np.testing.assert_allclose(fused(batches[0]).detach(), net(batches[0]).detach(), 1e-4, 1e-5)
    assert isinstance(fused.conv, nn.intrinsic.ConvReLU2d) and isinstance(fused.bn, nn.Identity)
    for backend in ("fbgemm", "qnnpack"):
        fused.qconfig = tq.get_default_qconfig(backend)
        prepared = tq.prepare(fused)
        for x in batches:
            prepared(x)
        quantized = tq.convert(prepared)
        assert isinstance(quantized.conv, nn.intrinsic.quantized.ConvReLU2d)
        assert isinstance(quantized.fc, nn.quantized.Linear)
        assert quantized.fc.weight().dtype == cd.qint8 and not list(quantized.parameters())
        wanted, got = net(batches[0]).detach(), quantized(batches[0])
        assert float((wanted - got).abs().max()) < 0.05 * float(wanted.abs().max())
    assert "activation_post_process" not in str(quantized.fc)
    assert all(p.requires_grad for p in net.parameters())  # the model itself is as it was


def test_a_state_dict_of_a_quantized_network(batches: list[Any], tmp_path: Any) -> None:
    net = trained(batches)
    net.qconfig = tq.default_qconfig
    quantized = tq.quantize(
        tq.fuse_modules(net, ["conv", "bn", "relu"]), lambda m, x: m(x), (batches[0],)
    )
    cd.save(quantized.state_dict(), tmp_path / "q.pt")
    other = tq.quantize(
        tq.fuse_modules(net, ["conv", "bn", "relu"]), lambda m, x: m(x), (batches[1] * 9,)
    )
    assert not cd.equal(other(batches[0]), quantized(batches[0]))
    other.load_state_dict(cd.load(tmp_path / "q.pt"))
    assert cd.equal(other(batches[0]), quantized(batches[0]))


def test_training_with_quantization(batches: list[Any]) -> None:
    net = trained(batches).train()
    fused = tq.fuse_modules_qat(net, ["conv", "bn", "relu"])
    fused.qconfig = tq.get_default_qat_qconfig("fbgemm")
    prepared = tq.prepare_qat(fused)
    assert isinstance(prepared.conv, nn.intrinsic.qat.ConvBnReLU2d)
    optimizer = cd.optim.SGD(prepared.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        for x in batches:
            optimizer.zero_grad()
            loss = prepared(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])
    prepared.apply(tq.disable_observer)
    prepared.eval()
    wanted = prepared(batches[0]).detach()
    got = tq.convert(prepared)(batches[0])
    assert float((wanted - got).abs().max()) < 0.1 * float(wanted.abs().max())


@pytest.mark.parametrize("dtype", [cd.qint8, cd.float16])
def test_dynamic_quantization(dtype: Any) -> None:
    cd.manual_seed(0)
    net = nn.ModuleDict(
        {
            "lstm": nn.LSTM(4, 3, 2, bidirectional=True),
            "cell": nn.GRUCell(4, 3),
            "fc": nn.Linear(4, 6),
        }
    )
    small = tq.quantize_dynamic(net, dtype=dtype)
    assert type(small["lstm"]) is nn.quantized.dynamic.LSTM and not list(small.parameters())
    x = cd.randn(5, 2, 4)
    for name, call in (
        ("lstm", lambda m: m(x)[0]),
        ("cell", lambda m: m(x[0])),
        ("fc", lambda m: m(x)),
    ):
        wanted, got = call(net[name]).detach(), call(small[name]).detach()
        assert 0 < float((wanted - got).abs().max()) < 0.03
    only = tq.quantize_dynamic(net, {"fc"}, dtype=dtype)
    assert type(only["lstm"]) is nn.LSTM and type(only["fc"]) is nn.quantized.dynamic.Linear


def test_a_dynamic_layer_keeps_the_methods_of_modules() -> None:
    layer = tq.quantize_dynamic(nn.Sequential(nn.Linear(4, 6)))[0]
    assert layer.half() is layer  # a flag of that name stood in its place


def test_modules_without_integer_kernels() -> None:
    cd.manual_seed(0)
    for layer in (
        nn.Hardswish(),
        nn.Sigmoid(),
        nn.BatchNorm2d(3),
        nn.Conv1d(3, 2, 2),
        nn.GroupNorm(1, 3),
    ):
        layer.eval()
        net = tq.QuantWrapper(layer).eval()
        net.qconfig = tq.default_qconfig
        prepared = tq.prepare(net)
        x = cd.randn(2, 3, 4) if isinstance(layer, nn.Conv1d) else cd.randn(2, 3, 4, 4)
        prepared(x)
        out = tq.convert(prepared)(x)
        wanted = layer(x).detach()
        assert float((out - wanted).abs().max()) < 0.1, layer


def test_average_pools_of_quantized_tensors() -> None:
    x = cd.randn(2, 3, 4, 4)
    q = cd.quantize_per_tensor(x, 0.05, 128, cd.quint8)
    for pool in (nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(2)):
        out = pool(q)
        assert out.is_quantized and out.q_scale() == 0.05
        assert float((out.dequantize() - pool(q.dequantize())).abs().max()) <= 0.0251


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(NotImplementedError, match="eager mode"):
        tq.prepare_fx(None)
    with pytest.raises(NotImplementedError, match="qint8"):
        tq.quantize_dynamic(nn.Embedding(3, 4), dtype=cd.quint8)
    with pytest.raises(AssertionError, match="not supported"):
        tq.get_default_qconfig("tpu")
    with pytest.raises(AssertionError, match="training mode"):
        tq.prepare_qat(nn.Linear(2, 2).eval())
    with pytest.raises(ValueError, match="observer class"):
        tq.QConfig(tq.MinMaxObserver(), tq.MinMaxObserver)
    with pytest.raises(AssertionError, match="fuser method"):
        tq.fuse_modules(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), ["0", "1"])


def test_the_gradient_of_fake_quantization_stops_where_it_saturates() -> None:
    x = cd.tensor([-1.0, 0.02, 0.31, 9.0], requires_grad=True)
    out = cd.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
    out.sum().backward()
    np.testing.assert_allclose(out.detach(), [-0.3, 0.0, 0.3, 1.2], 1e-6, 1e-7)
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]


class TestAgainstPyTorch:
    """Observers and rounding, with drawn ranges."""

    @settings(max_examples=20)
    @given(st.integers(0, 999), st.floats(0.01, 50), st.floats(-30, 30))
    def test_observers(self, seed: int, spread: float, centre: float) -> None:
        torch = pytest.importorskip("torch")
        from torch.ao import quantization as theirs

        rng = np.random.default_rng(seed)
        data = [(rng.normal(size=(4, 6)) * spread + centre).astype(np.float32) for _ in range(3)]
        for name, options in (
            ("MinMaxObserver", {}),
            ("MinMaxObserver", {"dtype": "qint8", "qscheme": "per_tensor_symmetric"}),
            ("MinMaxObserver", {"quant_min": 0, "quant_max": 127}),
            ("MovingAverageMinMaxObserver", {"averaging_constant": 0.1}),
            ("PerChannelMinMaxObserver", {"ch_axis": 1}),
            ("PerChannelMinMaxObserver", {"dtype": "qint8", "qscheme": "per_channel_symmetric"}),
            ("MovingAveragePerChannelMinMaxObserver", {}),
            ("HistogramObserver", {"bins": 64}),
        ):
            found = []
            for lib, module in ((cd, tq), (torch, theirs)):
                given_ = {
                    k: getattr(lib, v) if isinstance(v, str) else v for k, v in options.items()
                }
                observer = getattr(module, name)(**given_)
                for x in data:
                    observer(lib.from_numpy(x.copy()))
                found.append([np.asarray(v) for v in observer.calculate_qparams()])
            np.testing.assert_allclose(found[0][0], found[1][0], 1e-4, err_msg=name)
            assert np.abs(found[0][1].astype(int) - found[1][1].astype(int)).max() <= 1, name

    @settings(max_examples=20)
    @given(st.integers(0, 999), st.floats(0.01, 2), st.integers(0, 15))
    def test_rounding(self, seed: int, scale: float, zero: int) -> None:
        torch = pytest.importorskip("torch")
        data = np.random.default_rng(seed).normal(size=(3, 5)).astype(np.float32)
        results = []
        for lib in (cd, torch):
            x = lib.from_numpy(data.copy()).requires_grad_()
            out = lib.fake_quantize_per_tensor_affine(x, scale, zero, 0, 15)
            out.sum().backward()
            results.append((out.detach().numpy(), x.grad.numpy()))
        apart = np.abs(results[0][0] - results[1][0])
        assert (apart > 1e-4).sum() <= 1 and apart.max() < 1.01 * scale  # a tie may fall either way


def test_warnings_are_those_of_pytorch() -> None:
    with pytest.warns(UserWarning, match="None of the submodule"):
        tq.prepare(nn.Sequential(nn.Linear(2, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repr(tq.default_qat_qconfig)
