"""Sums of many float32 numbers keep their digits; doubles become bfloat16 in one rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import plugin

TENTHS = np.full(300_000, 0.1, np.float32)


def test_a_running_sum_of_float32_does_not_drift() -> None:
    found = cd.from_numpy(TENTHS).cumsum(0).numpy()
    exact = np.cumsum(TENTHS.astype(np.float64))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=2e-7)


def test_a_running_product_of_float32_does_not_drift() -> None:
    values = np.full(100_000, 1.00001, np.float32)
    found = cd.from_numpy(values).cumprod(0).numpy()
    np.testing.assert_allclose(found, np.cumprod(values.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize("dim", [0, (0,), (0, 2), None])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std"])
def test_sums_over_columns_do_not_drift(name: str, dim: Any) -> None:
    values = np.where(np.arange(60_000) % 2, 1.1, 0.9).astype(np.float32)
    array = np.repeat(values, 6).reshape(60_000, 2, 3)[:, ::-1]
    options = {"ddof": 1} if name in ("var", "std") else {}
    exact = getattr(np, name)(array.astype(np.float64), axis=dim, **options)
    found = getattr(cd.from_numpy(array.copy()), name)(dim).numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    strided = cd.from_numpy(np.ascontiguousarray(array.T)).permute(2, 1, 0)
    np.testing.assert_allclose(getattr(strided, name)(dim).numpy(), exact, rtol=1e-5)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -2])
def test_long_sums_keep_their_shapes(dim: int, keepdim: bool) -> None:
    array = np.ones((5000, 4), np.float32) if dim != 1 else np.ones((2, 5000, 3), np.float32)
    found = cd.from_numpy(array).sum(dim, keepdim)
    assert found.shape == array.sum(dim, keepdims=keepdim).shape
    assert found.dtype is cd.float32 and bool((found == 5000).all())


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16])
@pytest.mark.parametrize(("name", "ddof"), [("mean", 0), ("var", 1)])
def test_moments_of_half_precision_are_rounded_once(name: str, ddof: int, dtype: Any) -> None:
    """Also where a backend has no kernel of them: their decomposition."""
    x = cd.from_numpy(np.random.default_rng(3).uniform(0, 300, 3000).astype(np.float32)).to(dtype)
    options = {"ddof": ddof} if name == "var" else {}
    exact = getattr(np, name)(x.double().numpy(), **options)
    given = (None, ddof, False) if name == "var" else (None, False, None)
    found = getattr(cd.ops, name).decomposition(x, *given)
    assert found.dtype is dtype
    assert found.item() == cd.tensor(exact).to(dtype).item()


def test_plugins_round_doubles_once_and_find_names_where_they_were_found() -> None:
    number = np.array([-2.8828125026848284])  # by way of float32 it becomes a tie
    assert float(plugin.numpy_cast(number, cd.bfloat16)[0]) == -2.890625
    assert vars(plugin)["numpy_cast"] is plugin.numpy_cast


def _once(number: float) -> float:
    """The nearest bfloat16, ties to even, by trying the neighbours of the twice rounded one."""
    near = np.array(number, np.float64).astype(ml_dtypes.bfloat16)
    around = [near, np.nextafter(near, near.dtype.type(np.inf))]
    around += [np.nextafter(near, near.dtype.type(-np.inf))]
    finite = [a for a in around if np.isfinite(float(a))]
    even = lambda a: int(a.view(np.uint16)) & 1  # noqa: E731
    return float(min(finite, key=lambda a: (abs(float(a) - number), even(a))))


@given(st.floats(-1e30, 1e30, allow_nan=False))
def test_a_double_becomes_bfloat16_in_one_rounding(number: float) -> None:
    found = cd.tensor([number], dtype=cd.float64).to(cd.bfloat16).to(cd.float64).item()
    assert found == _once(number)


@pytest.mark.parametrize("step", [2.0**-40, -(2.0**-40), 0.0])
def test_a_double_beside_the_middle_of_two_bfloat16(step: float) -> None:
    middle = 1.0 + 2.0**-8 + step
    found = cd.tensor([middle, -middle], dtype=cd.float64).to(cd.bfloat16).tolist()
    wanted = 1.0 + 2.0**-7 if step > 0 else 1.0
    assert found == [wanted, -wanted]


def test_special_doubles_become_bfloat16() -> None:
    values = [float("inf"), -float("inf"), 1e300, -1e300, 0.0, -0.0, 5e-324, 1e-40]
    found = cd.tensor(values, dtype=cd.float64).to(cd.bfloat16)
    with np.errstate(over="ignore", under="ignore"):
        wanted = np.array(values, np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.to(cd.float32).numpy(), wanted.astype(np.float32))
    assert bool(cd.tensor([float("nan")], dtype=cd.float64).to(cd.bfloat16).isnan().all())
    assert np.signbit(found.to(cd.float32).numpy()[5])
