"""Rows and tiles of every width around whole vectors, with special values where vectors end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import DTYPES

import coredispatch as cd

pytestmark = pytest.mark.once

WIDTHS = [
    1,
    2,
    15,
    16,
    17,
    31,
    32,
    33,
    48,
    60,
    63,
    64,
    65,
    79,
    95,
    96,
    127,
    128,
    129,
    161,
    190,
    319,
]
_SPECIAL = (np.nan, np.inf, -np.inf)


def _exact(name: str, x: np.ndarray, dim: int) -> np.ndarray:
    """``name`` of ``x`` in float64, as it is defined."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        wide = wide - wide.max(dim, keepdims=True)
        total = np.exp(wide).sum(dim, keepdims=True)
        return np.exp(wide) / total if name == "softmax" else wide - np.log(total)


def _check(name: str, x: np.ndarray, dim: int) -> None:
    got, want = getattr(cd, name)(cd.from_numpy(x.copy()), dim).numpy(), _exact(name, x, dim)
    eps = np.finfo(x.dtype).eps
    np.testing.assert_allclose(got, want, rtol=16 * eps, atol=16 * eps * (name == "log_softmax"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_every_width(name: str, dim: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for width in WIDTHS:
        for other in (33, 130):
            x = rng.standard_normal((other, width) if dim else (width, other)).astype(dtype)
            _check(name, x, dim)
            _check(name, np.ascontiguousarray(x.T), 1 - dim)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_special_values(name: str, dim: int) -> None:
    """A row that has NaN or inf, or is -inf throughout, is NaN; its neighbours are not."""
    for shape in ((40, 319), (33, 47), (319, 150)):
        for value in _SPECIAL:
            for at in (0, 14, 32, -1):
                x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
                x[at, -1] = x[3, at] = value
                x[5] = x[:, 6] = -np.inf
                _check(name, x, dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_gradients_of_every_width(name: str, dim: int, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for width in WIDTHS:
        x = rng.standard_normal((160, width)).astype(dtype)
        grad = rng.standard_normal(x.shape).astype(dtype)
        leaf = cd.from_numpy(x).requires_grad_()
        getattr(cd, name)(leaf, dim).backward(cd.from_numpy(grad))
        y, g = _exact("softmax", x, dim), grad.astype(np.float64)
        if name == "softmax":
            want = y * (g - (g * y).sum(dim, keepdims=True))
        else:
            want = g - y * g.sum(dim, keepdims=True)
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=64 * eps, atol=64 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_folds_of_every_width(dtype: Any) -> None:
    """Sums and extrema of rows; NaN is found wherever it stands."""
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        x = rng.standard_normal((70, width)).astype(dtype)
        t = cd.from_numpy(x)
        eps = np.finfo(dtype).eps
        error = np.abs(cd.sum(t, 1).numpy() - x.astype(np.float64).sum(1))
        assert (error <= 4 * eps * np.abs(x).sum(1)).all()
        np.testing.assert_array_equal(cd.amax(t, 1).numpy(), x.max(1))
        np.testing.assert_array_equal(cd.amin(t, 1).numpy(), x.min(1))
        for value in _SPECIAL:
            for at in (0, width // 2, width - 1):
                x[7, at] = value
                np.testing.assert_array_equal(cd.amax(cd.from_numpy(x), 1).numpy(), x.max(1))
                np.testing.assert_array_equal(cd.amin(cd.from_numpy(x), 1).numpy(), x.min(1))
                x[7, at] = 0


def test_folds_of_infinities() -> None:
    for value in (np.inf, -np.inf):
        x = cd.from_numpy(np.full((64, 47), value, np.float32))
        assert (cd.amax(x, 1).numpy() == value).all() and (cd.amin(x, 1).numpy() == value).all()
        assert (cd.sum(x, 1).numpy() == value).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_every_width(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    for width in WIDTHS:
        x = rng.standard_normal((90, width)).astype(dtype)
        y = rng.integers(0, width, 90)
        leaf = cd.from_numpy(x).requires_grad_()
        loss = cd.nn.functional.cross_entropy(leaf, cd.from_numpy(y))
        loss.backward()
        log = _exact("log_softmax", x, 1)
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(
            loss.item(), -log[np.arange(90), y].mean(), rtol=16 * eps, atol=eps
        )
        want = (np.exp(log) - np.eye(width)[y]) / 90
        np.testing.assert_allclose(leaf.grad.numpy(), want, atol=4 * eps)
