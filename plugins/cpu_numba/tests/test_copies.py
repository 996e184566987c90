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
from coredispatch_cpu_numba.kernels.shape import padding
from coredispatch_cpu_numba.kernels.shape.copies import ACCEPTS, KERNELS, WHEN

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
def joined(draw: Any) -> tuple[list[np.ndarray], int]:
    """Arrays to be joined along a dimension: long ones that threads share, or many short runs."""
    before = draw(st.sampled_from([(), (1,), (3,), (1000,), (37, 90), (3331,)]))
    after = draw(st.sampled_from([(), (1,), (3,), (17,)]))
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64", "int16", "bool", "complex128"])))
    many = draw(st.sampled_from([2, 2, 3, 5]))
    each = math.prod(before) * math.prod(after)
    most = max(4, (draw(st.sampled_from([1 << 12, 1 << 19])) // each))
    lengths = [draw(st.integers(most - 2, most + 2)) for _ in range(many)]
    lengths[draw(st.integers(0, many - 1))] += draw(st.sampled_from([0, -most // 2, most]))
    numbers = np.arange(each * max(lengths)) % 251
    arrays = [
        (numbers + k).astype(dtype)[: each * n].reshape(*before, n, *after)
        for k, n in enumerate(lengths)
    ]
    return arrays, len(before)


@given(joined(), st.booleans(), st.sampled_from([1, 2]))
@settings(max_examples=80)
def test_cat(case: tuple[list[np.ndarray], int], from_end: bool, threads: int) -> None:
    arrays, dim = case
    expected = np.concatenate(arrays, dim)
    place = dim - arrays[0].ndim if from_end else dim
    cd.set_num_threads(threads)
    got = cd.cat([cd.from_numpy(x) for x in arrays], place).numpy()
    assert got.dtype == expected.dtype and np.array_equal(got, expected)
    own = KERNELS["cat"](arrays, place)
    assert own is NotImplemented or np.array_equal(own, expected)


def test_cat_takes() -> None:
    long, rows = np.ones(200_000, np.float32), np.ones((20_000, 4), np.float32)
    few = np.ones((4000, 100), np.float32)
    for arrays, dim in [([long, long], 0), ([rows, rows], 1), ([few, few, few], -1)]:
        assert ACCEPTS["cat"](arrays, dim)
    refused: list[tuple[list[np.ndarray], int]] = [
        ([long, long], 1),
        ([long], 0),
        ([long, long.astype(np.float64)], 0),
        ([few, few[:, ::2]], 1),
        ([few, few[0]], 1),
        ([few[0], few], 0),
        ([few, few[:-1]], 1),
    ]
    for arrays, dim in refused:
        assert not ACCEPTS["cat"](arrays, dim)
    cd.set_num_threads(1)
    assert not ACCEPTS["cat"]([long, long], 0)
    assert ACCEPTS["cat"]([rows, rows], 1)


@st.composite
def permuted(draw: Any) -> np.ndarray:
    """Arrays of two to five dimensions in any order, large enough for the plugin's kernel."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 17, 33, 64]), min_size=2, max_size=5))
    while math.prod(sizes) > 300_000:
        sizes[sizes.index(max(sizes))] //= 2
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
    assert padding.KERNELS["pad"](x.raw, pad, "constant", 1.5) is not NotImplemented
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
    assert padding.KERNELS["pad"](x.raw, (1, 2, 3), "constant", 0) is NotImplemented
    for pad in ((1, 2, 3), (-300, -201), (1,) * 6):
        with pytest.raises(cd.ShapeError):
            F.pad(x, pad)
    assert F.pad(x, (-500, 0)).shape == (600, 0)
