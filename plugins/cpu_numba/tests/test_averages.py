"""Average pooling and its gradient, adaptive as well, against NumPy's kernels in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

pytestmark = pytest.mark.once


@st.composite
def pooled(draw: Any) -> tuple[Any, ...]:
    """A shape, options of pooling, the size of an adaptive result, and a seed."""
    n = draw(st.integers(1, 2))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    shape += tuple(draw(st.integers(5, 40)) for _ in range(n))
    kernel = tuple(draw(st.integers(1, 5)) for _ in range(n))
    stride = tuple(draw(st.integers(1, 7)) for _ in range(n))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    counting = draw(st.sampled_from([(True, None), (False, None), (True, 3), (False, 7)]))
    options = (kernel, stride, padding, draw(st.booleans()), *counting)
    return shape, options, tuple(draw(st.integers(1, 9)) for _ in range(n)), draw(st.integers(0, 9))


def _numbers(shape: Any, dtype: Any, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    if seed == 1:
        x.reshape(-1)[::37], x.reshape(-1)[5::41] = np.nan, np.inf
    return x


def _check(name: str, reference: Reference, x: np.ndarray, *options: Any) -> np.ndarray:
    got, want = KERNELS[name](x, *options), reference[name](x.astype(np.float64), *options)
    assert got is not NotImplemented
    assert (got.dtype, got.shape) == (x.dtype, want.shape)
    unit = 64 * float(np.finfo(x.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=unit, atol=unit)
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=pooled())
def test_windows(reference: Reference, dtype: Any, drawn: Any) -> None:
    shape, options, size, seed = drawn
    x = _numbers(shape, dtype, seed)
    out = _check("avg_pool", reference, x, *options)
    grad = _numbers(out.shape, dtype, seed)
    _check("avg_pool_backward", reference, grad, shape, *options)
    out = _check("adaptive_avg_pool", reference, x, size)
    grad = _numbers(out.shape, dtype, seed)
    _check("adaptive_avg_pool_backward", reference, grad, shape, size)


@pytest.mark.parametrize("shape", [(3, 70, 130, 33), (200, 400)])
def test_planes_are_shared_among_threads(
    reference: Reference, shape: Any, two_threads: None
) -> None:
    x = _numbers(shape, np.float32, 0)
    n = len(shape) // 2
    options = (3,) * n, (2,) * n, (1,) * n, False, False, None
    grad = _check("avg_pool", reference, x, *options)
    _check("avg_pool_backward", reference, grad, shape, *options)


def test_what_is_left_to_others() -> None:
    x = np.ones((2, 3, 8, 8), np.float32)
    options = (2, 2), (2, 2), (0, 0), False, True, None
    assert KERNELS["avg_pool"](x.swapaxes(2, 3), *options) is NotImplemented
    assert KERNELS["avg_pool"](x, (2, 2), (2, 2), (5, 5), False, True, None) is NotImplemented
    assert KERNELS["avg_pool"](x, (1,) * 3, (1,) * 3, (0,) * 3, False, True, None) is NotImplemented
    assert KERNELS["adaptive_avg_pool"](x, (0, 2)) is NotImplemented
    grad = np.ones((2, 3, 3, 3), np.float32)
    assert KERNELS["avg_pool_backward"](grad, x.shape, *options) is NotImplemented
