"""Numbers to 8-bit integers and back, against what defines them: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

import coredispatch as cd

pytestmark = pytest.mark.once

SIZES = [64, 65, 255, 256, 257, 1003, 70_000]


def rounded(x: Any, scale: float, zero: int, signed: bool) -> Any:
    low, high = (-128, 127) if signed else (0, 255)
    steps = np.rint(x.astype(np.float64) / scale) + zero
    return np.clip(steps, low, high).astype(np.int8 if signed else np.uint8)


@given(
    size=st.sampled_from(SIZES),
    scale=st.floats(1e-29, 1e29) | st.sampled_from([0.1, 0.5, 1.0, 1 / 3]),
    position=st.integers(0, 255),
    signed=st.booleans(),
    halves=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bytes(
    size: int, scale: float, position: int, signed: bool, halves: bool, seed: int
) -> None:
    """Random numbers, numbers halfway between two integers, and their neighbours."""
    rng = np.random.default_rng(seed)
    zero = position - 128 if signed else position
    steps = rng.uniform(-300, 300, size)
    if halves:
        steps = np.rint(steps) + 0.5
    with np.errstate(all="ignore"):
        x = (steps * scale).astype(np.float32)
        x[1::3] = np.nextafter(x[1::3], np.float32(np.inf))
        x[2::5] = np.nextafter(x[2::5], np.float32(0))
        x[:7] = np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -3e38
        got = KERNELS["numbers_to_bytes"](x, scale, zero, signed)
        np.testing.assert_array_equal(got, rounded(x, scale, zero, signed), strict=True)
    if 1e-30 < scale < 1e30:
        back = KERNELS["bytes_to_numbers"](got, scale, zero)
        numbers = (got.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        np.testing.assert_array_equal(back.view(np.int32), numbers.view(np.int32))


@pytest.mark.parametrize("place", [0, 63, 255, 256, 1002])
def test_nan_is_refused_wherever_it_stands(place: int) -> None:
    x = np.ones(1003, np.float32)
    x[place] = np.nan
    assert KERNELS["numbers_to_bytes"](x, 0.1, 0, True) is NotImplemented
    with pytest.raises(ValueError, match=r"quantize_per_tensor\(.*NaN"):
        cd.quantize_per_tensor(cd.from_numpy(x), 0.1, 0, cd.qint8)


@pytest.mark.parametrize("scale", [1e-38, 1e38])
def test_scales_without_an_inverse_are_left_to_numpy(scale: float) -> None:
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    assert KERNELS["numbers_to_bytes"](x, scale, 0, True) is NotImplemented
    found = cd.quantize_per_tensor(cd.from_numpy(x), scale, 0, cd.qint8).int_repr()
    np.testing.assert_array_equal(found.numpy(), rounded(x, scale, 0, True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parameters", [(0.1, 3, 0, 15), (0.25, -4, -128, 127), (2, 0, 0, 0)])
def test_fake_quantization(dtype: Any, parameters: Any) -> None:
    scale, zero, low, high = parameters
    x = (np.random.default_rng(0).standard_normal(1003) * 9).astype(dtype)
    x[::7] = np.rint(x[::7]) + 0.5
    x[:6] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40
    kind = np.dtype(dtype).type
    steps = np.rint(x / kind(scale) + kind(zero))
    expected = (np.clip(steps, kind(low), kind(high)) - kind(zero)) * kind(scale)
    got = KERNELS["fake_quantize_per_tensor_affine"](x, *parameters)
    np.testing.assert_array_equal(got, expected, strict=True)
    grad = np.random.default_rng(1).standard_normal(1003).astype(dtype)
    got = KERNELS["fake_quantize_backward"](grad, x, *parameters)
    inside = ~((steps < low) | (steps > high))
    np.testing.assert_array_equal(got, np.where(inside, grad, kind(0)), strict=True)
