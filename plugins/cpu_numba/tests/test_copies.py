"""Copies and borders that two threads make, as NumPy makes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch_cpu_numba.kernels.shape.copies import KERNELS, WHEN

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = cd.get_num_threads()
    cd.set_num_threads(2)
    yield
    cd.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(262_144,), (3, 257, 341), (65_537, 4)])
def test_clone(dtype: str, shape: tuple[int, ...]) -> None:
    x = cd.rand(*shape).mul_(100).to(getattr(cd, dtype))
    assert WHEN["clone"](x.raw, None)
    y = x.clone()
    assert cd.equal(x, y) and y.data_ptr() != x.data_ptr()


@st.composite
def permuted(draw: Any) -> np.ndarray:
    """Arrays of two to five dimensions in any order, large enough for the plugin's kernel."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 17, 33, 64]), min_size=2, max_size=5))
    place = draw(st.integers(0, len(sizes) - 1))
    sizes[place] *= -(-70_000 // math.prod(sizes))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "int64", "complex64", "int16"]))
    array = np.arange(math.prod(sizes)).astype(dtype).reshape(sizes)
    return array.transpose(draw(st.permutations(range(len(sizes)))))


@given(permuted())
@settings(max_examples=60)
def test_contiguous(array: np.ndarray) -> None:
    x = cd.from_numpy(array).contiguous()
    assert x.is_contiguous() and np.array_equal(x.numpy(), array)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((1000, 1001), (1, 0)),
        ((4, 64, 30, 31), (0, 2, 3, 1)),
        ((4, 30, 31, 64), (0, 3, 1, 2)),
        ((3, 12, 100, 64), (0, 2, 1, 3)),
        ((33, 47, 50, 2, 1), (2, 3, 0, 1, 4)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_dimensions_that_change_places_are_copied_in_blocks(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: str
) -> None:
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape).transpose(order)
    assert WHEN["contiguous"](array, None)
    made = KERNELS["contiguous"](array, None)
    assert made.flags.c_contiguous and np.array_equal(made, array)


PADS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((600, 500), (1, 2, 3, 4)),
    ((600, 500), (-3, 2)),
    ((600, 500), (0, 0, -7, 5)),
    ((3, 5, 200, 100), (1, 0, 2, -3, 4, 5)),
    ((3, 5, 200, 100), (0, -99, 0, 0, 0, 0, 2, 1)),
    ((300_000,), (5, 6)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "pad"), PADS)
def test_pad(shape: tuple[int, ...], pad: tuple[int, ...], dtype: str) -> None:
    x = cd.rand(*shape).to(getattr(cd, dtype))
    assert WHEN["pad"](x.raw, pad, "constant", 1.5)
    want = _reference(x.float().numpy(), pad, 1.5)
    assert np.array_equal(F.pad(x, pad, value=1.5).float().numpy(), want)
    given = cd.constant_pad_nd(x, pad)
    assert np.array_equal(given.float().numpy(), _reference(x.float().numpy(), pad, 0))


def _reference(x: np.ndarray, pad: tuple[int, ...], value: float) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2)
    pairs += [(b, a) for b, a in zip(pad[-2::-2], pad[::-2])]
    cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, pairs))
    grown = [(max(b, 0), max(a, 0)) for b, a in pairs]
    return np.pad(x[cut], grown, constant_values=value)


def test_what_is_wrong_is_said_by_numpys_kernel() -> None:
    x = cd.rand(600, 500)
    assert KERNELS["pad"](x.raw, (1, 2, 3), "constant", 0) is NotImplemented
    for pad in ((1, 2, 3), (-300, -201), (1,) * 6):
        with pytest.raises(cd.ShapeError):
            F.pad(x, pad)
    assert F.pad(x, (-500, 0)).shape == (600, 0)
