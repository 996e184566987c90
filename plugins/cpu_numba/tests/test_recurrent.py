"""Recurrent layers step by step in one call: the loops against the operators' decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import KERNELS

import coredispatch as cd
from coredispatch_cpu_numba.tiles import panel_width

pytestmark = pytest.mark.once

SIZES = st.lists(st.integers(1, 19), min_size=1, max_size=5).map(lambda n: sorted(n)[::-1])


def decomposed(name: str, *args: Any) -> list[np.ndarray]:
    """What the operator's decomposition gives."""
    out = getattr(cd.ops, name).decomposition(
        *[cd.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args]
    )
    return [x.numpy() for x in (out if isinstance(out, tuple) else (out,))]


def agree(name: str, *args: Any, tolerance: float) -> None:
    found, wanted = KERNELS[name](*args), decomposed(name, *args)
    found = found if isinstance(found, tuple) else (found,)
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, tolerance, tolerance)


def drawn(sizes: list[int], n: int, dtype: Any, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    shapes = (sum(sizes), 4 * n), (sizes[0], n), (sizes[0], n), (4 * n, n)
    gates, h, c, w = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    return gates, h, c, w / np.sqrt(n).astype(dtype)


@settings(max_examples=20)
@given(
    SIZES,
    st.sampled_from([1, 3, 4, 8, 13, 33]),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
    st.integers(0, 9),
)
def test_lstm(sizes, n, dtype, reverse, arriving, seed) -> None:
    gates, h, c, w = drawn(sizes, n, dtype, seed)
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    steps = tuple(sizes), reverse
    agree("lstm_sequence", gates, h, c, w, None, *steps, tolerance=tolerance)
    out, cells, kept = KERNELS["lstm_sequence"](gates, h, c, w, None, *steps)
    grads = np.random.default_rng(seed + 1).normal(size=(2, *out.shape)).astype(dtype)
    given = [grad if there else None for grad, there in zip(grads, arriving, strict=True)]
    agree(
        "lstm_sequence_backward", *given, None, cells, kept, c, w, None, *steps,
        tolerance=5 * tolerance,
    )  # fmt: skip


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    sizes = (70,) * 9 + (33,) * 4 + (1,)
    gates, h, c, w = drawn(list(sizes), 48, np.float32)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            forward = KERNELS["lstm_sequence"](gates, h, c, w, None, sizes, False)
            arguments = (forward[0], None, None, *forward[1:], c, w, None, sizes, False)
            found.append([*forward, *KERNELS["lstm_sequence_backward"](*arguments)])
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("batch", [1, 6])
def test_what_is_no_number_stays_in_its_sequence(batch: int) -> None:
    gates, h, c, w = drawn([batch] * 3, 8, np.float32)
    gates[0, 5] = np.nan
    gates[batch - 1, 2] += np.inf if batch > 1 else 0
    out, _, _ = KERNELS["lstm_sequence"](gates, h, c, w, None, (batch,) * 3, False)
    lost = np.isnan(out).any(1)
    assert lost[0]
    assert not lost[1 : batch - 1].any()


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    gates, h, c, w = drawn([4, 4], 8, np.float32)
    kernel = KERNELS["lstm_sequence"]
    assert kernel(gates, h, c, w, w[:5], (4, 4), False) is NotImplemented  # projected
    assert kernel(gates.astype(np.float16), h, c, w, None, (4, 4), False) is NotImplemented
    assert kernel(gates[:, ::-1], h, c, w, None, (4, 4), False) is NotImplemented
    assert kernel(gates, h, c, w, None, (5, 3), False) is NotImplemented


@pytest.mark.parametrize("hidden", [100, 128])
def test_a_layer_trains_as_with_numpy_alone(hidden: int) -> None:
    cd.manual_seed(0)
    net, x = cd.nn.LSTM(6, hidden, 2, bidirectional=True), cd.randn(7, 5, 6)
    net(x)[0].square().sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net.double()(x.double())[0].square().sum().backward()
    for p, grad in zip(net.parameters(), found, strict=True):
        assert cd.allclose(grad.double(), p.grad, rtol=1e-3, atol=1e-4 * p.grad.abs().max().item())
    assert panel_width("f") == 2 * panel_width("d")
