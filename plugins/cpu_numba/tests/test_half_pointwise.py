"""Few elements of half precision: as those of float32, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS

import coredispatch as cd
from coredispatch.plugin import numpy_dtype
from coredispatch_cpu_numba.kernels import half_pointwise, halves

pytestmark = pytest.mark.once

DTYPES = [cd.bfloat16, cd.float16]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -1e-7, 3.0, 6e4, -6e4]

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _raw(dtype: Any, size: int = 301) -> np.ndarray:
    x = np.random.default_rng(size).normal(size=size) * 3
    x[: len(SPECIAL)] = SPECIAL
    return x.astype(np.float32).astype(numpy_dtype(dtype))


def _same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _UFUNCS)
def test_two_operands(name: str, dtype: Any) -> None:
    x, y = _raw(dtype), _raw(dtype)[::-1].copy()
    kernel, when = half_pointwise.FEW[name], half_pointwise.accepts
    number = np.array(0.5, x.dtype)
    with np.errstate(all="ignore"):
        for other in (y, number, 0.5, 2):
            assert when(x, other)
            wide = np.asarray(other).astype(np.float32)
            same = _UFUNCS[name](x.astype(np.float32), wide)
            _same(kernel(x, other), same if same.dtype == bool else same.astype(x.dtype))
    assert not when(x, y.astype(np.float32)) and not when(x[::2], 0.5) and not when(x, True)
    assert not when(x.astype(np.float32), 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds(dtype: Any) -> None:
    x = _raw(dtype)
    wide = x.astype(np.float32)
    low, high = np.array(-0.5, x.dtype), np.array(2.0, x.dtype)
    clamp, when = half_pointwise.KERNELS["clamp"], half_pointwise.WHEN["clamp"]
    for bounds in ((low, high), (-0.5, 2), (None, high), (low, None)):
        assert when(x, *bounds)
        limits = [None if b is None else np.float32(b) for b in bounds]
        _same(clamp(x, *bounds), np.clip(wide, *limits).astype(x.dtype))
    assert not when(x, None, None) and not when(x, np.nan, 1.0)
    assert not when(x, np.array(np.nan, x.dtype), high) and not when(x, x, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["amax", "amin", "cumsum", "cumprod"])
def test_reductions(name: str, dtype: Any) -> None:
    x = _raw(dtype, 600)[300:].reshape(3, 100)
    arguments: tuple[Any, ...] = (1, None) if name.startswith("cum") else ((1,), False)
    assert halves.WHEN[name](x, *arguments)
    with np.errstate(over="ignore"):
        wanted = KERNELS[name](x.astype(np.float32), *arguments).astype(x.dtype)
    _same(halves.KERNELS[name](x, *arguments), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_product(dtype: Any) -> None:
    x = (cd.rand(3, 200) * 0.1 + 0.95).to(dtype)
    wanted = x.double().prod(1)
    assert cd.allclose(x.prod(1).double(), wanted, 2.0**-8, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_in_place(dtype: Any) -> None:
    x, y = (cd.randn(700).to(dtype) for _ in "xy")
    wanted = (x.float() + y.float()).to(dtype)
    assert cd.equal(x.add_(y), wanted)
    wanted = x.float().clamp(-0.5, 0.25).to(dtype)
    assert cd.equal(x.clamp_(-0.5, 0.25), wanted)
    assert cd.equal(x % 0.75, (x.float() % 0.75).to(dtype))
