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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_losses(name: str, options: Any, dtype: Any) -> None:
    for shape in ((257,), (70, 90), (3, 5, 4096), (100_003,)):
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
