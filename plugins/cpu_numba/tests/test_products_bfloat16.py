"""Products of bfloat16 matrices on tiles and in pairs, against float64 products by NumPy.

Where the processor has no such instructions, the kernels reject, which is tested too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch_cpu_numba.kernels.linalg import products_bfloat16 as products

pytestmark = pytest.mark.once

BFLOAT16 = products.BFLOAT16
SERVED = products.has_pairs()
SIZES = st.sampled_from([64, 65, 96, 130])
DEPTHS = st.sampled_from([64, 171, 512, 530, 1025, 2100])


@pytest.fixture(params=["tiles", "pairs"], scope="module", autouse=True)
def instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on AMX tiles, where there are any, and without them."""
    if request.param == "tiles":
        if not products.has_panels():
            pytest.skip("no AMX tiles of bfloat16")
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "has_panels", lambda: False)
        yield


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(BFLOAT16)


def close(found: Any, *factors: np.ndarray, bias: Any = 0.0) -> None:
    """Each element within a rounding to bfloat16 and ``depth`` roundings of float32 sums."""
    if not SERVED:
        assert found is NotImplemented
        return
    a, b = (x.astype(np.float64) for x in factors)
    wanted, size = a @ b + bias, np.abs(a) @ np.abs(b) + np.abs(bias)
    assert found.shape == wanted.shape
    assert found.dtype == BFLOAT16
    bound = 2.0**-8 * np.abs(wanted) + a.shape[-1] * 2.0**-23 * size
    assert (np.abs(found.astype(np.float64) - wanted) <= bound).all()


@settings(max_examples=15)
@given(SIZES, DEPTHS, SIZES, st.booleans())
def test_linear(rows: int, depth: int, columns: int, biased: bool) -> None:
    x, w = drawn(rows, depth), drawn(columns, depth, seed=1)
    bias = drawn(columns, seed=2) if biased else None
    added = 0.0 if bias is None else bias.astype(np.float64)
    close(products.KERNELS["linear"](x, w, bias), x, w.T, bias=added)
    stacked = products.KERNELS["linear"](x.reshape(1, rows, depth), w, bias)
    if SERVED:
        assert stacked.shape == (1, rows, columns)
        close(stacked[0], x, w.T, bias=added)


@settings(max_examples=15)
@given(SIZES, DEPTHS, SIZES)
def test_gradients_and_plain_products(rows: int, depth: int, columns: int) -> None:
    grad, x = drawn(depth, rows), drawn(depth, columns, seed=1)
    close(products.KERNELS["linear_weight_grad"](grad, x), grad.T, x)
    left, turned = np.ascontiguousarray(grad.T), np.ascontiguousarray(x.T).T
    for a in (left, grad.T):
        for b in (x, turned):
            close(products.KERNELS["matmul"](a, b), a, b)


@pytest.mark.skipif(not SERVED, reason="the processor has no AVX512-BF16")
def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    x, w = drawn(1000, 301), drawn(130, 301, seed=1)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            found.append(
                (
                    products.KERNELS["linear"](x, w, None),
                    products.KERNELS["linear_weight_grad"](x, x),
                )
            )
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))


@pytest.mark.skipif(not SERVED, reason="the processor has no AVX512-BF16")
def test_special_values() -> None:
    """Infinity and NaN stay in their rows and columns; sums too large become infinite."""
    x, w = np.ones((64, 64), BFLOAT16), np.ones((64, 64), BFLOAT16)
    x[3, 5], x[7, 0], x[9, :] = np.inf, np.nan, 3e38
    w[2, 5] = 0
    out = products.KERNELS["linear"](x, w, None).astype(np.float32)
    assert np.isnan(out[3, 2])
    assert np.isinf(np.delete(out[3], 2)).all()
    assert np.isnan(out[7]).all()
    assert np.isinf(out[9]).all()
    np.testing.assert_array_equal(np.delete(out, [3, 7, 9], 0)[:, [0, 1, 3]], 64)


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    x, w = drawn(64, 64), drawn(64, 64, seed=1)
    assert products.KERNELS["linear"](x[:4], w, None) is NotImplemented  # few rows
    assert products.KERNELS["linear"](x, w[:, :32], None) is NotImplemented
    assert products.KERNELS["linear"](x, w, np.ones(64, np.float32)) is NotImplemented
    assert products.KERNELS["linear"](x, w.astype(np.float32), None) is NotImplemented
    assert products.KERNELS["linear"](x[:, ::-1], w, None) is NotImplemented
    assert products.KERNELS["matmul"](x, np.stack([w, w])) is NotImplemented


def test_a_network_trains_under_autocast_as_without_the_pack() -> None:
    found = []
    for loaded in (True, False):
        if not loaded:
            cd.plugins.unload("cpu_numba")
        try:
            cd.manual_seed(0)
            net = cd.nn.Sequential(cd.nn.Linear(100, 96), cd.nn.ReLU(), cd.nn.Linear(96, 80))
            with cd.autocast("cpu", cd.bfloat16):
                y = net(cd.randn(128, 100))
            y.float().square().mean().backward()
            found.append([p.grad.clone() for p in net.parameters()])
        finally:
            if not loaded:
                cd.plugins.load("cpu_numba")
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == cd.float32
        assert (ours - theirs).norm() < 0.003 * theirs.norm()
