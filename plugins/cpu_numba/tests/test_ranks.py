"""kthvalue and the median of a dimension, by NumPy and by the pack, against a stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

pytestmark = pytest.mark.once

SHAPES = st.one_of(
    st.tuples(st.integers(1, 300)),
    st.tuples(st.integers(1, 20), st.integers(1, 40)),
    st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(1, 20)),
)


def _numbers(shape: Any, dtype: Any, seed: int) -> np.ndarray:
    """Many equal ones where ``seed`` is even; NaN, infinities and both zeros in some."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, shape) if seed % 2 else rng.standard_normal(shape) * 9
    x = x.astype(dtype)
    if seed % 3 == 0 and np.dtype(dtype).kind == "f":
        x[rng.random(shape) < 0.05] = np.nan
        x[rng.random(shape) < 0.1] = -np.inf
        x[rng.random(shape) < 0.2] = -0.0
    return x


def _ranked(x: np.ndarray, rank: int, dim: int, keepdim: bool, nan_first: bool) -> Any:
    index = np.take(np.argsort(x, dim, kind="stable"), [rank], dim)
    if nan_first:
        missing = np.isnan(x)
        index = np.where(missing.any(dim, keepdims=True), missing.argmax(dim, keepdims=True), index)
    values = np.take_along_axis(x, index, dim)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


def _check(found: Any, want: Any) -> None:
    for ours, theirs in zip(found, want, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(want[0]))


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16, np.int64, np.uint8])
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_against_a_stable_sort(reference: Reference, dtype: Any, shape: Any, seed: int) -> None:
    x, keepdim = _numbers(shape, dtype, seed), bool(seed % 5)
    for dim in range(-len(shape), len(shape)):
        n = shape[dim]
        for k in {1, (n + 1) // 2, n}:
            want = _ranked(x, k - 1, dim, keepdim, False)
            for table in (reference, KERNELS):
                found = table["kthvalue"](x, k, dim, keepdim)
                if found is not NotImplemented:  # the pack's takes short rows only
                    _check(found, want)
        want = _ranked(x, (n - 1) // 2, dim, keepdim, x.dtype.kind == "f")
        for table in (reference, KERNELS):
            found = table["median_dim"](x, dim, keepdim)
            if found is not NotImplemented:
                _check(found, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_pack_takes_short_rows(dtype: Any) -> None:
    x = _numbers((40, 50), dtype, 1)
    for dim in (0, 1):
        assert KERNELS["kthvalue"](x, 3, dim, False) is not NotImplemented
        assert KERNELS["median_dim"](x, dim, False) is not NotImplemented
        assert KERNELS["kthvalue"](x, 0, dim, False) is NotImplemented
        assert KERNELS["kthvalue"](x, 51, dim, False) is NotImplemented
    assert KERNELS["kthvalue"](x, 1, 2, False) is NotImplemented
    assert KERNELS["median_dim"](x, -3, False) is NotImplemented
    x[3, 4] = np.nan
    assert KERNELS["median_dim"](x, 1, False) is NotImplemented


def test_no_such_rank_is_refused_by_the_operator(reference: Reference) -> None:
    x = np.ones((3, 4), np.float32)
    assert reference["kthvalue"](x, 5, 1, False) is NotImplemented
    assert reference["kthvalue"](x[0, 0], 1, 0, False) is NotImplemented
    assert reference["median_dim"](x[:, :0], 1, False) is NotImplemented
