"""Places in sorted sequences and histograms against NumPy's and the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

import coredispatch as cd

pytestmark = pytest.mark.once


@given(
    dtype=st.sampled_from([*DTYPES, np.int64]),
    length=st.integers(0, 40) | st.sampled_from([255, 1000]),
    size=st.sampled_from([64, 255, 256, 257, 1003]),
    nans=st.integers(0, 3),
    right=st.booleans(),
    seed=st.integers(0, 99),
)
def test_places(dtype: Any, length: int, size: int, nans: int, right: bool, seed: int) -> None:
    """Among sequences with repetitions, NaN at the end, and values that are equal to some."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(-20, 20, length).astype(dtype))
    values = rng.integers(-22, 22, size).astype(dtype)
    if dtype is not np.int64:
        rows[max(0, length - nans) :] = np.nan
        values[:5] = np.nan, np.inf, -np.inf, 0.0, -0.0
    got = KERNELS["searchsorted"](rows, values, False, right, None, None)
    expected = np.searchsorted(rows, values, "right" if right else "left")
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("dtype", [*DTYPES, np.int64])
@pytest.mark.parametrize("shape", [(3, 100), (70, 1), (2, 5, 300), (0, 5), (3, 40_000)])
def test_places_of_rows(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 50, (*shape[:-1], 13)).astype(dtype))
    values = rng.integers(-5, 55, shape).astype(dtype)
    got = cd.searchsorted(cd.from_numpy(rows), cd.from_numpy(values), out_int32=True)
    assert got.dtype is cd.int32
    for index in np.ndindex(*shape[:-1]):
        found = np.searchsorted(rows[index], values[index])
        np.testing.assert_array_equal(got.numpy()[index], found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [(0, 0), (-1, 1), (-0.3, 2.5)])
def test_counts_of_cells(dtype: Any, bounds: tuple[float, float]) -> None:
    """As the definition counts, with numbers on the edges and, between given bounds, NaN."""
    x = np.random.default_rng(0).standard_normal(1003).astype(dtype)
    x[::5] = np.rint(x[::5] * 4) / 4
    if bounds != (0, 0):
        x[:5] = np.nan, np.inf, -np.inf, *bounds
    tensor = cd.from_numpy(x)
    for bins in (1, 4, 7, 300):
        got = KERNELS["histc"](x, bins, *bounds)
        expected = cd.histc.decomposition(tensor, bins, *bounds)
        np.testing.assert_array_equal(got, expected.numpy(), strict=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ranges_that_are_not_finite_are_refused(value: float) -> None:
    x = np.ones(100, np.float32)
    x[50] = value
    assert KERNELS["histc"](x, 4, 0, 0) is NotImplemented
    with pytest.raises(ValueError, match="not finite"):
        cd.histc(cd.from_numpy(x), 4)
