"""Maxima with positions, adaptive maxima, and columns added into planes, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

import coredispatch as cd

pytestmark = pytest.mark.once
F = cd.nn.functional


@st.composite
def pooled(draw: Any) -> tuple[Any, ...]:
    """A shape, options of pooling, and a seed; some shapes are of one dimension to pool."""
    n = draw(st.integers(1, 2))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    shape += tuple(draw(st.integers(5, 40)) for _ in range(n))
    kernel = tuple(draw(st.integers(1, 5)) for _ in range(n))
    stride = tuple(draw(st.integers(1, 4)) for _ in range(n))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    dilation = tuple(1 if k > 2 else draw(st.integers(1, 3)) for k in kernel)
    return shape, (kernel, stride, padding, dilation, draw(st.booleans())), draw(st.integers(0, 99))


def _numbers(shape: Any, dtype: Any, seed: int) -> np.ndarray:
    """Few different ones, so that several are the largest; infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, shape).astype(dtype)
    x[rng.random(shape) < 0.02] = np.nan
    x[rng.random(shape) < 0.1] = -np.inf
    return x


def _same(got: Any, want: Any) -> None:
    assert got is not NotImplemented
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=pooled())
def test_maxima_with_positions(reference: Reference, dtype: Any, drawn: Any) -> None:
    shape, options, seed = drawn
    x = _numbers(shape, dtype, seed)
    got = KERNELS["max_pool_with_indices"](x, *options)
    if got is NotImplemented:  # a window that sees padding only, with dilation
        assert max(options[3]) > 1
        return
    _same(got, reference["max_pool_with_indices"](x, *options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1,), (5,), (5, 7), (1, 1), (40, 3)])
@given(shape=st.tuples(*[st.integers(1, 40)] * 2), seed=st.integers(0, 99))
def test_adaptive_maxima(dtype: Any, sizes: Any, shape: Any, seed: int) -> None:
    x = _numbers((2, 3, *shape[: len(sizes)]), dtype, seed)
    values, places = KERNELS["adaptive_max_pool"](x, sizes)
    spatial = x.shape[2:]
    for window in np.ndindex(*sizes):
        bounds = [
            slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(window, spatial, sizes)
        ]
        inside = x[(..., *bounds)].reshape(2, 3, -1)
        numbers = np.arange(np.prod(spatial)).reshape(spatial)[tuple(bounds)].reshape(-1)
        chosen = inside.argmax(-1)
        np.testing.assert_array_equal(places[(..., *window)], numbers[chosen])
        np.testing.assert_array_equal(values[(..., *window)], inside.max(-1))


@st.composite
def windows(draw: Any) -> tuple[Any, ...]:
    size = tuple(draw(st.integers(4, 40)) for _ in range(2))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(2))
    options = [tuple(draw(st.integers(low, 2)) for _ in range(2)) for low in (1, 0, 1)]
    return size, kernel, options


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=windows())
def test_columns(dtype: Any, drawn: Any) -> None:
    """The adjoint of taking them out: of whole numbers to the last digit."""
    size, kernel, (dilation, padding, stride) = drawn
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    if any(n + 2 * p < span for n, p, span in zip(size, padding, spans)):
        return
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 3, *size)).astype(dtype)
    columns = F.unfold(cd.from_numpy(x), kernel, dilation, padding, stride).numpy()
    given = rng.integers(-9, 9, columns.shape).astype(dtype)
    got = KERNELS["col2im"](given, size, kernel, dilation, padding, stride)
    assert (got.dtype, got.shape) == (x.dtype, x.shape)
    assert np.vdot(got, x) == np.vdot(given, columns)
    again = F.fold(cd.from_numpy(given), size, kernel, dilation, padding, stride)
    np.testing.assert_array_equal(again.numpy(), got)


def test_columns_that_do_not_fit_are_left_to_the_operator() -> None:
    x = np.ones((2, 72, 1000), np.float32)
    assert KERNELS["col2im"](x, (32, 32), (3,), (1,), (1,), (1,)) is NotImplemented
    with pytest.raises(ValueError, match="do not fit windows"):
        F.fold(cd.from_numpy(x), (32, 32), 3, padding=1)


def test_gradients() -> None:
    x = cd.randn(2, 3, 6, 7, dtype=cd.float64, requires_grad=True)
    assert cd.autograd.gradcheck(lambda x: F.unfold(x, (3, 2), 1, 1, 2), (x,))
    assert cd.autograd.gradgradcheck(lambda x: F.unfold(x * x, 2), (x,))
    assert cd.autograd.gradcheck(lambda x: F.adaptive_max_pool2d(x, (4, 3)), (x,))
    assert cd.autograd.gradcheck(lambda x: F.max_pool2d(x, 2, return_indices=True)[0], (x,))


def test_large_ones_are_shared_among_threads(reference: Reference, two_threads: None) -> None:
    x = np.random.default_rng(0).standard_normal((8, 16, 60, 60))
    options = (3, 3), (2, 2), (1, 1), (1, 1), False
    want = reference["max_pool_with_indices"](x, *options)
    _same(KERNELS["max_pool_with_indices"](x, *options), want)


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=pooled())
def test_maxima_and_their_gradient(reference: Reference, dtype: Any, drawn: Any) -> None:
    """Of one dimension and of two; of a step of 2, rows are parted into even and odd places."""
    shape, options, seed = drawn
    x = _numbers(shape, dtype, seed)
    got, want = (table["max_pool"](x, *options) for table in (KERNELS, reference))
    _same([got], [want])
    grad = np.random.default_rng(seed).integers(-9, 9, want.shape).astype(dtype)
    found = [table["max_pool_backward"](grad, x, *options) for table in (KERNELS, reference)]
    if found[0] is not NotImplemented:  # few elements
        _same(found[:1], found[1:])
