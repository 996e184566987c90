"""Losses of pairs of numbers: the loops against the decompositions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
LOSSES: list[tuple[str, tuple[Any, ...]]] = [
    ("mse_loss", ()),
    ("l1_loss", ()),
    ("smooth_l1_loss", (0.7,)),
    ("huber_loss", (1.3,)),
]


SIZES = ((257,), (70, 90), (3, 5, 4096), (100_003,))


def pair(shape: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of both signs, and some in [0, 1], both ends among them."""
    x, y = RNG.normal(size=shape) * 9, RNG.random(shape)
    y.flat[::7], y.flat[1::7] = 0, 1
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_logits(dtype: Any, reduction: str) -> None:
    name = "binary_cross_entropy_with_logits"
    for shape in SIZES:
        x, y = pair(shape, dtype)
        assert WHEN[name](x, y, None, reduction, None)
        assert not WHEN[name](x, y, y, reduction, None)
        assert not WHEN[name](x, y, None, reduction, y)
        found = KERNELS[name](x, y, None, reduction, None)
        wide, t = x.astype(np.float64), y.astype(np.float64)
        each = t * np.logaddexp(0, -wide) + (1 - t) * np.logaddexp(0, wide)
        wanted = {"none": each, "mean": each.mean(), "sum": each.sum()}[reduction]
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, 8 * np.finfo(dtype).eps)


def test_cross_entropy_of_infinite_logits() -> None:
    x, y = np.zeros(300), np.zeros(300)
    x[:7] = np.nan, np.inf, np.inf, np.inf, -np.inf, -np.inf, -np.inf
    y[:7] = 1, 0, 0.5, 1, 0, 0.5, 1
    found = KERNELS["binary_cross_entropy_with_logits"](x, y, None, "none", None)
    nan, inf = np.nan, np.inf
    np.testing.assert_array_equal(found[:7], [nan, inf, inf, nan, nan, nan, nan])
    np.testing.assert_allclose(found[7:], np.log(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("log_target", [False, True])
def test_divergence(dtype: Any, log_target: bool) -> None:
    for shape in SIZES:
        x, y = pair(shape, dtype)
        t = np.log(y + 0.1).astype(dtype) if log_target else y
        for reduction in ("mean", "sum", "none", "batchmean"):
            assert WHEN["kl_div"](x, t, reduction, log_target)
            found = KERNELS["kl_div"](x, t, reduction, log_target)
            wide = (cd.from_numpy(a).double() for a in (x, t))
            wanted = cd.ops.kl_div.decomposition(*wide, reduction, log_target).numpy()
            assert found.dtype == dtype and found.shape == wanted.shape
            bound = 8 * np.finfo(dtype).eps
            np.testing.assert_allclose(found, wanted, bound, bound * abs(x).max())


def test_divergence_of_special_values() -> None:
    x, y = np.zeros(300), np.ones(300)
    x[:5], y[:5] = (np.nan, -np.inf, -np.inf, np.inf, 1.0), (1, 0, 1, 1, -1)
    for log_target in (False, True):
        found = KERNELS["kl_div"](x, y, "none", log_target)
        given = cd.from_numpy(x), cd.from_numpy(y), "none", log_target
        with np.errstate(all="ignore"):
            wanted = cd.ops.kl_div.decomposition(*given).numpy()
        np.testing.assert_allclose(found, wanted, 1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_losses(name: str, options: Any, dtype: Any) -> None:
    for shape in SIZES:
        x, y = (RNG.normal(size=shape).astype(dtype) for _ in range(2))
        for reduction in ("mean", "sum", "none"):
            assert WHEN[name](x, y, reduction, *options)
            found = KERNELS[name](x, y, reduction, *options)
            wide = (cd.from_numpy(a).double() for a in (x, y))
            wanted = getattr(cd.ops, name).decomposition(*wide, reduction, *options).numpy()
            assert found.dtype == dtype and found.shape == wanted.shape
            bound = 8 * np.finfo(dtype).eps
            np.testing.assert_allclose(found, wanted, bound, bound)


@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_special_values(name: str, options: Any) -> None:
    x, y = np.zeros(300), np.zeros(300)
    x[:4], y[:4] = (np.nan, np.inf, np.inf, 1e200), (1, 1, np.inf, -1e200)
    found = KERNELS[name](x, y, "none", *options)
    with np.errstate(all="ignore"):
        given = cd.from_numpy(x), cd.from_numpy(y), "none"
        wanted = getattr(cd.ops, name).decomposition(*given, *options).numpy()
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(KERNELS[name](x, y, "mean", *options))
