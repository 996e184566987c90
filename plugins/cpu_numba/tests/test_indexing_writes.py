"""Elements and rows written, added and reduced by index, against NumPy's kernels."""

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

REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]


@st.composite
def indexed(draw: Any) -> tuple[Any, ...]:
    """A shape, a dimension, the size of the index there, and a seed."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    return shape, dim, draw(st.integers(1, 50)), draw(st.integers(0, 99))


def _drawn(dtype: Any, drawn: Any) -> tuple[Any, ...]:
    """Numbers with special ones among them, an index of elements, sources, an index of rows."""
    shape, dim, size, seed = drawn
    rng = np.random.default_rng(seed)
    wide = list(shape)
    wide[dim] = size
    x, source = (rng.standard_normal(s).astype(dtype) for s in (shape, wide))
    for array in (x, source):
        special = rng.choice(array.size, array.size // 9)
        array.reshape(-1)[special] = rng.choice([np.nan, np.inf, -np.inf, 1e-40], special.size)
    index, rows = rng.integers(0, shape[dim], wide), rng.integers(0, shape[dim], size)
    return x, dim, index, source, rows


def _same(got: Any, want: Any) -> None:
    assert got is not NotImplemented
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=indexed())
def test_elements(reference: Reference, dtype: Any, drawn: Any) -> None:
    """Bit for bit, in the order of the index; also with an index that was expanded from rows."""
    x, dim, index, source, rows = _drawn(dtype, drawn)
    expanded = [-1 if i == dim % x.ndim else 1 for i in range(x.ndim)]
    indices = [index]
    if dim % x.ndim != x.ndim - 1:
        one = np.broadcast_to(index[..., :1].copy(), index.shape)
        indices += [np.broadcast_to(rows.reshape(expanded), index.shape)]
        indices += [one] if x.ndim - 2 == dim % x.ndim else []
    for places in indices:
        _same(KERNELS["gather"](x, dim, places), reference["gather"](x, dim, places))
        before = x.copy()
        for name in ("scatter", "scatter_add"):
            want = reference[name](x, dim, places, source)
            _same(KERNELS[name](x, dim, places, source), want)
            _same(x, before)
            inside = x.copy()
            if KERNELS[name](inside, dim, places, source, out=inside) is NotImplemented:
                _same(inside, before)
            else:
                _same(inside, want)
        _same(KERNELS["scatter"](x, dim, places, 2.5), reference["scatter"](x, dim, places, 2.5))
    _same(KERNELS["take_along_dim"](x, index, dim), reference["gather"](x, dim, index))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("include", [True, False])
@given(drawn=indexed())
def test_reductions(
    reference: Reference, dtype: Any, reduce: str, include: bool, drawn: Any
) -> None:
    x, dim, index, source, rows = _drawn(dtype, drawn)
    with np.errstate(all="ignore"):
        want = reference["scatter_reduce"](x, dim, index, source, reduce, include)
        _same(KERNELS["scatter_reduce"](x, dim, index, source, reduce, include), want)
        if reduce == "sum":
            return
        expanded = [-1 if i == dim % x.ndim else 1 for i in range(x.ndim)]
        wide = np.broadcast_to(rows.reshape(expanded), source.shape)
        want = reference["scatter_reduce"](x, dim, wide, source, reduce, include)
        _same(KERNELS["index_reduce"](x, dim, rows, source, reduce, include), want)


@pytest.mark.parametrize("dtype", DTYPES)
@given(drawn=indexed())
def test_rows(reference: Reference, dtype: Any, drawn: Any) -> None:
    x, dim, _, source, rows = _drawn(dtype, drawn)
    index = (*(slice(None),) * (dim % x.ndim), rows)
    for name, options in (("index_add", (source, 1)), ("index_copy", (source,))):
        want = reference[name](x, dim, rows, *options)
        _same(KERNELS[name](x, dim, rows, *options), want)
        inside = x.copy()
        _same(KERNELS[name](inside, dim, rows, *options, out=inside), want)
        _same(inside, want)
    want = reference["index_fill"](x, dim, rows, 7)
    _same(KERNELS["index_fill"](x, dim, rows, 7), want)
    for accumulate in (True, False):
        want = reference["index_put"](x, index, source, accumulate)
        _same(KERNELS["index_put"](x, index, source, accumulate), want)
        inside = x.copy()
        assert KERNELS["index_put_"](inside, index, source, accumulate) is None
        _same(inside, want)
    want = reference["getitem_backward"](source, index, x.shape)
    _same(KERNELS["getitem_backward"](source, index, x.shape), want)


@pytest.mark.parametrize("size", [30, 40_000])
def test_large_ones_are_shared_among_threads(
    reference: Reference, size: int, two_threads: None
) -> None:
    rng = np.random.default_rng(0)
    x, source = rng.standard_normal((70, 300)), rng.standard_normal((size, 300))
    rows = rng.integers(0, 70, size)
    _same(
        KERNELS["index_add"](x, 0, rows, source, 1), reference["index_add"](x, 0, rows, source, 1)
    )
    columns = rng.integers(0, 70, (300, size))
    flat = np.ascontiguousarray(source.T)
    want = reference["scatter_add"](x.T.copy(), 1, columns, flat)
    _same(KERNELS["scatter_add"](x.T.copy(), 1, columns, flat), want)


def test_equal_extremes_and_zeros_keep_what_was_there() -> None:
    x = np.array([0.0, -0.0, np.nan], np.float32)
    index, source = np.array([0, 1, 2]), np.array([-0.0, 0.0, 1.0], np.float32)
    got = KERNELS["scatter_reduce"](x, 0, index, source, "amax", True)
    np.testing.assert_array_equal(got, x)
    assert np.isnan(got[2])


@pytest.mark.parametrize("bad", [-1, 30])
@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_reduce"])
def test_an_index_out_of_range_changes_nothing(name: str, bad: int) -> None:
    x, index = cd.ones(20, 30), cd.zeros(20, 30, dtype=cd.int64)
    index[19, 29] = bad
    more = ("amax",) if name == "scatter_reduce" else ()
    for written in (index, index[:, 29:].expand(20, 30)):
        with pytest.raises(DimError, match=str(bad)):
            getattr(x, name)(0, written.t().t(), x * 2, *more)
        with pytest.raises(DimError, match=str(bad)):
            getattr(x, f"{name}_")(1, written, x * 2, *more)
    for call in (
        lambda: x.index_add_(1, index[19], x * 2),
        lambda: x.index_copy_(1, index[19], x * 2),
        lambda: x.scatter_(1, index, 5.0),
        lambda: x.index_reduce_(1, index[19], x * 2, "amax"),
    ):
        with pytest.raises(DimError, match=str(bad)):
            call()
    far = bad if bad > 0 else -31  # this one counts from the end
    with pytest.raises(DimError, match=str(far)):
        x.index_fill_(1, cd.tensor([0, far]), 5.0)
    assert cd.equal(x, cd.ones(20, 30))


def test_subscripts_count_from_the_end() -> None:
    x, k = cd.zeros(20, 30), cd.tensor([-1, 3, -1])
    x.index_put_((k,), cd.ones(3, 30), accumulate=True)
    x[k[:2]] += 1
    assert x.sum(1).tolist() == [0, 0, 0, 60, *[0] * 4, *[0] * 11, 120 - 30]


def test_a_write_in_place_sees_what_it_overwrites() -> None:
    x = cd.arange(90.0).reshape(3, 30)
    want = x.index_copy(0, cd.tensor([1, 2, 0]), x.clone())
    x.index_copy_(0, cd.tensor([1, 2, 0]), x)
    assert cd.equal(x, want)
