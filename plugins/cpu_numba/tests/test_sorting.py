"""sort, argsort and topk of short rows against NumPy's kernels, which sort stably."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import KERNELS, Reference

from coredispatch.plugin import dtypes, numpy_dtype

pytestmark = pytest.mark.once

_DTYPES = [np.float32, np.float64, np.float16, numpy_dtype(dtypes.bfloat16)]


def _assert_same(got: Any, expected: Any) -> None:
    """Bit for bit, the signs of zeros and of NaN included."""
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()


@st.composite
def rows(draw: Any) -> np.ndarray:
    """Rows with many equal elements, NaN of both signs, infinities and zeros of both signs."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 96)))
    values = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1e-7, 1.0, 2.0, np.inf, np.nan, -np.nan])
    drawn = draw(st.lists(values, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(drawn, np.float32).reshape(shape)


@pytest.mark.parametrize("dtype", _DTYPES)
@given(x=rows(), descending=st.booleans(), data=st.data())
def test_short_rows(
    reference: Reference, dtype: Any, x: np.ndarray, descending: bool, data: Any
) -> None:
    x = x.astype(dtype)
    k = data.draw(st.integers(1, x.shape[1]))
    expected = reference["sort"](x, 1, descending, True)
    got = KERNELS["sort"](x, -1, descending, False)
    _assert_same(got, expected)
    _assert_same([KERNELS["argsort"](x, 1, descending, False)], expected[1:])
    _assert_same(
        KERNELS["topk"](x, k, -1, descending, True), [part[:, :k].copy() for part in expected]
    )


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17, 31, 96, 256])
def test_rows_of_whole_and_broken_vectors(reference: Reference, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((40, n))
    _assert_same(KERNELS["sort"](x, 1, False, False), reference["sort"](x, 1, False, True))


def test_what_is_left_to_numpy() -> None:
    """Long rows, other dimensions, no elements, a number, integers, a k out of range."""
    x = np.ones((3, 20), np.float32)
    for odd, dim in (
        (np.ones((2, 97), np.float32), 1),
        (np.ones((2, 257)), 1),
        (x, 0),
        (x[:, :0], 1),
        (x[:, ::2], 1),
        (np.float32(1).reshape(()), -1),
        (x.astype(np.int64), 1),
    ):
        assert KERNELS["sort"](odd, dim, False, False) is NotImplemented
        assert KERNELS["argsort"](odd, dim, False, False) is NotImplemented
    assert KERNELS["topk"](x, 21, 1, True, True) is NotImplemented
    assert KERNELS["topk"](x, 0, 1, True, True) is NotImplemented


def test_threads_share_rows(reference: Reference, two_threads: None) -> None:
    x = np.random.default_rng(0).standard_normal((700, 33)).astype(np.float32)
    _assert_same(KERNELS["sort"](x, 1, True, False), reference["sort"](x, 1, True, True))
