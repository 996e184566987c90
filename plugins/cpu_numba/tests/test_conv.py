"""Convolutions and their gradients: against NumPy's kernels, on every kind of vector register."""

from __future__ import annotations

import os
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

import coredispatch as cd
from coredispatch_cpu_numba.kernels.conv import general

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops serve small convolutions, too, which they usually leave to NumPy."""
    for limit in ("_SMALL", "_POINTWISE", "_FEW"):
        monkeypatch.setattr(general, limit, 0)


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Shapes of input and weight, stride, padding, dilation, groups, and the output's sizes."""
    ndim = draw(st.integers(1, 3))
    groups, given, channels = draw(
        st.sampled_from([(1, 1, 1), (1, 3, 8), (1, 4, 14), (2, 2, 3), (3, 1, 9), (6, 1, 1)])
    )
    images = draw(st.sampled_from([1, 2, 5, 9]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(ndim))

    kernel, stride, dilation, padding = each(1, 4), each(1, 3), each(1, 2), each(0, 4)
    spatial = each(7, {1: 60, 2: 20, 3: 9}[ndim])
    sizes = zip(spatial, kernel, stride, padding, dilation, strict=True)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    x, w = (images, groups * given, *spatial), (groups * channels, given, *kernel)
    return x, w, stride, padding, dilation, groups, out


def close(got: Any, want: Any, products: int) -> None:
    """Equal to within the rounding of ``products`` numbers of the size of 1 added up."""
    assert got is not NotImplemented
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    unit = float(np.finfo(want.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=8 * unit, atol=8 * unit * (products + 8))


def checked(reference: Reference, dtype: Any, drawn: Any) -> None:
    """A convolution and its gradients."""
    x_shape, w_shape, *options, out = drawn
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(dtype) for shape in (x_shape, w_shape))
    bias, grad = (
        rng.uniform(-1, 1, s).astype(dtype) for s in (w_shape[0], (x_shape[0], w_shape[0], *out))
    )
    stride, padding, dilation, groups = options
    more = (stride, padding, dilation, False, (0,) * len(stride), groups)
    products = prod(w_shape[1:]) + 1
    close(
        KERNELS["convolution"](x, w, bias, *more),
        reference["convolution"](x, w, bias, *more),
        products,
    )
    close(
        KERNELS["conv_input_grad"](grad, w, x_shape, *options),
        reference["conv_input_grad"](grad, w, x_shape, *options),
        products * w_shape[0],
    )
    close(
        KERNELS["conv_weight_grad"](grad, x, w_shape, *options),
        reference["conv_weight_grad"](grad, x, w_shape, *options),
        x_shape[0] * prod(out),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60)
@given(drawn=convolutions())
def test_convolution_and_gradients(reference: Reference, dtype: Any, drawn: Any) -> None:
    """Any stride, padding, dilation and number of groups, in one to three dimensions."""
    checked(reference, dtype, drawn)


#: rows of the result and how many there are, kernel, stride, channels: rows that vectors fill, that
#: are shorter than one, and that waste more in vectors of their own
ROWS = [
    (16, 16, (3, 3), (2, 2), (11, 24)),
    (32, 7, (3, 3), (1, 1), (32, 43)),
    (10, 9, (5, 5), (1, 1), (6, 16)),
    (8, 5, (4, 3), (2, 2), (3, 9)),
    (17, 4, (1, 2), (1, 2), (5, 8)),
    (48, 3, (2, 5), (2, 2), (30, 70)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("across", "high", "kernel", "stride", "channels"), ROWS)
@pytest.mark.parametrize("padding", [0, 1])
def test_rows_of_whole_vectors(
    reference: Reference, dtype: Any, across: int, high: int, kernel: Any, stride: Any,
    channels: Any, padding: int,
) -> None:  # fmt: skip
    given, own = channels
    sizes = zip((high, across), kernel, stride, strict=True)
    spatial = tuple((n - 1) * s + k - 2 * padding for n, k, s in sizes)
    shapes = (5, given, *spatial), (own, given, *kernel)
    drawn = *shapes, stride, (padding, padding), (1, 1), 1, (high, across)
    checked(reference, dtype, drawn)


@pytest.mark.parametrize("more", [(0, 0), (1, 1), (2, 0)])
def test_transposed(reference: Reference, more: tuple[int, int]) -> None:
    """With room for rows that no window reaches."""
    rng = np.random.default_rng(1)
    x, w = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((2, 6, 7, 9), (6, 4, 3, 2)))
    bias = np.arange(8, dtype=np.float32)
    options = ((3, 2), (1, 0), (1, 2), True, more, 2)
    close(
        KERNELS["convolution"](x, w, bias, *options),
        reference["convolution"](x, w, bias, *options),
        24,
    )


def test_output_padding_of_a_pointwise_kernel(reference: Reference) -> None:
    """NumPy's kernel took the matrix product for the whole result."""
    x, w = np.ones((1, 2, 3), np.float32), np.ones((2, 2, 1), np.float32)
    got = reference["convolution"](x, w, None, (1,), (0,), (2,), True, (1,), 1)
    np.testing.assert_array_equal(got, [[[2, 2, 2, 0]] * 2])


def test_special_values_go_where_they_belong(reference: Reference) -> None:
    """Vectors run across the ends of rows; an infinity at an end must not reach the next row."""
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 9, 9), (4, 3, 3, 3)))
    x[0, 1, 4, 8], x[1, 2, 0, 0] = np.inf, np.nan
    options = ((1, 1), (1, 1), (1, 1))
    got = KERNELS["convolution"](x, w, None, *options, False, (0, 0), 1)
    want = reference["convolution"](x, w, None, *options, False, (0, 0), 1)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    w[1, 2, 0, 2], w[3, 0, 1, 1] = np.inf, np.nan
    options = ((2, 1), (1, 1), (1, 2))
    grad = np.ones(reference["convolution"](x, w, None, *options, False, (0, 0), 1).shape, x.dtype)
    grad[0, 1, 1, 1] = 0
    got = KERNELS["conv_input_grad"](grad, w, x.shape, *options, 1)
    want = reference["conv_input_grad"](grad, w, x.shape, *options, 1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    options = ((1, 1), (1, 1), (1, 1))
    w = np.zeros_like(w)
    x, w = (cd.from_numpy(a) for a in (x, w))
    w.requires_grad_()
    cd.nn.functional.conv2d(x, w, padding=1).sum().backward()
    grad = np.ones((2, 4, 9, 9), np.float32)
    want = reference["conv_weight_grad"](grad, x.numpy(), (4, 3, 3, 3), *options, 1)
    np.testing.assert_array_equal(np.isfinite(w.grad.numpy()), np.isfinite(want))


def test_error_bound() -> None:
    """``K`` products: within ``K eps sum |input weight|`` of the exact sum."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 512, 6, 6), (8, 512, 3, 3)))
    options = (None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    got = KERNELS["convolution"](x, w, *options)
    wide = [a.astype(np.float64) for a in (x, w)]
    exact = KERNELS["convolution"](*wide, *options)
    bound = KERNELS["convolution"](*(np.abs(a) for a in wide), *options)
    bound *= 512 * 9 * float(np.finfo(np.float32).eps)
    assert (np.abs(got - exact) <= bound).all()


_MODELS = {"avx2": ("haswell", "+avx,+avx2,+fma"), "plain": ("x86-64", "+sse2")}


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="x86-64")
@pytest.mark.slow  # each compiles all loops anew
@pytest.mark.parametrize("model", _MODELS)
def test_other_vector_registers(model: str) -> None:
    """The same results with AVX2's sixteen registers, and without AVX."""
    if model == "avx2" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("no AVX2")
    program = """
import numpy as np
from coredispatch.backends.numpy import NumpyBackend
from coredispatch_cpu_numba.kernels.conv import general
from coredispatch_cpu_numba.vectors import machine
assert machine().registers == 16
rng, reference = np.random.default_rng(0), NumpyBackend().kernels
for groups, given, channels, across, step in (
    (1, 5, 15, 13, 1), (4, 1, 1, 13, 1), (1, 60, 18, 16, 2), (1, 3, 9, 5, 1)
):
    x = rng.standard_normal((3, groups * given, 11, across * step - 1)).astype(np.float32)
    w = rng.standard_normal((groups * channels, given, 3, 2)).astype(np.float32)
    options = ((2, step), (1, 1), (1, 1))
    out = general.KERNELS["convolution"](x, w, None, *options, False, (0, 0), groups)
    want = reference["convolution"](x, w, None, *options, False, (0, 0), groups)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)
    for name, a, b, shape in (
        ("conv_input_grad", want, w, x.shape), ("conv_weight_grad", want, x, w.shape)
    ):
        got = general.KERNELS[name](a, b, shape, *options, groups)
        want_grad = reference[name](a, b, shape, *options, groups)
        np.testing.assert_allclose(got, want_grad, rtol=1e-4, atol=1e-3)
"""
    name, features = _MODELS[model]
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    program = program.replace("rng, reference", "general._SMALL = 0\nrng, reference")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
