"""Requantization bit for bit against exact integer arithmetic."""

from __future__ import annotations

import integer_reference as exact
import numpy as np
import pytest

from coredispatch.plugin import ArgumentError
from coredispatch_quant.requantize import multiplier_and_shift, requantize

pytestmark = pytest.mark.once

EDGES = [0, 1, -1, 2, -2, 3, -3, 127, -128, 255, 2**30, -(2**30), 2**31 - 1, -(2**31)]
FACTORS = [
    2.0**-32, 2.0**-31, 1.5 * 2.0**-32, 2.0**-33, 1e-12, 0.5, 0.25, 2.0**-8, 3 * 2.0**-10,
    0.1, 0.0123, 0.7071, 1 - 2.0**-24, 1.0, 1.5, 2.0, 3.7, 1000.25, 2.0**30,
]  # fmt: skip


@pytest.mark.parametrize("factor", FACTORS)
def test_split(factor):
    multiplier, shift = multiplier_and_shift(factor)
    assert (int(multiplier), int(shift)) == exact.split(factor)
    if factor >= 2.0**-32:
        assert 2**30 <= multiplier < 2**31
        assert float(multiplier) * 2.0 ** -(31 + float(shift)) == exact.float32(factor)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(
    ("zero", "low", "high", "dtype"),
    [
        (0, 0, 255, np.uint8),
        (128, 0, 255, np.uint8),
        (-7, -128, 127, np.int8),
        (3, 3, 127, np.int8),
    ],
)
def test_matches_exact_integers(factor, zero, low, high, dtype):
    rng = np.random.default_rng(0)
    # Near the output range as well as over all of int32, so that not everything saturates.
    near = np.rint(rng.uniform(-300, 300, 300) / factor).clip(*exact.INT32).astype(np.int64)
    far = rng.integers(*exact.INT32, 100)
    values = np.concatenate([EDGES, near, far])
    got = requantize(values[None], factor, zero, low, high, np.dtype(dtype))
    want = [exact.requantize(v, factor, zero, low, high) for v in values.tolist()]
    assert got.dtype == dtype
    assert got[0].tolist() == want


INT8 = (0, -128, 127, np.dtype(np.int8))
ODD = np.arange(-9, 10, 2)


@pytest.mark.parametrize("shift", [2, 5, 9, 20])
def test_midpoints_of_the_second_rounding_go_away_from_zero(shift):
    # ODD times half of 2**shift, divided by 2**shift: one half more than a whole number.
    got = requantize(ODD[None] << (shift - 1), 2.0**-shift, *INT8)
    assert got[0].tolist() == [-5, -4, -3, -2, -1, 1, 2, 3, 4, 5]


def test_midpoints_of_the_first_rounding_go_up():
    got = requantize(ODD[None], 0.5, *INT8)
    assert got[0].tolist() == [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5]


def test_saturates_and_does_not_wrap():
    got = requantize(np.array([[10**6, -(10**6)]]), 0.9, 100, 0, 255, np.dtype(np.uint8))
    assert got.tolist() == [[255, 0]]


@pytest.mark.parametrize("shape", [(1, 70000), (70000, 1), (300, 300), (3, 40000), (0, 4), (4, 0)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_blocks_are_seamless(shape, axis):
    rng = np.random.default_rng(2)
    values = rng.integers(-(2**20), 2**20, shape)
    form = {None: (), 0: (shape[0], 1), 1: (1, shape[1])}[axis]
    factor, bias = rng.uniform(1e-5, 1e-3, form), rng.integers(-(2**20), 2**20, form)
    got = requantize(values.astype(np.float64), factor, *INT8, np.asarray(bias))
    assert got.shape == shape
    total = values + bias
    nearest = np.rint(total * np.broadcast_to(np.float32(factor), shape)).clip(-128, 127)
    # Two roundings may differ from one by one step, and do so rarely.
    assert np.abs(got - nearest).max(initial=0) <= 1
    assert (got != nearest).mean() < 0.01 if got.size else True
    some = [tuple(rng.integers(0, shape)) for _ in range(50)] if got.size else []
    for at in some:
        f = float(np.broadcast_to(factor, shape)[at])
        assert got[at] == exact.requantize(int(total[at]), f, 0, -128, 127)


def test_factors_per_channel():
    factors = np.array([0.013, 0.5, 2.0**-33, 1.25])
    acc = np.arange(-40, 40).reshape(4, 20) * 37
    got = requantize(acc, factors[:, None], 5, -128, 127, np.dtype(np.int8))
    want = [
        [exact.requantize(v, f, 5, -128, 127) for v in row]
        for row, f in zip(acc.tolist(), factors.tolist(), strict=True)
    ]
    assert got.tolist() == want


def test_factor_too_large():
    with pytest.raises(ArgumentError, match="output scale"):
        multiplier_and_shift(2.0**31)
