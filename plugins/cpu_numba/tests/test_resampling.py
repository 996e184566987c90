"""interpolate and its gradient: the loops against the decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
MODES = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}
SHAPES = [(2, 3, 7), (1, 2, 1), (2, 3, 8, 5), (1, 2, 1, 9), (1, 1, 40, 70), (2, 2, 4, 5, 6)]
OPTIONS: list[tuple[Any, Any, Any]] = [
    (None, 2, None),
    (None, 2.5, None),
    (None, 0.7, None),
    (None, 1.7, True),
    (5, None, None),
    (1, None, None),
    (43, None, None),
]


def both(shape: tuple[int, ...], dtype: Any, *options: Any) -> None:
    x = RNG.normal(size=shape).astype(dtype)
    found = KERNELS["interpolate"](x, *options)
    if found is NotImplemented:  # an empty result, of which the definition says what is wrong
        return
    wide = cd.from_numpy(x).double()  # places in single precision have fewer digits
    wanted = cd.ops.interpolate.decomposition(wide, *options).numpy()
    tolerance = 2e-6 if dtype is np.float32 else 1e-12
    assert found.dtype == x.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, tolerance, tolerance)
    grad = RNG.normal(size=wanted.shape).astype(dtype)
    found = KERNELS["interpolate_backward"](grad, shape, *options)
    given = cd.from_numpy(grad).double(), shape
    wanted = cd.ops.interpolate_backward.decomposition(*given, *options).numpy()
    assert found.dtype == x.dtype and found.shape == shape
    np.testing.assert_allclose(found, wanted, 8 * tolerance, 8 * tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_modes(shape: tuple[int, ...], dtype: Any) -> None:
    for size, factor, recomputed in OPTIONS:
        for mode in ("nearest", "nearest-exact"):
            both(shape, dtype, size, factor, mode, None, recomputed, False)
        for mode in MODES[len(shape) - 2]:
            for corners in (None, True):
                both(shape, dtype, size, factor, mode, corners, recomputed, False)


def test_what_is_copied_stays_as_it_is() -> None:
    x = np.array([[[-0.0, np.nan, np.inf, -np.inf, 5e-324, -0.0, 1.0]]])
    for shape in ((1, 1, 7), (1, 1, 1, 7)):
        found = KERNELS["interpolate"](x.reshape(shape), None, 2, "nearest", None, None, False)
        wanted = np.repeat(x.reshape(shape), 2, -1)
        for row in found.reshape(-1, 14):
            np.testing.assert_array_equal(row, wanted.reshape(-1))
            np.testing.assert_array_equal(np.signbit(row), np.signbit(wanted.reshape(-1)))


@pytest.mark.parametrize("size", [4, 30])
def test_only_taps_are_read(size: int) -> None:
    """What is no number stays among the elements that it is a part of."""
    x = np.ones((1, 1, size, size), np.float32)
    x[..., 0, 0] = np.nan
    for factor in (2, 0.5):
        for mode in ("bilinear", "nearest"):
            found = KERNELS["interpolate"](x, None, factor, mode, None, None, False)
            assert np.isnan(found[..., 0, 0]).all()
            np.testing.assert_array_equal(found[..., 3:, :], 1)
            np.testing.assert_array_equal(found[..., 3:], 1)


def test_what_does_not_fit_is_left_to_the_definition() -> None:
    x = np.ones((1, 2, 4, 4), np.float32)
    grad = np.ones((1, 2, 8, 7), np.float32)
    back = KERNELS["interpolate_backward"]
    assert back(grad, x.shape, None, 2, "nearest", None, None, False) is NotImplemented
    assert back(grad, (1, 3, 4, 4), (8, 7), None, "nearest", None, None, False) is NotImplemented
    for options in ((None, None), (2, 2), ((2, 2, 2), None), (0, None), (None, 0.1), (-1, None)):
        call = KERNELS["interpolate"]
        assert call(x, *options, "nearest", None, None, False) is NotImplemented
        assert call(x, *options, "linear", None, None, False) is NotImplemented
