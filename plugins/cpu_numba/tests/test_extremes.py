"""Extremes with their indices, running ones, and sums without NaN, against NumPy's kernels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

import coredispatch as cd

pytestmark = pytest.mark.once

SHAPES = st.one_of(
    st.tuples(st.integers(1, 300)),
    st.tuples(st.integers(1, 30), st.integers(1, 40)),
    st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 40)),
)


def _numbers(shape: Any, dtype: Any, seed: int) -> np.ndarray:
    """Few different ones, so that several are the largest; infinities and NaN in some rows."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, shape).astype(dtype)
    if seed % 2:
        x[rng.random(shape) < 0.05] = np.nan
    x[rng.random(shape) < 0.05] = -np.inf
    return x


def _same(got: Any, want: Any) -> None:
    assert got is not NotImplemented
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["max_dim", "min_dim", "cummax", "cummin"])
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_extremes(reference: Reference, name: str, dtype: Any, shape: Any, seed: int) -> None:
    """The first of equals, of running ones the latest; a NaN wins."""
    x = _numbers(shape, dtype, seed)
    for dim in range(-len(shape), len(shape)):
        options = (dim,) if name.startswith("cum") else (dim, bool(seed % 3))
        _same(KERNELS[name](x, *options), reference[name](x, *options))


@pytest.mark.parametrize("name", ["max_dim", "min_dim", "cummax"])
def test_large_ones_are_shared_among_threads(
    reference: Reference, name: str, two_threads: None
) -> None:
    x = np.random.default_rng(0).standard_normal((9, 300, 70))
    for dim in range(3):
        options = (dim,) if name == "cummax" else (dim, False)
        _same(KERNELS[name](x, *options), reference[name](x, *options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["nansum", "nanmean"])
@pytest.mark.parametrize("shape", [(900,), (30, 40), (3, 40, 50), (2000, 3)])
def test_sums_without_nan(name: str, dtype: Any, shape: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x.reshape(-1)[5] = np.inf
    for dim in (None, (0,), (-1,)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = KERNELS[name](x, dim, False, None)
            want = getattr(np, name)(x.astype(np.float64), None if dim is None else dim)
        unit = 200 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(got, want, rtol=unit, atol=unit)
        x.reshape(-1)[7] = np.nan
        assert KERNELS[name](x, dim, False, None) is NotImplemented
        given = getattr(cd, name)(cd.from_numpy(x), dim).numpy()
        want = getattr(np, name)(x.astype(np.float64), None if dim is None else dim)
        np.testing.assert_allclose(given, want, rtol=unit, atol=unit)
        x.reshape(-1)[7] = 0.0
