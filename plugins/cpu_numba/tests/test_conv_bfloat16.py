"""Convolutions of bfloat16 by tiles or vectors, against float64 sums by NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import Reference

import coredispatch as cd
from coredispatch_cpu_numba.kernels.conv import bfloat16, general
from coredispatch_cpu_numba.kernels.linalg.products_bfloat16 import BFLOAT16, has_pairs

KERNELS = bfloat16.KERNELS
pytestmark = [
    pytest.mark.skipif(not has_pairs(), reason="no products of bfloat16"),
    pytest.mark.once,
]


@pytest.fixture(autouse=True, scope="module")
def every_size() -> Any:
    """The loops serve small convolutions, too, which they usually leave to others."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_SMALL", "_POINTWISE", "_FEW"):
            patch.setattr(general, limit, 0)
        yield


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(BFLOAT16)


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Shapes of input and weight, stride, padding, dilation, groups, and the output's sizes."""
    ndim = draw(st.integers(1, 3))
    groups, given, channels = draw(
        st.sampled_from([(1, 1, 1), (1, 3, 16), (1, 17, 33), (1, 40, 5), (2, 4, 6), (1, 34, 66)])
    )
    images = draw(st.sampled_from([1, 2, 5]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(ndim))

    kernel, stride, dilation, padding = each(1, 4), each(1, 3), each(1, 2), each(0, 2)
    spatial = each(7, {1: 90, 2: 20, 3: 9}[ndim])
    sizes = zip(spatial, kernel, stride, padding, dilation, strict=True)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    x, w = (images, groups * given, *spatial), (groups * channels, given, *kernel)
    return x, w, stride, padding, dilation, groups, (images, groups * channels, *out)


def close(got: Any, kernel: Any, a: np.ndarray, b: np.ndarray, *options: Any) -> None:
    """Each element within a rounding to bfloat16 and those of float32 sums."""
    assert got is not NotImplemented
    wide = [x.astype(np.float64) for x in (a, b)]
    want, size = kernel(*wide, *options), kernel(*map(np.abs, wide), *options)
    assert (got.dtype, got.shape) == (BFLOAT16, want.shape)
    bound = 2.0**-8 * np.abs(want) + 2.0**-14 * np.abs(size)
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@settings(max_examples=30)
@given(drawn_shapes=convolutions())
def test_convolution_and_gradients(reference: Reference, drawn_shapes: Any) -> None:
    x_shape, w_shape, stride, padding, dilation, groups, out = drawn_shapes
    x, w, g = drawn(x_shape, 0), drawn(w_shape, 1), drawn(out, 2)
    options = (stride, padding, dilation)
    zero = (0,) * len(stride)
    found = KERNELS["convolution"](x, w, None, *options, False, zero, groups)
    plain = reference["convolution"]
    rest = (None, *options, False, zero, groups)
    close(found, plain, x, w, *rest)
    for name, other, shape in (("conv_input_grad", w, x_shape), ("conv_weight_grad", x, w_shape)):
        found = KERNELS[name](g, other, shape, *options, groups)
        close(found, reference[name], g, other, shape, *options, groups)


def test_bias_and_transposed(reference: Reference) -> None:
    x, w, bias = drawn((2, 20, 9, 11), 0), drawn((20, 18, 2, 3), 1), drawn((18,), 2)
    for transposed, weight in ((False, np.ascontiguousarray(w.swapaxes(0, 1))), (True, w)):
        more = (1, 0) if transposed else (0, 0)
        rest = ((2, 2), (1, 0), (1, 1), transposed, more, 1)
        found = KERNELS["convolution"](x, weight, bias, *rest)
        level = bias.astype(np.float64)

        def plain(a: Any, b: Any, *options: Any, level: Any = level) -> Any:
            return reference["convolution"](a, b, level, *options)

        close(found, plain, x, weight, *rest)


def test_threads_do_not_change_results() -> None:
    x, w = drawn((9, 24, 17, 19), 0), drawn((40, 24, 3, 3), 1)
    options, before, found = ((1, 1), (1, 1), (1, 1)), cd.get_num_threads(), []
    try:
        for threads in (1, 3):
            cd.set_num_threads(threads)
            y = KERNELS["convolution"](x, w, None, *options, False, (0, 0), 1)
            dx = KERNELS["conv_input_grad"](y, w, x.shape, *options, 1)
            found.append((y, dx, KERNELS["conv_weight_grad"](y, x, w.shape, *options, 1)))
    finally:
        cd.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))


def test_infinity_stays_where_it_belongs(reference: Reference) -> None:
    """In outputs it reaches its windows only; gradients that could spread it are left to others."""
    x, w = drawn((2, 20, 9, 9), 0), drawn((20, 20, 3, 3), 1)
    x[0, 3, 4, 4], options = np.inf, ((1, 1), (1, 1), (1, 1))
    y = KERNELS["convolution"](x, w, None, *options, False, (0, 0), 1)
    where = np.zeros(y.shape, bool)
    where[0, :, 3:6, 3:6] = True
    np.testing.assert_array_equal(~np.isfinite(y.astype(np.float32)), where)
    grad = np.ones(y.shape, BFLOAT16)
    assert KERNELS["conv_weight_grad"](grad, x, w.shape, *options, 1) is NotImplemented
    w[0, 0, 0, 0] = np.nan
    assert KERNELS["conv_input_grad"](grad, w, x.shape, *options, 1) is NotImplemented


def test_what_the_loops_do_not_take_is_left_to_others() -> None:
    x, w = drawn((2, 8, 9, 9), 0), drawn((8, 1, 3, 3), 1)
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0))
    assert KERNELS["convolution"](x, w, None, *rest, 8) is NotImplemented  # depthwise
    full = drawn((8, 8, 3, 3), 1)
    assert KERNELS["convolution"](x[:, :, ::-1], full, None, *rest, 1) is NotImplemented
    assert KERNELS["convolution"](x, full.astype(np.float32), None, *rest, 1) is NotImplemented
    assert KERNELS["convolution"](x, full, np.ones(8, np.float32), *rest, 1) is NotImplemented


def test_a_network_trains_under_autocast() -> None:
    cd.manual_seed(0)
    net = cd.nn.Sequential(cd.nn.Conv2d(3, 32, 3), cd.nn.ReLU(), cd.nn.ConvTranspose2d(32, 8, 2, 2))
    x, found = cd.randn(4, 3, 20, 20), []
    for autocast in (True, False):
        net.zero_grad()
        with cd.autocast("cpu", cd.bfloat16, enabled=autocast):
            y = net(x)
        y.float().square().mean().backward()
        found.append([p.grad.clone() for p in net.parameters()])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == cd.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()
