"""Convolutions of many channels as products: against NumPy's, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conv_checks import arrays, check_special_values, check_threads, checked
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, Reference

import coredispatch as cd
import coredispatch_cpu_numba as pack
from coredispatch_cpu_numba.kernels.conv import dense, general

pytestmark = pytest.mark.once
KERNELS = dense.KERNELS


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loops serve few channels, too, and all stages are shared among threads."""
    monkeypatch.setattr(dense, "_LEAST_CHANNELS", 1)
    monkeypatch.setattr(dense, "_CHANNELS_OF_A_TAP", 1)
    monkeypatch.setattr(dense, "_LEAST_POSITIONS", 1)
    monkeypatch.setattr(dense, "_CHUNK", 40)
    for name in ("_lay", "_pack", "_product", "_part_channels", "_upstream", "_fold"):
        monkeypatch.setattr(getattr(dense, name), "split", 100)
    monkeypatch.setattr(dense._weight_grad_loop, "split", 100)
    remembered = general._described, dense.input_grad_tables
    for function in remembered:
        function.cache_clear()
    before = pack.get_num_threads()
    yield
    for function in remembered:
        function.cache_clear()
    pack.set_num_threads(before)


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Shapes of input and weight, stride, padding, dilation, groups; one to three dimensions."""
    ndim = draw(st.sampled_from([1, 2, 2, 2, 3]))
    each = lambda values: draw(st.tuples(*[values] * ndim))  # noqa: E731
    kernel, stride = each(st.integers(1, 5)), each(st.integers(1, 3))
    dilation = each(st.sampled_from([1, 1, 1, 2]))
    padding = tuple(draw(st.integers(0, k)) for k in kernel)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    given, channels = draw(st.tuples(st.integers(1, 70), st.integers(1, 70)))
    spatial = tuple(
        draw(st.integers(max(1, d * (k - 1) + 1 - 2 * p), d * (k - 1) + 1 + 30 // ndim))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    x = (draw(st.integers(1, 3)), groups * given, *spatial)
    return x, (groups * channels, given, *kernel), stride, padding, dilation, groups


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=80)
@given(drawn=convolutions(), threads=st.integers(1, 2))
def test_convolution_and_gradients(
    reference: Reference, dtype: Any, drawn: Any, threads: int
) -> None:
    pack.set_num_threads(threads)
    left = checked(KERNELS, reference, dtype, *drawn)
    assert left <= {"conv_input_grad"}  # where windows leave gaps, or see mostly padding


#: of networks: images, channels, sizes of input, channels of the result, kernel, stride, padding
LAYERS = [
    ((1, 512, 7, 7), 512, 3, 1, 1), ((2, 64, 14, 14), 128, 3, 2, 1), ((2, 64, 9, 9), 64, 1, 1, 0),
    ((3, 128, 4, 4), 64, 4, 2, 1), ((4, 96, 8, 8), 40, 5, 1, 0), ((1, 48, 31, 17), 33, 3, 1, 1),
    ((2, 32, 16, 16), 48, 2, 2, 0), ((2, 40, 12, 12), 56, 7, 1, 3), ((9, 32, 1, 1), 32, 1, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "channels", "k", "step", "pad"), LAYERS)
def test_layers(
    reference: Reference, dtype: Any, shape: Any, channels: int, k: int, step: int, pad: int
) -> None:
    weight = (channels, shape[1], k, k)
    pairs = ((step, step), (pad, pad), (1, 1))
    assert not checked(KERNELS, reference, dtype, shape, weight, *pairs, 1)


@pytest.mark.parametrize("step", [1, 2])
def test_special_values_go_where_they_belong(reference: Reference, step: int) -> None:
    check_special_values(KERNELS, reference, (2, 20, 9, 11), (24, 20, 3, 3), step, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads(dtype: Any) -> None:
    check_threads(KERNELS, dtype, (3, 48, 15, 15), (72, 48, 3, 3), 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums_are_made_in_slices(dtype: Any) -> None:
    """A chain of so many additions in one number would lose far more digits."""
    x, grad = (np.full((10, 32, 64, 64), value, dtype) for value in (0.1, 0.7))
    got = KERNELS["conv_weight_grad"](grad, x, (32, 32, 1, 1), (1, 1), (0, 0), (1, 1), 1)
    want = 40960 * float(x[0, 0, 0, 0]) * float(grad[0, 0, 0, 0])
    np.testing.assert_allclose(got, want, rtol=300 * np.finfo(dtype).eps)


def test_what_is_left_to_others() -> None:
    x, w = arrays(np.float32, (2, 64, 12, 12), (64, 64, 3, 3))
    options = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    assert KERNELS["convolution"](x.transpose(0, 1, 3, 2), w, *options) is NotImplemented
    large = np.zeros((1, 32, 100, 100), np.float32)
    weight = np.zeros((32, 32, 3, 3), np.float32)
    assert KERNELS["convolution"](large, weight, *options) is NotImplemented
    takes = dense.WHEN["convolution"]
    assert takes(x, w, *options)
    assert not takes(x.astype(np.int64), w, *options)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_compiled_programs(transposed: bool, step: int) -> None:
    """They run the same loops: forward and both gradients."""
    name = "conv_transpose2d" if transposed else "conv2d"
    convolution = getattr(cd.nn.functional, name)
    x, w, b = (cd.from_numpy(a) for a in arrays(np.float32, (2, 32, 10, 10), (48, 32, 4, 4), (48,)))
    if transposed:
        x, w, b = (
            cd.from_numpy(a) for a in arrays(np.float32, (2, 48, 10, 10), (48, 32, 4, 4), (32,))
        )

    def gradients(x: cd.Tensor, w: cd.Tensor, b: cd.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        out = convolution(x, w, b, stride=step, padding=1)
        return out.detach(), *cd.autograd.grad((out * out).sum(), (x, w))

    compiled = cd.compile(gradients)
    for _ in range(3):
        for got, want in zip(compiled(x, w, b), gradients(x, w, b), strict=True):
            cd.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    w = w.clone()
    w[0, 0, 0, 0] = float("inf")
    for got, want in zip(compiled(x, w, b), gradients(x, w, b), strict=True):
        cd.testing.assert_close(got, want, rtol=1e-4, atol=1e-3, equal_nan=True)
