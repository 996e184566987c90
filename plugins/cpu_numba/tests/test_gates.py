"""glu with its gradient, and prelu with a weight for each channel, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

pytestmark = pytest.mark.once


def _numbers(shape: Any, dtype: Any) -> np.ndarray:
    x = (np.random.default_rng(0).standard_normal(shape) * 4).astype(dtype)
    flat = x.reshape(-1)
    odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -100.0]
    flat[: len(odd)] = odd[: flat.size]
    return x


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("dtype", DTYPES)
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), data=st.data())
def test_glu(dtype: Any, shape: list[int], data: Any) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] *= 2
    x = _numbers(shape, dtype)
    value, logit = np.split(x.astype(np.float64), 2, dim)
    gate, unit = _sigmoid(logit), 8 * float(np.finfo(dtype).eps)
    with np.errstate(invalid="ignore"):
        want = value * gate
        slope = gate * _sigmoid(-logit) * value
    got = KERNELS["glu"](x, dim)
    assert (got.dtype, got.shape) == (np.dtype(dtype), want.shape)
    np.testing.assert_allclose(got, want, rtol=unit, atol=1e-37)
    grad = np.ones(want.shape, dtype) * dtype(0.5)
    got = KERNELS["glu_backward"](grad, x, dim)
    want = np.concatenate([gate * 0.5, slope * 0.5], dim)
    np.testing.assert_allclose(got, want, rtol=4 * unit, atol=1e-37)


@pytest.mark.parametrize("shape", [(100000,), (3, 30000), (200, 600)])
def test_large_ones_are_shared_among_threads(shape: Any, two_threads: None) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    value, logit = np.split(x.astype(np.float64), 2, -1)
    want = value * _sigmoid(logit)
    np.testing.assert_allclose(KERNELS["glu"](x, -1), want, rtol=1e-6)
    got = KERNELS["glu_backward"](np.ones(want.shape, np.float32), x, -1)
    slope = want * _sigmoid(-logit)
    np.testing.assert_allclose(got, np.concatenate([_sigmoid(logit), slope], -1), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 70), (3, 7, 19), (2, 3, 5, 33)])
def test_slopes_of_channels(dtype: Any, shape: Any) -> None:
    x = _numbers(shape, dtype)
    weight = np.random.default_rng(1).standard_normal(shape[1]).astype(dtype)
    weight[1] = np.inf
    slopes = weight.reshape(-1, *[1] * (len(shape) - 2))
    with np.errstate(invalid="ignore"):
        want = np.where(x > 0, x, x * slopes)
    got = KERNELS["prelu"](x, weight)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])


def test_what_is_left_to_others() -> None:
    x = np.ones((4, 6), np.float32)
    assert KERNELS["glu"](x[:, :5].copy(), 1) is NotImplemented
    assert KERNELS["glu"](x.T, 1) is NotImplemented
    assert KERNELS["glu"](x, 2) is NotImplemented
    assert KERNELS["glu_backward"](x, x, 1) is NotImplemented
    assert KERNELS["prelu"](x, x[0, :5].copy()) is NotImplemented
    assert KERNELS["prelu"](x[0], x[0]) is NotImplemented
