"""Requantization bit for bit against exact integer arithmetic."""

from __future__ import annotations

import integer_reference as exact
import numpy as np
import pytest

from coredispatch.plugin import ArgumentError
from coredispatch_quant.requantize import multiplier_and_shift, requantize, round_shift

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
    got = requantize(values, factor, zero, low, high, np.dtype(dtype))
    want = [exact.requantize(v, factor, zero, low, high) for v in values.tolist()]
    assert got.dtype == dtype
    assert got.tolist() == want


@pytest.mark.parametrize("shift", [1, 2, 5, 9])
def test_midpoints_go_away_from_zero(shift):
    half = 1 << (shift - 1)
    odd = np.arange(-9, 10, 2)
    assert round_shift(odd * half, np.int64(shift)).tolist() == [
        int(np.sign(v)) * ((abs(v) + 1) // 2) for v in odd.tolist()
    ]
    # An accumulator of -1, -3, ... times one half meets the first rounding step instead.
    assert requantize(np.array([-3, -1, 1, 3]), 0.5, 0, -128, 127, np.dtype(np.int8)).tolist() == [
        exact.requantize(v, 0.5, 0, -128, 127) for v in (-3, -1, 1, 3)
    ]


def test_saturates_and_does_not_wrap():
    got = requantize(np.array([10**6, -(10**6)]), 0.9, 100, 0, 255, np.dtype(np.uint8))
    assert got.tolist() == [255, 0]


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
