"""The accuracy that ``elementary/__init__.py`` promises, and the special values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit
from pack_under_test import DTYPES

from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.intrinsics import fma

pytestmark = pytest.mark.once

mpmath = pytest.importorskip("mpmath")

# largest error in units in the last place
ULPS = {
    "exp": 1.0,
    "log": 1.0,
    "tanh": 1.5,
    "erf": 1.5,
    "sin": 1.6,
    "cos": 1.6,
    "sigmoid": 2.5,
    "silu": 3.5,
    "gelu": 6.0,
}
# sigmoid(x) is subnormal below
SILU_FROM = {np.float32: -87.0, np.float64: -708.0}


@cache
def fused() -> bool:
    """Whether a product and a sum are rounded once on the CPU that Numba compiles for."""
    return njit(lambda u: fma(u, u, -(u * u)))(1 + 2.0**-30) != 0


def most(name: str) -> float:
    """The largest error here: without fused multiply-add, gelu loses two digits more."""
    return ULPS[name] if fused() or name != "gelu" else 100 * ULPS[name]


@cache
def loop(name: str) -> Loop:
    return Loop("elementwise.pointwise", name, 1 << 60)


def run(name: str, x: np.ndarray) -> np.ndarray:
    out = np.full_like(x, 7)
    loop(name)(x.dtype, x.size, x.size, x, out)
    return out


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance to ``exact`` (wider than ``got``) in units in the last place of ``got``'s dtype."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(exact.dtype)
        distance = np.abs(got.astype(exact.dtype) - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    return np.where(same, 0, distance)


def float32_grid() -> np.ndarray:
    """Every 1201st float32 of either sign, subnormals included, and a dense stretch around 0."""
    bits = np.arange(0, 2**32, 1201, dtype=np.uint64).astype(np.uint32)
    spread = bits.view(np.float32)
    dense = np.linspace(-110, 110, 500_001).astype(np.float32)
    return np.concatenate([spread[np.isfinite(spread)], dense])


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def wide_reference(name: str) -> Callable[[np.ndarray], np.ndarray]:
    special = pytest.importorskip("scipy.special")
    return {
        "exp": np.exp,
        "log": np.log,
        "tanh": np.tanh,
        "erf": special.erf,
        "sin": np.sin,
        "cos": np.cos,
        "sigmoid": sigmoid,
        "silu": lambda x: x * sigmoid(x),
        "gelu": lambda x: x * special.ndtr(x),
    }[name]


@pytest.mark.parametrize("name", ULPS)
def test_float32(name: str) -> None:
    x = float32_grid()
    if name == "silu":
        x = x[x > SILU_FROM[np.float32]]
    with np.errstate(all="ignore"):
        exact = wide_reference(name)(x.astype(np.float64))
    error = ulps(run(name, x), exact)
    worst = int(error.argmax())
    assert error[worst] <= most(name), (x[worst], error[worst])


def exact_float64(name: str, x: float) -> Any:
    x = mpmath.mpf(x)
    if name == "log":
        return mpmath.log(x) if x > 0 else mpmath.nan
    if name in ("sigmoid", "silu"):
        s = 1 / (1 + mpmath.exp(-x))
        return s if name == "sigmoid" else x * s
    if name == "gelu":
        return x * mpmath.ncdf(x)
    return getattr(mpmath, name)(x)


@pytest.mark.parametrize("name", ULPS)
def test_float64(name: str) -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate(
        [
            rng.uniform(-745, 709, 300),
            rng.uniform(-750, -740, 60),
            rng.uniform(-38, 9, 600),
            rng.standard_normal(600),
            np.exp(rng.uniform(-740, 700, 300)),
        ]
    )
    if name == "silu":
        x = x[x > SILU_FROM[np.float64]]
    got = run(name, x)
    with mpmath.workprec(160):
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            exact = exact_float64(name, value)
            if mpmath.isnan(exact):
                assert np.isnan(result), value
                continue
            if np.isinf(float(exact)):
                assert result == float(exact), value
                continue
            unit = mpmath.mpf(float(np.spacing(abs(float(exact)))))
            assert abs(mpmath.mpf(result) - exact) <= most(name) * unit, value


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 1e4, -1e4], dtype)
    nan, inf = np.nan, np.inf
    log_tiny, log_big = np.log(np.float64(tiny)), np.log(1e4)
    expected = {
        "exp": [nan, inf, 0, 1, 1, 1, 1, inf, 0],
        "log": [nan, inf, nan, -inf, -inf, log_tiny, nan, log_big, nan],
        "tanh": [nan, 1, -1, 0.0, -0.0, tiny, -tiny, 1, -1],
        "erf": [nan, 1, -1, 0.0, -0.0, tiny, -tiny, 1, -1],
        "sin": [nan, nan, nan, 0.0, -0.0, tiny, -tiny, np.sin(1e4), -np.sin(1e4)],
        "cos": [nan, nan, nan, 1, 1, 1, 1, np.cos(1e4), np.cos(1e4)],
        "sigmoid": [nan, 1, 0, 0.5, 0.5, 0.5, 0.5, 1, 0],
        "silu": [nan, inf, nan, 0.0, -0.0, None, None, 1e4, -0.0],
        "gelu": [nan, inf, nan, 0.0, -0.0, None, None, 1e4, -0.0],
        "gelu_tanh": [nan, inf, nan, 0.0, -0.0, None, None, 1e4, -0.0],
        "relu": [nan, inf, 0, 0.0, 0.0, tiny, 0, 1e4, 0],
        "sqrt": [nan, inf, nan, 0.0, -0.0, None, nan, 100, nan],
        "rsqrt": [nan, 0, nan, inf, -inf, None, nan, 0.01, nan],
        "reciprocal": [nan, 0.0, -0.0, inf, -inf, None, None, 1e-4, -1e-4],
        "neg": [nan, -inf, inf, -0.0, 0.0, -tiny, tiny, -1e4, 1e4],
        "abs": [nan, inf, inf, 0.0, 0.0, tiny, tiny, 1e4, 1e4],
    }
    for name, values in expected.items():
        got = run(name, x)
        for at, value in enumerate(values):
            if value is None:
                continue
            want = dtype(value)
            if np.isnan(want):
                assert np.isnan(got[at]), (name, x[at], got[at])
            else:
                np.testing.assert_allclose(got[at], want, rtol=1e-6, err_msg=f"{name} {x[at]}")
                assert np.signbit(got[at]) == np.signbit(want), (name, x[at], got[at])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_lane_and_tail(dtype: Any) -> None:
    """Vector body, shorter epilogue and scalar tail give the same number."""
    x = np.linspace(-6, 6, 300).astype(dtype)
    for name in ULPS:
        alone = np.array([run(name, x[i : i + 1])[0] for i in range(x.size)])
        for length in (1, 7, 16, 33, 65, 300):
            np.testing.assert_array_equal(run(name, x[:length].copy()), alone[:length], name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_tanh(dtype: Any) -> None:
    """The tanh form: 4 units in the last place of x, as good as its definition in that dtype."""
    x = np.linspace(-12, 12, 40_001).astype(dtype)
    wide = x.astype(np.longdouble)
    inner = np.sqrt(2 / np.longdouble(np.pi)) * (wide + np.longdouble("0.044715") * wide**3)
    exact = wide / 2 * (1 + np.tanh(inner))
    error = np.abs(run("gelu_tanh", x) - exact)
    assert (error <= 4 * np.spacing(np.abs(x)).astype(np.longdouble) + np.finfo(dtype).tiny).all()
