"""``cd.lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu`` as operators: traces, transforms, PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn.utils import rnn
from coredispatch.plugin import ShapeError

KINDS = ("LSTM", "GRU", "RNN")


def of(kind: str, *args: Any, **options: Any) -> Any:
    cd.manual_seed(0)
    return getattr(nn, kind)(*args, **options)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            close(x, y, tolerance)
    else:
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_has_one_node_and_takes_other_lengths(kind: str) -> None:
    net = of(kind, 3, 4, 2, bidirectional=True)
    traced = cd.jit.trace(net, (cd.randn(5, 2, 3),))
    operator = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[kind]
    called = [str(n.target) for n in traced.graph.nodes if n.op == "call_function"]
    assert sum(operator in name for name in called) == 1
    longer = cd.randn(9, 4, 3)
    close(traced(longer), net(longer))


def test_a_traced_module_is_saved_and_takes_other_lengths_and_batches(tmp_path: Any) -> None:
    net = of("LSTM", 3, 4, batch_first=True)
    traced = cd.jit.trace(net, (cd.randn(2, 5, 3),))
    cd.jit.save(traced, str(tmp_path / "net.pt"))
    loaded = cd.jit.load(str(tmp_path / "net.pt"))
    x = cd.randn(4, 7, 3)
    close(loaded(x)[0], net(x)[0])


def test_a_packed_trace_takes_other_batch_sizes() -> None:
    net = of("GRU", 3, 4)

    def run(data: Any, sizes: Any, h: Any) -> Any:
        return cd.gru(data, sizes, h, net._flat_weights, True, 1, 0.0, False, False)

    def packed(lengths: list[int]) -> Any:
        found = rnn.pack_padded_sequence(cd.randn(max(lengths), len(lengths), 3), lengths)
        return found.data, found.batch_sizes, cd.zeros(1, len(lengths), 4)

    for p in net.parameters():
        p.requires_grad_(False)
    traced = cd.jit.trace(run, packed([3, 2]))
    other = packed([6, 4, 1])
    close(traced(*other), run(*other))


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_and_gradients_of_each_sample(kind: str) -> None:
    net = of(kind, 3, 4)
    x = cd.randn(3, 5, 2, 3)
    together = cd.vmap(lambda one: net(one)[0])(x)
    close(together, cd.stack([net(one)[0] for one in x]))
    parameters = dict(net.named_parameters())

    def loss(p: Any, one: Any) -> Any:
        return cd.func.functional_call(net, p, (one,))[0].square().sum()

    each = cd.func.vmap(cd.func.grad(loss), (None, 0))(parameters, x)
    for name, grads in each.items():
        for i, one in enumerate(x):
            net.zero_grad()
            net(one)[0].square().sum().backward()
            close(grads[i], net.get_parameter(name).grad, 1e-4)


def test_vmap_over_weights_as_well() -> None:
    nets = [nn.GRU(3, 4) for _ in range(2)]
    parameters, buffers = cd.func.stack_module_state(nets)
    x = cd.randn(5, 2, 3)
    out = cd.vmap(lambda p: cd.func.functional_call(nets[0], p, (x,))[0])(parameters)
    close(out, cd.stack([net(x)[0] for net in nets]))


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_and_forward_mode(kind: str) -> None:
    net = of(kind, 2, 3).double()
    x = cd.randn(4, 2, 2, dtype=cd.float64, requires_grad=True)
    weights = [p.detach().clone().requires_grad_() for p in net.parameters()]
    call = {"LSTM": cd.lstm, "GRU": cd.gru, "RNN": cd.rnn_tanh}[kind]
    zeros = cd.zeros(1, 2, 3, dtype=cd.float64)

    def run(x: Any, *ws: Any) -> Any:
        h = (zeros, zeros) if kind == "LSTM" else zeros
        return tuple(call(x, h, ws, True, 1, 0.0, False, False, False))

    assert cd.autograd.gradcheck(run, (x, *weights), fast_mode=True)
    assert cd.autograd.gradgradcheck(run, (x, *weights), fast_mode=True)
    v = cd.randn_like(x)
    _, tangent = cd.func.jvp(lambda x: net(x)[0], (x.detach(),), (v,))
    step = 1e-6
    difference = (net(x.detach() + step * v)[0] - net(x.detach() - step * v)[0]) / (2 * step)
    close(tangent, difference, 1e-6)


def test_dropout_between_layers_follows_the_generator() -> None:
    net = of("LSTM", 3, 4, 2, dropout=0.5)
    x = cd.randn(5, 2, 3)
    cd.manual_seed(3)
    first = net(x)[0]
    assert not cd.equal(first, net(x)[0])
    cd.manual_seed(3)
    assert cd.equal(first, net(x)[0])
    net.eval()
    assert cd.equal(net(x)[0], net(x)[0])


def test_autocast_computes_in_half_precision() -> None:
    net, x = of("LSTM", 3, 4), cd.randn(5, 2, 3)
    with cd.autocast("cpu", dtype=cd.bfloat16):
        out, (h, c) = net(x)
    assert {out.dtype, h.dtype, c.dtype} == {cd.bfloat16}
    close(out.float(), net(x)[0], 0.05)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype is cd.float32 for p in net.parameters())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda w, x, h: cd.lstm(x, (h,), w, True, 1, 0.0, False, False, False), "two hidden"),
        (lambda w, x, h: cd.lstm(x, (h, h), w[:3], True, 1, 0.0, False, False, False), "4 each"),
        (lambda w, x, h: cd.lstm(x[0], (h, h), w, True, 1, 0.0, False, False, False), "steps"),
        (lambda w, x, h: cd.lstm(x[:0], (h, h), w, True, 1, 0.0, False, False, False), "larger"),
        (lambda w, x, h: cd.lstm(x, (h[:, :1],) * 2, w, True, 1, 0.0, False, False, False), "h0"),
        (lambda w, x, h: cd.lstm_cell(x[0], (h,), *w), "two hidden"),
        (lambda w, x, h: cd.gru_cell(x[0], h[0], *w), "use 12 rows"),
        (lambda w, x, h: cd.lstm_cell(x[0][:, :2], (h[0], h[0]), *w), "lstm_cell.*input with 2"),
        (
            lambda w, x, h: cd.lstm_cell(x[0], (h[0], h[0]), w[0], w[0], *w[2:]),
            "lstm_cell.*state with 4 features",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: str) -> None:
    weights = list(of("LSTM", 3, 4).parameters())
    with pytest.raises(RuntimeError, match=error):
        call(weights, cd.randn(5, 2, 3), cd.zeros(1, 2, 4))


def test_batch_sizes_that_do_not_add_up_are_refused() -> None:
    weights = list(of("GRU", 3, 4).parameters())
    with pytest.raises(RuntimeError, match="pack_padded_sequence"):
        cd.gru(
            cd.randn(5, 3), cd.tensor([2, 2]), cd.zeros(1, 2, 4), weights, True, 1, 0, False, False
        )


class TestAgainstPyTorch:
    """Drawn layers, padded and packed, forward and gradients."""

    @settings(max_examples=25)
    @given(st.data())
    def test_layers(self, data: Any) -> None:
        torch = pytest.importorskip("torch")
        name = data.draw(st.sampled_from(("lstm", "gru", "rnn_tanh", "rnn_relu")))
        layers, both = data.draw(st.integers(1, 3)), data.draw(st.booleans())
        biases, packed = data.draw(st.booleans()), data.draw(st.booleans())
        batch_first = data.draw(st.booleans())
        hidden = data.draw(st.integers(1, 4))
        out = hidden
        if name == "lstm" and hidden > 1 and data.draw(st.booleans()):
            out = hidden - 1
        lengths = sorted(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))[::-1]
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        gates = {"lstm": 4, "gru": 3}.get(name, 1)
        params = []
        for layer in range(layers):
            for _ in range(1 + both):
                width = 3 if layer == 0 else out * (1 + both)
                params += [rng.normal(size=(gates * hidden, width))]
                params += [rng.normal(size=(gates * hidden, out))]
                params += [rng.normal(size=gates * hidden) for _ in range(2 * biases)]
                params += [rng.normal(size=(out, hidden))] * (out != hidden)
        n = len(lengths)
        states = [rng.normal(size=(layers * (1 + both), n, size)) for size in (out, hidden)]
        if packed:
            sizes = np.array([sum(k > t for k in lengths) for t in range(lengths[0])])
            given_ = [rng.normal(size=(sum(lengths), 3)), sizes]
        else:
            shape = (n, lengths[0], 3) if batch_first else (lengths[0], n, 3)
            given_ = [rng.normal(size=shape)]
        results = []
        for lib, make in ((cd, cd.from_numpy), (torch, torch.from_numpy)):
            inputs = [make(x.copy()) for x in given_]
            h = [make(x.copy()) for x in states]
            weights = [make(x.copy()) for x in params]
            leaves = [inputs[0], *h[: 2 if name == "lstm" else 1], *weights]
            for leaf in leaves:
                leaf.requires_grad_()
            options = (biases, layers, 0.0, True, both, *(() if packed else (batch_first,)))
            state = tuple(h) if name == "lstm" else h[0]
            outputs = getattr(lib, name)(*inputs, state, weights, *options)
            sum((o * o).sum() for o in outputs).backward()
            results.append([*outputs, *[leaf.grad for leaf in leaves]])
        for mine, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 1e-6, 1e-8)


def test_rows_and_batch_sizes_fit() -> None:
    gates, h, w = cd.randn(7, 3), cd.randn(2, 3), cd.randn(3, 3)
    with pytest.raises(ShapeError, match=r"batch_sizes \(2, 2, 2\) are 6 rows, got 7"):
        cd.ops.rnn_sequence(gates, h, w, "tanh", (2, 2, 2), False)
    assert cd.ops.rnn_sequence(gates[:6], h, w, "tanh", (2, 2, 2), False).shape == (6, 3)
    with pytest.raises(ShapeError, match="got 7"):
        cd.ops.rnn_sequence(gates.to("meta"), h.to("meta"), w.to("meta"), "tanh", (6,), False)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_a_layer_takes_inputs_of_its_own_dtype(name: str) -> None:
    layer, x = getattr(cd.nn, name)(2, 3), cd.randn(4, 1, 2)
    with pytest.raises(ValueError, match="RNN input dtype .*float64.* does not match weight"):
        layer(x.double())
    with cd.autocast("cpu", dtype=cd.bfloat16):
        assert layer(x.bfloat16())[0].shape == (4, 1, 3)
    assert layer.double()(x.double())[0].dtype is cd.float64
    with pytest.raises(ValueError, match="input_size must be greater than zero"):
        getattr(cd.nn, name)(0, 3)
