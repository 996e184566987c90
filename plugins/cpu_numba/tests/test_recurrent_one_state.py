"""GRU and plain recurrent layers in one call: the loops against the operators' decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import KERNELS
from test_recurrent import SIZES, agree

import coredispatch as cd

pytestmark = pytest.mark.once

WIDTHS = st.sampled_from([1, 2, 3, 5, 8, 13, 33])
DTYPES = st.sampled_from(["float32", "float64"])
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def drawn(sizes: Any, n: int, gates: int, dtype: Any, seed: int = 0) -> tuple[np.ndarray, ...]:
    """The input's part of the gates, a state, a weight and its bias."""
    rng = np.random.default_rng(seed)
    shapes = (sum(sizes), gates * n), (sizes[0], n), (gates * n, n), (gates * n,)
    x, h, w, bias = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    return x, h, w / np.sqrt(n).astype(dtype), bias


@settings(max_examples=40)
@given(SIZES, WIDTHS, DTYPES, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_gru(sizes, n, dtype, reverse, biased, arriving, seed) -> None:
    x, h, w, bias = drawn(sizes, n, 3, dtype, seed)
    steps = tuple(sizes), reverse
    given = x, h, w, bias if biased else None, *steps
    agree("gru_sequence", *given, tolerance=TOLERANCE[dtype])
    out, kept = KERNELS["gru_sequence"](*given)
    rng = np.random.default_rng(seed + 1)
    grad, before = (rng.normal(size=out.shape).astype(dtype) for _ in range(2))
    agree(
        "gru_sequence_backward", grad if arriving else None, None, before, kept, w, *steps,
        tolerance=20 * TOLERANCE[dtype],
    )  # fmt: skip


@settings(max_examples=40)
@given(SIZES, WIDTHS, DTYPES, st.booleans(), st.sampled_from(["tanh", "relu"]), st.integers(0, 9))
def test_rnn(sizes, n, dtype, reverse, nonlinearity, seed) -> None:
    x, h, w, _ = drawn(sizes, n, 1, dtype, seed)
    last = nonlinearity, tuple(sizes), reverse
    agree("rnn_sequence", x, h, w, *last, tolerance=10 * TOLERANCE[dtype])
    out = KERNELS["rnn_sequence"](x, h, w, *last)
    grad = np.random.default_rng(seed + 1).normal(size=out.shape).astype(dtype)
    agree("rnn_sequence_backward", grad, out, w, *last, tolerance=20 * TOLERANCE[dtype])


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    sizes = (70,) * 9 + (33,) * 4 + (1,)
    x, h, w, bias = drawn(sizes, 48, 3, np.float32)
    y, _, v, _ = drawn(sizes, 48, 1, np.float32)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            out, kept = KERNELS["gru_sequence"](x, h, w, bias, sizes, False)
            back = KERNELS["gru_sequence_backward"](out, None, y, kept, w, sizes, False)
            plain = KERNELS["rnn_sequence"](y, h, v, "tanh", sizes, True)
            last = KERNELS["rnn_sequence_backward"](y, plain, v, "tanh", sizes, True)
            found.append([out, kept, *back, plain, *last])
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])
def test_what_is_no_number_stays_in_its_sequence(batch: int, kind: str) -> None:
    x, h, w, bias = drawn([batch] * 3, 8, 3 if kind == "gru" else 1, np.float32)
    x[0, 5] = np.nan
    if kind == "gru":
        out, _ = KERNELS["gru_sequence"](x, h, w, bias, (batch,) * 3, False)
    else:
        out = KERNELS["rnn_sequence"](x, h, w, kind, (batch,) * 3, False)
    lost = np.isnan(out).any(1)
    assert lost.nonzero()[0].tolist() == [0, batch, 2 * batch]


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    x, h, w, bias = drawn([4, 4], 8, 3, np.float32)
    kernel, steps = KERNELS["gru_sequence"], ((4, 4), False)
    assert kernel(x.astype(np.float16), h, w, bias, *steps) is NotImplemented
    assert kernel(x[:, ::-1], h, w, bias, *steps) is NotImplemented
    assert kernel(x, h, w, bias[:5], *steps) is NotImplemented
    assert kernel(x, h, w, bias.astype(np.float64), *steps) is NotImplemented
    assert kernel(x, h, w[:-1], bias, *steps) is NotImplemented
    assert kernel(x, h, w, bias, (5, 3), False) is NotImplemented
    out, kept = kernel(x, h, w, bias, *steps)
    back = KERNELS["gru_sequence_backward"]
    assert back(out, kept, out, kept, w, *steps) is NotImplemented  # of the activations, too
    assert back(out, None, out[1:], kept, w, *steps) is NotImplemented
    x, h, w, _ = drawn([4, 4], 8, 1, np.float32)
    kernel, back = KERNELS["rnn_sequence"], KERNELS["rnn_sequence_backward"]
    assert kernel(x, h, w, "sine", *steps) is NotImplemented
    assert kernel(x, h[1:], w, "tanh", *steps) is NotImplemented
    assert back(x, x, w, "sine", *steps) is NotImplemented
    assert back(x[1:], x, w, "tanh", *steps) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_a_layer_trains_as_in_float64(kind: str, dtype: str) -> None:
    cd.manual_seed(0)
    net, x = getattr(cd.nn, kind)(6, 40, 2, bidirectional=True), cd.randn(7, 5, 6)
    net, x = net.to(getattr(cd, dtype)), x.to(getattr(cd, dtype))
    net(x)[0].float().square().sum().backward()
    found = [p.grad.double() for p in net.parameters()]
    net.zero_grad()
    net.double()(x.double())[0].square().sum().backward()
    limit = {"float32": 1e-4, "bfloat16": 0.1, "float16": 1e-2}[dtype]
    for p, grad in zip(net.parameters(), found, strict=True):
        assert (grad - p.grad).abs().max() <= limit * p.grad.abs().max()


@pytest.mark.parametrize("name", ["gru_sequence", "rnn_sequence"])
def test_the_pack_serves(name: str) -> None:
    x, h, w, bias = map(cd.from_numpy, drawn([4, 4], 8, 3 if name[0] == "g" else 1, np.float32))
    rest = (bias,) if name[0] == "g" else ("tanh",)
    assert "cpu_numba" in str(cd.explain(name, x, h, w, *rest, (4, 4), False).winner)
