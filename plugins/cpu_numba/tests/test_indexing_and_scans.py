"""Scans, gather, scatter_add, sums of rows, where and group_norm against NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, Reference

import coredispatch as cd
from coredispatch.plugin import DimError

pytestmark = pytest.mark.once

SHAPES = [
    (1, 9),
    (7, 30),
    (8, 33),
    (19, 40),
    (5000,),
    (3, 9001),
    (4, 33, 70),
    (2, 6, 1),
    (40_000, 3),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("shape", SHAPES)
def test_scans(name: str, dtype: Any, shape: Any) -> None:
    """Within two roundings of the exact result, however long the row: sums are kept in float64."""
    rng = np.random.default_rng(0)
    x = (1 + rng.uniform(-1, 1, shape) * 1e-3).astype(dtype)
    exact = {"cumsum": np.cumsum, "cumprod": np.cumprod}[name]
    unit = float(np.finfo(dtype).eps) * (2 if dtype == np.float32 else max(shape))
    for dim in range(-len(shape), len(shape)):
        got = KERNELS[name](x, dim, None)
        assert got.dtype == dtype and got.shape == shape
        np.testing.assert_allclose(got, exact(x.astype(np.longdouble), dim), rtol=unit)


@pytest.mark.parametrize("length", [40, 6000])
def test_scans_carry_special_values(length: int) -> None:
    """An infinity stays, its opposite makes NaN, NaN stays; what comes before is untouched."""
    x = np.ones(length, np.float32)
    x[length // 2], x[length - 10], x[length - 5] = np.inf, -np.inf, 3
    with np.errstate(all="ignore"):
        for rows in (x[None], np.tile(x, (9, 1))):
            np.testing.assert_array_equal(KERNELS["cumsum"](rows, 1, None), np.cumsum(rows, 1))


@st.composite
def indexed(draw: Any) -> tuple[Any, ...]:
    """A shape, a dimension, and the size of the index there."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    return shape, draw(st.integers(-len(shape), len(shape) - 1)), draw(st.integers(1, 50))


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=indexed())
def test_gather_and_scatter_add(reference: Reference, dtype: Any, drawn: Any) -> None:
    """Bit for bit NumPy's: additions are made in the same order."""
    shape, dim, size = drawn
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(dtype)
    wide = list(shape)
    wide[dim] = size
    index = rng.integers(0, shape[dim], wide)
    source = rng.standard_normal(wide).astype(dtype)
    np.testing.assert_array_equal(
        KERNELS["gather"](x, dim, index), reference["gather"](x, dim, index)
    )
    got = KERNELS["scatter_add"](x, dim, index, source)
    np.testing.assert_array_equal(got, reference["scatter_add"](x, dim, index, source))


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16])
@given(drawn=indexed())
def test_slices_by_index(reference: Reference, dtype: Any, drawn: Any) -> None:
    shape, dim, size = drawn
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(dtype)
    index = rng.integers(0, shape[dim], size)
    expected = reference["index_select"](x, dim, index)
    np.testing.assert_array_equal(KERNELS["index_select"](x, dim, index), expected)
    if len(shape) == 2:
        table = rng.integers(0, shape[0], (2, size))
        rows = KERNELS["embedding"](table, x, None, None, 2.0, False, False)
        np.testing.assert_array_equal(rows, x[table])


def test_slices_out_of_range_are_left_to_numpy() -> None:
    x = np.ones((4, 3), np.float32)
    for wrong in (-1, 4):
        index = np.array([0, wrong])
        assert KERNELS["index_select"](x, 0, index) is NotImplemented
        assert KERNELS["embedding_lookup"](index, x, None, False, False) is NotImplemented
    assert KERNELS["index_select"](x, 2, np.array([0])) is NotImplemented
    assert KERNELS["embedding"](np.array([0]), x, 1, None, 2.0, False, False) is NotImplemented
    assert KERNELS["embedding"](np.array([0]), x, None, 1.0, 2.0, False, False) is NotImplemented


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 5, 64, 300])
def test_rows_added_by_index(dtype: Any, width: int, two_threads: None) -> None:
    """index_add and the gradient of an embedding, shared by columns among the threads."""
    rng = np.random.default_rng(2)
    x, rows = (rng.standard_normal((n, width)).astype(dtype) for n in (50, 400))
    index = rng.integers(0, 50, 400)
    want = x.copy()
    np.add.at(want, index, rows)
    np.testing.assert_array_equal(KERNELS["index_add"](x, 0, index, rows, 1), want)
    want = np.zeros_like(x)
    np.add.at(want, index, rows)
    got = KERNELS["embedding_backward"](
        rows.reshape(20, 20, width), index.reshape(20, 20), 50, None, False
    )
    np.testing.assert_array_equal(got, want)
    want[3] = 0
    np.testing.assert_array_equal(KERNELS["embedding_backward"](rows, index, 50, 3, False), want)


@pytest.mark.parametrize("bad", [-1, 30])
def test_an_index_out_of_range_is_told(bad: int) -> None:
    """The loops read and write nothing outside, and NumPy's kernel says what is wrong."""
    x, index = cd.ones(20, 30), cd.zeros(20, 30, dtype=cd.int64)
    index[19, 29] = bad
    for call in (
        lambda: x.gather(1, index),
        lambda: x.scatter_add(1, index, x),
        lambda: cd.ones(30, 40).index_add(0, index[19], cd.ones(30, 40)),
    ):
        with pytest.raises(DimError, match=str(bad)):
            call()


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(reference: Reference, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((37, 41)).astype(dtype) for _ in range(2))
    x[0, :4] = np.nan, np.inf, -0.0, 1e-40
    condition = x > y
    condition[0, :4] = True
    got = KERNELS["where"](condition, x, y)
    np.testing.assert_array_equal(got, np.where(condition, x, y))
    assert np.signbit(got[0, 2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_leaky_relu_backward(reference: Reference, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    grad, x = (rng.standard_normal((37, 41)).astype(dtype) for _ in range(2))
    x[0, :3] = np.nan, 0.0, -0.0
    got = KERNELS["leaky_relu_backward"](grad, x, 0.1)
    np.testing.assert_array_equal(got, reference["leaky_relu_backward"](grad, x, 0.1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "groups"), [((3, 8, 5, 7), 4), ((2, 6, 300), 1), ((5, 64), 8)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(
    reference: Reference, dtype: Any, shape: Any, groups: int, affine: bool
) -> None:
    rng = np.random.default_rng(5)
    x, grad = (rng.standard_normal(shape).astype(dtype) + dtype(3) for _ in range(2))
    weight, bias = (
        rng.standard_normal(shape[1]).astype(dtype) if affine else None for _ in range(2)
    )
    unit = float(np.finfo(dtype).eps)
    got = KERNELS["group_norm"](x, groups, weight, bias, 1e-5)
    want = reference["group_norm"](x, groups, weight, bias, 1e-5)
    np.testing.assert_allclose(got, want, rtol=64 * unit, atol=64 * unit)
    results = (
        table["group_norm_backward"](grad, x, groups, weight, 1e-5)
        for table in (KERNELS, reference)
    )
    for ours, theirs in zip(*results, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=512 * unit, atol=4096 * unit)
