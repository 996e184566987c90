"""Special functions: the loops beside 160 bits, in units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import DTYPES, KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

mpmath = pytest.importorskip("mpmath")

RNG = np.random.default_rng(3)
#: largest error of float64, in units in the last place; of float32 ``_SINGLE`` or less
_LARGEST = {
    "digamma": 10.0,
    "erfc": 3.5,
    "erfcx": 3.5,
    "erfinv": 4.7,
    "lgamma": 5.0,
    "log1p": 1.5,
    "ndtr": 3.5,
    "polygamma": 4.0,
    "sinc": 3.0,
    "tanhshrink": 2.0,
}
_SINGLE = {"erfc": 1.0, "erfinv": 3.5, "log1p": 1.6, "ndtr": 1.0}
_OWN_EXACT = {
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "ndtr": mpmath.ncdf,
    "polygamma": lambda x: mpmath.polygamma(1, x),
    "sinc": mpmath.sincpi,
    "tanhshrink": lambda x: x - mpmath.tanh(x),
}


def _call(name: str, x: np.ndarray) -> np.ndarray:
    order = (1,) if name == "polygamma" else ()
    assert WHEN[name](x, *order)
    result: np.ndarray = KERNELS[name](x, *order)
    assert result.dtype == x.dtype and result.shape == x.shape
    return result


def _drawn(name: str, dtype: Any) -> np.ndarray:
    normal = RNG.standard_normal(300)
    small = 10.0 ** RNG.uniform(-30, 0, 200)
    if name in ("erfc", "erfcx"):
        parts = [normal, RNG.uniform(-6, 28, 300), small, -small]
    elif name == "ndtr":
        parts = [normal, RNG.uniform(-39, 8, 300), small, -small]
    elif name == "erfinv":
        near_one = 1 - 10.0 ** RNG.uniform(-15 if dtype is np.float64 else -6.5, 0, 300)
        parts = [RNG.uniform(-1, 1, 300), near_one, -near_one, small]
    elif name == "log1p":
        parts = [np.exp(normal) - 1, small, -small, 10.0 ** RNG.uniform(0, 30, 200)]
    elif name == "tanhshrink":  # which cancels near 0
        parts = [RNG.uniform(1.5, 30, 300), -RNG.uniform(1.5, 30, 300)]
    elif name == "sinc":
        parts = [normal * 10, small]
    else:  # around the zeros, too
        near = RNG.normal(size=200) * 1e-3
        parts = [RNG.uniform(0, 20, 500), small, 1 / small, 1 + near, 2 + near]
    return np.concatenate(parts).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _LARGEST)
def test_accuracy(name: str, dtype: Any) -> None:
    x = _drawn(name, dtype)
    exact = _OWN_EXACT.get(name) or getattr(mpmath, name)
    largest = _LARGEST[name] if dtype is np.float64 else _SINGLE.get(name, 0.51)
    with mpmath.workprec(160):
        for value, found in zip(x.tolist(), _call(name, x).tolist(), strict=True):
            wanted = exact(mpmath.mpf(value))
            if abs(wanted) > np.finfo(dtype).max:
                assert np.isinf(found) and np.sign(found) == mpmath.sign(wanted), value
                continue
            unit = mpmath.mpf(float(np.spacing(abs(dtype(float(wanted))))))
            assert abs(mpmath.mpf(found) - wanted) <= largest * unit, value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["digamma", "lgamma", "polygamma"])
def test_reflection(name: str, dtype: Any) -> None:
    """Below 0, in units in the last place of the result or of 1."""
    x = -RNG.uniform(0, 20, 300).astype(dtype)
    exact = _OWN_EXACT.get(name) or getattr(mpmath, name)
    with mpmath.workprec(160):
        for value, found in zip(x.tolist(), _call(name, x).tolist(), strict=True):
            wanted = exact(mpmath.mpf(value))
            unit = mpmath.mpf(float(np.spacing(dtype(max(1.0, abs(float(wanted)))))))
            assert abs(mpmath.mpf(found) - wanted) <= 8 * unit, value


_GIVEN = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0]
_NAN, _INF = np.nan, np.inf
_SPECIAL: dict[str, list[float | None]] = {
    "digamma": [_NAN, _INF, _NAN, -_INF, _INF, None, _NAN, None, _NAN],
    "erfc": [_NAN, 0, 2, 1, 1, None, None, None, None],
    "erfcx": [_NAN, 0, _INF, 1, 1, None, None, None, None],
    "erfinv": [_NAN, _NAN, _NAN, 0.0, -0.0, _INF, -_INF, _NAN, _NAN],
    "lgamma": [_NAN, _INF, _INF, _INF, _INF, 0, _INF, 0, _INF],
    "log1p": [_NAN, _INF, _NAN, 0.0, -0.0, None, -_INF, None, _NAN],
    "ndtr": [_NAN, 1, 0, 0.5, 0.5, None, None, None, None],
    "polygamma": [_NAN, 0, None, _INF, _INF, None, _INF, None, _INF],
    "sinc": [_NAN, _NAN, _NAN, 1, 1, 0, 0, 0, 0],
    "tanhshrink": [_NAN, _INF, -_INF, 0.0, 0.0, None, None, None, None],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _SPECIAL)
def test_special_values(name: str, dtype: Any) -> None:
    found = _call(name, np.array(_GIVEN, dtype))
    for given, value, wanted in zip(_GIVEN, found.tolist(), _SPECIAL[name], strict=True):
        if wanted is None:
            continue
        assert value == wanted or (np.isnan(value) and np.isnan(wanted)), (given, value)
        if name in ("erfinv", "log1p") and wanted == 0:
            assert np.signbit(value) == np.signbit(wanted), given


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _LARGEST)
def test_lanes_blocks_and_places(name: str, dtype: Any) -> None:
    """One number for an element, alone or in a block with others, wherever the result goes."""
    x = np.linspace(0.01, 0.99, 700).astype(dtype)
    if name in ("digamma", "lgamma", "polygamma"):
        x = np.linspace(0.01, 13, 700).astype(dtype)
        x[300] = -0.5
    whole = _call(name, x)
    alone = np.concatenate([_call(name, x[i : i + 1].copy()) for i in range(x.size)])
    np.testing.assert_array_equal(alone, whole)
    for size in (1, 7, 33, 255, 257):
        np.testing.assert_array_equal(_call(name, x[:size].copy()), whole[:size])
    assert not WHEN[name](x[::2], 1)
    assert not WHEN[name](x[:0], 1)
    if name == "polygamma":
        assert not WHEN[name](x, 2)
        return
    given = x.copy()
    assert KERNELS[name](given, out=given) is given
    np.testing.assert_array_equal(given, whole)
    out = np.empty(x.size, np.float64)
    assert KERNELS[name](x, out=out) is out
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("dtype", [cd.bfloat16, cd.float16])
@pytest.mark.parametrize("name", ["erfc", "lgamma", "digamma", "log1p"])
def test_half_precision_is_rounded_once(name: str, dtype: Any) -> None:
    x = (cd.rand(5000) * 3 + 0.25).to(dtype)
    wanted = getattr(cd, name)(x.float()).to(dtype)
    assert cd.equal(getattr(cd, name)(x), wanted)
