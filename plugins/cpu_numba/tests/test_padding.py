"""Borders of an array's own elements, against NumPy's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

import coredispatch as cd

pytestmark = pytest.mark.once
F = cd.nn.functional


@st.composite
def padded(draw: Any) -> tuple[Any, ...]:
    """A shape and as much padding as every mode takes, or less than none."""
    shape = tuple(draw(st.lists(st.integers(2, 40), min_size=2, max_size=4)))
    sides = draw(st.integers(1, 2))
    pad = []
    for length in reversed(shape[-sides:]):
        pad += [draw(st.integers(-(length // 3), length - 1)) for _ in range(2)]
    return shape, tuple(pad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@given(drawn=padded())
def test_borders(reference: Reference, dtype: Any, mode: str, drawn: Any) -> None:
    shape, pad = drawn
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x.reshape(-1)[:2] = np.nan, -0.0
    got = KERNELS["pad"](x, pad, mode, None)
    if got is NotImplemented:
        assert mode == "circular" and min(pad) < 0
        return
    want = reference["pad"](x, pad, mode, None)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("pad", [(2, 1), (1, 2, 3, 0), (0, 0, 2, 2), (-1, 2, 1, -2)])
def test_gradients(mode: str, pad: tuple[int, ...]) -> None:
    """Those of the derivative, and of its own, as differences say."""
    x = cd.randn(2, 3, 5, 6, dtype=cd.float64, requires_grad=True)
    if len(pad) == 2:
        x = cd.randn(2, 3, 6, dtype=cd.float64, requires_grad=True)

    def bordered(x: Any) -> Any:
        return F.pad(x, pad, mode)

    assert cd.autograd.gradcheck(bordered, (x,))
    assert cd.autograd.gradgradcheck(lambda x: bordered(x * x), (x,))


def test_large_ones_are_shared_among_threads(reference: Reference, two_threads: None) -> None:
    x = np.random.default_rng(0).standard_normal((8, 90, 91))
    pad = (3, 4, 2, 1)
    want = reference["pad"](x, pad, "reflect", None)
    np.testing.assert_array_equal(KERNELS["pad"](x, pad, "reflect", None), want)


def test_too_little_to_mirror_is_left_to_the_operator() -> None:
    assert KERNELS["pad"](np.ones((20, 5)), (5, 0), "reflect", None) is NotImplemented
    with pytest.raises(ValueError, match="pad by at most 4"):
        F.pad(cd.ones(20, 5), (5, 0), "reflect")
