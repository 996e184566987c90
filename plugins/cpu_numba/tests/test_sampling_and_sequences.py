"""grid_sample, CTC and the incomplete gamma functions: the loops against the decompositions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def decomposed(name: str, *args: Any) -> list[np.ndarray]:
    """What the operator's decomposition gives."""
    out = getattr(cd.ops, name).decomposition(
        *[cd.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args]
    )
    return [x.numpy() for x in (out if isinstance(out, (list, tuple)) else [out])]


def agree(name: str, *args: Any, tolerance: float = 1e-5) -> None:
    found = KERNELS[name](*args)
    found = found if isinstance(found, tuple) else (found,)
    for mine, wanted in zip(found, decomposed(name, *args), strict=True):
        assert mine.dtype == wanted.dtype and mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(dtype: Any, align: bool) -> None:
    for mode, padding in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    ):
        for size, places in (((7, 5), (9, 11)), ((4, 3, 6), (3, 5, 7))):
            if mode == "bicubic" and len(size) == 3:
                continue
            x = RNG.normal(size=(2, 3, *size)).astype(dtype)
            grid = RNG.uniform(-1.6, 1.6, (2, *places, len(size))).astype(dtype)
            grad = RNG.normal(size=(2, 3, *places)).astype(dtype)
            options = mode, padding, align
            agree("grid_sample", x, grid, *options, tolerance=1e-4)
            agree("grid_sample_backward", grad, x, grid, *options, tolerance=1e-3)


def test_grid_sample_of_places_that_are_no_numbers() -> None:
    x = RNG.normal(size=(1, 2, 4, 4))
    grid = np.array([[[[np.nan, 0.0], [np.inf, 0.0], [1e30, -1e30], [0.0, 0.0]]]])
    for padding in ("zeros", "border", "reflection"):
        agree("grid_sample", x, grid, "bilinear", padding, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ctc(dtype: Any) -> None:
    for _ in range(5):
        x = RNG.normal(size=(9, 4, 5))
        x = (x - np.log(np.exp(x).sum(2, keepdims=True))).astype(dtype)
        targets = RNG.integers(1, 5, (4, 4))
        given = x, targets, RNG.integers(4, 10, 4), RNG.integers(0, 3, 4), 0
        agree("ctc_nll", *given, tolerance=1e-4)
        agree("ctc_nll_backward", np.ones(4, dtype), *given, tolerance=1e-4)


def test_ctc_of_labels_out_of_range() -> None:
    x, one = np.zeros((3, 1, 4)), np.array([1])
    with pytest.raises(IndexError, match="4 classes"):
        KERNELS["ctc_nll"](x, np.array([[7]]), one * 3, one, 0)
    with pytest.raises(IndexError, match="input_lengths"):
        KERNELS["ctc_nll"](x, np.array([[1]]), one * 9, one, 0)


def test_incomplete_gamma() -> None:
    special = pytest.importorskip("scipy.special")
    a = np.concatenate(
        [RNG.uniform(0.1, 5, 500), RNG.uniform(5, 300, 500), 10 ** RNG.uniform(2, 8, 99)]
    )
    x = a * RNG.uniform(0.5, 1.5, a.shape)
    near = a + RNG.normal(size=a.shape) * np.sqrt(a)
    for other in (x, np.abs(near)):
        for name, wanted in (("igamma", special.gammainc), ("igammac", special.gammaincc)):
            value = wanted(a, other)
            # exp(-d) of a distance d, which moves by sqrt(2 a d) times the rounding of x / a: in
            # SciPy's result as in ours. Beside mpmath SciPy loses another 2e-11 in far tails,
            # where ours stays below 1e-12.
            distance = -np.log(np.maximum(value, 1e-300))
            bound = 5e-11 + 4 * np.finfo(float).eps * np.sqrt(2 * a * distance)
            off = np.abs(KERNELS[name](a, other) - value) - bound * value
            assert off.max() <= 1e-300, (name, a[off.argmax()], other[off.argmax()])
    edges = np.array([0.0, 1.0, np.inf, -1.0, np.nan])
    for left, right in itertools.product(edges, edges):
        agree("igamma", np.array(left), np.array(right))
        agree("igammac", np.array(left), np.array(right))
