"""Functions of two numbers: the loops beside NumPy's, bit for bit where those are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(4)
_EXACT: dict[str, Callable[..., Any]] = {
    "copysign": np.copysign,
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
    "nextafter": np.nextafter,
    "remainder": np.remainder,
}
_ROUNDED: dict[str, Callable[..., Any]] = {
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2,
    "xlogy": lambda x, y: np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y)),
}
_SPECIAL = [
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 3.5, -3.5, 0.7, 7.0, 1e-320, -1e-320, 1e-45,
    -1e-45, 1e-30, 1e38, -1e38, 5e15, 1e300, -1e300,
]  # fmt: skip


def _same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(found, wanted)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[there]), np.signbit(wanted[there]))


def _drawn(dtype: Any, size: int) -> list[np.ndarray]:
    """Ratios of all sizes, whole numbers among them."""
    x = RNG.normal(size=size) * 10.0 ** RNG.uniform(-6, 6, size)
    y = RNG.normal(size=size) * 10.0 ** RNG.uniform(-3, 1, size)
    x[: size // 8], y[: size // 8] = np.round(x[: size // 8]), np.round(y[: size // 8])
    return [x.astype(dtype), y.astype(dtype)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _EXACT)
def test_exact(name: str, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        special = [a.ravel() for a in np.meshgrid(*2 * [np.array(_SPECIAL, dtype)])]
        normal = [RNG.normal(size=9999).astype(dtype) for _ in "xy"]
        assert WHEN[name](*normal)
        for x, y in (special, _drawn(dtype, 20_000), normal):
            _same(KERNELS[name](x, y), _EXACT[name](x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _ROUNDED)
def test_rounded(name: str, dtype: Any) -> None:
    eps = 4 * np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        special = [a.ravel() for a in np.meshgrid(*2 * [np.array(_SPECIAL, dtype)])]
        for x, y in (special, _drawn(dtype, 20_000)):
            wanted = _ROUNDED[name](*(a.astype(np.longdouble) for a in (x, y))).astype(dtype)
            scale = eps if name.startswith("log") else 0  # operands of opposite sign cancel
            np.testing.assert_allclose(KERNELS[name](x, y), wanted, eps, scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*_EXACT, *_ROUNDED])
def test_forms(name: str, dtype: Any) -> None:
    """A number, a row and an array of the same give the same; so do all sizes and places."""
    x, row = RNG.normal(size=(37, 30)).astype(dtype), (RNG.random(30) + 0.1).astype(dtype)
    kernel, when = KERNELS[name], WHEN[name]
    with np.errstate(all="ignore"):
        x = np.repeat(x, 8, 0)
        full = np.broadcast_to(row, x.shape).copy()
        wanted = kernel(x, full)
        assert when(np.repeat(x, 8, 0), row)
        np.testing.assert_array_equal(kernel(x, row), wanted)
        np.testing.assert_array_equal(kernel(x, 0.5), kernel(x, np.full_like(x, 0.5)))
        flat, other = x.ravel(), full.ravel()
        for size in (1, 17, 255, 256, 257, 777):
            part = kernel(flat[:size].copy(), other[:size].copy())
            np.testing.assert_array_equal(part, wanted.ravel()[:size])
        for position in range(2):
            arrays = [x.copy(), full.copy()]
            assert kernel(*arrays, out=arrays[position]) is arrays[position]
            np.testing.assert_array_equal(arrays[position], wanted)
        out = np.empty(x.shape)
        assert kernel(x, full, out=out) is out
        np.testing.assert_array_equal(out, wanted)
    big = np.zeros((64, 256), dtype)
    assert not when(big.T, 2.0) and not when(big, big.astype(np.float16))
    assert not when(big, 2**60) and not when(2.0, big)


@settings(max_examples=200)
@given(
    st.integers(-(2**24) + 1, 2**24 - 1),
    st.integers(-(2**24) + 1, 2**24 - 1).filter(bool),
    st.integers(-30, 30),
    st.integers(-1, 1),
)
def test_quotients_that_round_to_whole_numbers(a: int, b: int, scale: int, off: int) -> None:
    """Numerators beside multiples of the divisor, where a rounded quotient is one too large."""
    y = np.float32(b)
    x = np.nextafter(np.float32(a) * y, np.float32(off * np.inf)) if off else np.float32(a) * y
    x, y = np.float32(x * 2.0**scale), np.float32(y * 2.0**scale)
    xs, ys = np.full(256, x), np.full(256, y)
    with np.errstate(all="ignore"):
        for name in ("fmod", "remainder", "floor_divide"):
            _same(KERNELS[name](xs, ys), _EXACT[name](xs, ys))


@pytest.mark.parametrize("dtype", [cd.bfloat16, cd.float16])
def test_half_precision(dtype: Any) -> None:
    x, y = (cd.randn(70, 70).to(dtype) for _ in "xy")
    for of in (cd.remainder, cd.floor_divide, cd.hypot):
        assert cd.equal(of(x, y), of(x.float(), y.float()).to(dtype))
    assert cd.floor_divide(x, y.float()).dtype is cd.float32
