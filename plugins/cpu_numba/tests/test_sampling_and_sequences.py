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
        for mode in ("bilinear", "nearest"):
            agree("grid_sample", x, grid, mode, padding, False)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(1, 1), (5, 1), (1, 5), (2, 2), (3, 70)])
def test_grid_sample_of_narrow_images(mode: str, size: tuple[int, int]) -> None:
    """Blocks of which all taps are inside, some, and none; places on the borders."""
    rng = np.random.default_rng(max(size))
    x = rng.normal(size=(2, 3, *size)).astype(np.float32)
    # A place is a number of pixels in float32: what it is off by times how far pixels lie apart.
    tolerance = 1e-5 + 2 * np.spacing(np.float32(max(size))) * float(np.ptp(x))
    edges = np.array([-2, -1, -0.5, 0, 0.25, 1, 2])
    for reach in (0.1, 1.0, 1.5, 4.0):
        grid = rng.uniform(-reach, reach, (2, 9, 15, 2)).astype(np.float32)
        grid[0, 0, :7, 0] = grid[0, 0, 7:14, 1] = edges
        grid[1, 1, 3:10] = edges[:, None]
        for padding, align in itertools.product(("zeros", "border"), (False, True)):
            agree("grid_sample", x, grid, mode, padding, align, tolerance=tolerance)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_reads_nothing_but_taps(mode: str) -> None:
    """What lies beside a tap may be infinite, or no number; beyond the image is 0."""
    x = np.full((1, 1, 6, 8), np.nan, np.float32)
    x[..., 2:4, 2:5] = RNG.normal(size=(2, 3))
    inside = np.array([[2.2, 2.4], [3.5, 2.0], [3.9, 2.9], [2.0, 2.5]]) + 0.5
    grid = (2 * inside / (8, 6) - 1).astype(np.float32).reshape(1, 1, 4, 2)
    found = KERNELS["grid_sample"](x, grid, mode, "zeros", False)
    wanted = KERNELS["grid_sample"](np.nan_to_num(x), grid, mode, "zeros", False)
    assert np.isfinite(wanted).all()
    if mode == "nearest":
        np.testing.assert_array_equal(found, wanted)
    else:  # of whole coordinates the tap beside is one, with weight 0
        np.testing.assert_array_equal(found[..., [0, 2]], wanted[..., [0, 2]])
    corners = np.full((1, 1, 6, 8), 2, np.float32)
    corners[..., 0, 0] = corners[..., -1, -1] = np.inf
    away = np.array([[-9, 0], [0, 9], [9, -9], [np.nan, 0], [0.5, -0.5]], np.float32)
    found = KERNELS["grid_sample"](corners, away.reshape(1, 1, 5, 2), mode, "zeros", False)
    np.testing.assert_array_equal(found, [[[[0, 0, 0, 0, 2]]]])


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
