"""Cross entropy with weights, smoothed and of probabilities, and nll_loss: the loops against the
decompositions in float64.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from pack_under_test import KERNELS, WHEN

import coredispatch as cd

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
SHAPES = [(7, 5), (300, 10), (5, 2), (3, 1), (2, 5000), (2, 3, 4), (3, 21, 17, 19), (2, 130, 300)]
OPTIONS = list(itertools.product(("mean", "sum", "none"), (-100, 1)))


def wide(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return cd.from_numpy(x).double() if x.dtype.kind == "f" else cd.from_numpy(x)


def agree(name: str, *args: Any) -> None:
    assert WHEN[name](*args)
    found = KERNELS[name](*args)
    wanted = getattr(cd.ops, name).decomposition(*map(wide, args)).numpy()
    own = next(a.dtype for a in args if isinstance(a, np.ndarray) and a.dtype.kind == "f")
    tolerance = 1e-5 if own == np.float32 else 1e-12
    assert found.dtype == own and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, tolerance, tolerance * max(1, np.abs(wanted).max()))


def drawn(shape: tuple[int, ...], dtype: Any) -> Any:
    rest = (shape[0], *shape[2:])
    weight = RNG.uniform(0.1, 1, shape[1]).astype(dtype)
    if shape[1] > 2:
        weight[0] = 0
    logits = RNG.normal(size=shape) * 3
    target = RNG.integers(0, shape[1], rest)
    target.flat[0] = 2 if shape[1] > 2 else 0  # one that counts: the mean of nothing is NaN
    return logits.astype(dtype), target, weight


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_smoothing(shape: tuple[int, ...], dtype: Any) -> None:
    x, target, weight = drawn(shape, dtype)
    for (reduction, ignored), smoothing in itertools.product(OPTIONS, (0.0, 0.1, 1.0)):
        grad = RNG.normal(size=target.shape if reduction == "none" else ()).astype(dtype)
        for w in (None, weight):
            options = target, w, ignored, reduction, smoothing
            if w is not None or smoothing:
                agree("cross_entropy", x, *options)
                agree("cross_entropy_backward", np.asarray(grad), x, *options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) == 2])
def test_probabilities(shape: tuple[int, ...], dtype: Any) -> None:
    x, _, weight = drawn(shape, dtype)
    shares = RNG.uniform(size=shape).astype(dtype)
    for reduction, smoothing, w in itertools.product(
        ("mean", "sum", "none"), (0.0, 0.2), (None, weight)
    ):
        grad = RNG.normal(size=shape[0] if reduction == "none" else ()).astype(dtype)
        options = shares, w, -100, reduction, smoothing
        agree("cross_entropy", x, *options)
        agree("cross_entropy_backward", np.asarray(grad), x, *options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_nll_loss(shape: tuple[int, ...], dtype: Any) -> None:
    x, target, weight = drawn(shape, dtype)
    for (reduction, ignored), w in itertools.product(OPTIONS, (None, weight)):
        grad = RNG.normal(size=target.shape if reduction == "none" else ()).astype(dtype)
        agree("nll_loss", x, target, w, ignored, reduction)
        agree("nll_loss_backward", np.asarray(grad), shape, target, w, ignored, reduction)


def test_nll_loss_of_a_vector() -> None:
    x, target, weight = RNG.normal(size=6), np.array(4), RNG.uniform(0.1, 1, 6)
    for reduction, w in itertools.product(("mean", "sum", "none"), (None, weight)):
        agree("nll_loss", x, target, w, -100, reduction)
        agree("nll_loss_backward", np.array(0.7), x.shape, target, w, -100, reduction)


def test_a_class_without_weight_does_not_count() -> None:
    """Whatever its logit."""
    weight = np.array([0.0, 1.0, 2.0], np.float32)
    for spatial in ((), (2,)):
        x = np.zeros((4, 3, *spatial), np.float32)
        x[:, 0] = -np.inf
        target = np.full((4, *spatial), 1)
        agree("cross_entropy", x, target, weight, -100, "mean", 0.3)
        agree("cross_entropy", x, np.zeros_like(target), weight, -100, "none", 0.0)


def test_classes_out_of_range() -> None:
    for spatial in ((), (3,)):
        x, target = np.zeros((4, 5, *spatial), np.float32), np.zeros((4, *spatial), np.int64)
        for bad in (-1, 5):
            target[2] = bad
            with pytest.raises(cd.CoreDispatchError):
                KERNELS["cross_entropy"](x, target, None, -100, "mean", 0.1)
            with pytest.raises(cd.CoreDispatchError):
                KERNELS["nll_loss"](x, target, None, -100, "mean")
            grad = np.float32(1)
            with pytest.raises(cd.CoreDispatchError):
                KERNELS["nll_loss_backward"](grad, x.shape, target, None, -100, "mean")
