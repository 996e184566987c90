"""Extremes, powers and conversions of half precision against NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.plugin import dtypes, numpy_dtype
from coredispatch_cpu_numba.kernels import half_arithmetic, halves

pytestmark = pytest.mark.once

HALVES = [numpy_dtype(dtypes.bfloat16), np.dtype(np.float16)]
ALL_BITS = np.arange(1 << 16, dtype=np.uint16)
OTHERS = "float32 float64 bool int8 uint8 int16 int32 int64 bfloat16 float16".split()


@given(
    dtype=st.sampled_from(HALVES),
    shape=st.sampled_from([(256,), (1003,), (16, 33), (40, 17), (3, 16, 9)]),
    low=st.sampled_from([-3.0, -1.0, 0.0, 1.0]),
    special=st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0]), max_size=3),
    everything=st.booleans(),
    keepdim=st.booleans(),
    seed=st.integers(0, 99),
)
def test_extremes(
    dtype: Any, shape: Any, low: float, special: Any, everything: bool, keepdim: bool, seed: int
) -> None:
    """The first of those that are equal, as the sign of zero tells, and NaN where there is one."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, low + 2, shape).astype(dtype)
    x.reshape(-1)[rng.integers(0, x.size, len(special))] = np.array(special, dtype)
    dim = () if everything else (int(rng.integers(-x.ndim, x.ndim)),)
    for name in ("amax", "amin"):
        if not half_arithmetic.WHEN[name](x, dim, keepdim):
            continue
        got = half_arithmetic.KERNELS[name](x, dim, keepdim)
        if got is NotImplemented:
            assert special or low in (0.0, -3.0)
            continue
        wide = getattr(np, name)(x.astype(np.float32), dim or None, keepdims=keepdim)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float32), wide)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wide))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("size", [300, 5000])
def test_the_first_zero_is_taken(name: str, dtype: str, size: int) -> None:
    for first in (0.0, -0.0):
        x = np.full(size, 1.0 if name == "amin" else -1.0, np.float32)
        x[7], x[9], x[11] = first, -first, first
        found = getattr(cd.from_numpy(x).to(getattr(cd, dtype)), name)().float().numpy()
        assert found == 0 and np.signbit(found) == np.signbit(np.float32(first))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 2.5, -0.5, 0, np.nan, np.inf])
def test_powers_of_all_numbers(dtype: Any, exponent: float) -> None:
    x = ALL_BITS.view(dtype)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), float(exponent)).astype(np.float32)
        got = half_arithmetic.KERNELS["pow"](x, exponent)
        np.testing.assert_array_equal(got.astype(np.float32), exact.astype(dtype).astype("f"))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(exact))


@pytest.mark.parametrize("dtype", HALVES)
def test_powers_of_arrays(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0, 60, 1003).astype(dtype) for _ in range(2))
    with np.errstate(all="ignore"):
        for base, power in ((x, y), (2, y), (np.array(3, dtype), y)):
            exact = np.power(np.asarray(base, np.float64), y.astype(np.float64)).astype("f")
            got = half_arithmetic.KERNELS["pow"](base, power)
            np.testing.assert_array_equal(got, exact.astype(dtype), strict=True)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("other", OTHERS)
def test_conversions_of_all_numbers(dtype: Any, other: str) -> None:
    """As NumPy converts them, but for which of the NaN it is."""
    x, target = ALL_BITS.view(dtype), cd.DType.of(other)
    if numpy_dtype(target) == dtype:
        return
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        expected = wide.astype(numpy_dtype(target))
    got = halves.KERNELS["to_dtype"](x, target)
    assert got.dtype == expected.dtype
    if target.is_floating_point:
        assert (np.isnan(got) == np.isnan(expected)).all()
        got, expected = got[~np.isnan(wide)], expected[~np.isnan(wide)]
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@given(
    dtype=st.sampled_from([np.dtype(c) for c in "?bBhHiIlL"]),
    bits=st.integers(1, 63),
    half=st.sampled_from(["bfloat16", "float16"]),
    seed=st.integers(0, 99),
)
def test_whole_numbers_are_rounded_once(dtype: Any, bits: int, half: str, seed: int) -> None:
    most = 1 if dtype.kind == "b" else min((1 << bits) - 1, int(np.iinfo(dtype).max))
    drawn = np.random.default_rng(seed).integers(0, most, 600, endpoint=True)
    x = drawn.astype(dtype)
    if dtype.kind == "i":
        x[::2] = -x[::2]
    exact = np.array([_rounded(int(v), half) for v in x], np.float32)
    got = cd.from_numpy(x).to(getattr(cd, half)).float().numpy()
    np.testing.assert_array_equal(got, exact)


def _rounded(value: int, half: str) -> float:
    """The nearest number of half precision, of two the even one, by Python's integers."""
    digits, size = (8 if half == "bfloat16" else 11), abs(value)
    shift = max(size.bit_length() - digits, 0)
    kept, rest = size >> shift, size & ((1 << shift) - 1)
    middle = (1 << shift) >> 1
    kept += shift > 0 and (rest > middle or (rest == middle and kept & 1 == 1))
    size = kept << shift
    if half == "float16" and size > 65504:
        return float("inf") if value > 0 else float("-inf")
    return float(size if value >= 0 else -size)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_copies_between_precisions(half: str) -> None:
    x = cd.randn(3, 700)
    narrow = cd.empty(3, 700, dtype=getattr(cd, half))
    narrow.copy_(x)
    assert (narrow == x.to(narrow.dtype)).all()
    assert (cd.empty(3, 700).copy_(narrow) == narrow.float()).all()
    assert (cd.empty(700, 3).t().copy_(narrow) == narrow.float()).all()
    assert (cd.empty(2, 3, 700).copy_(narrow)[1] == narrow.float()).all()


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_mixed_arithmetic_is_that_of_converted_arrays(half: str) -> None:
    x, i = cd.randn(5000).to(getattr(cd, half)), cd.arange(5000)
    f = cd.randn(5000)
    for _ in range(2):  # the second time the dtypes are known
        assert ((x * f) == (x.float() * f)).all()
        assert ((x + i) == (x + i.to(x.dtype))).all()
        assert ((i > x) == (i.to(x.dtype) > x)).all()
