"""Embeddings of bags against the operator's body in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

import coredispatch as cd
from coredispatch.plugin import DimError

pytestmark = pytest.mark.once
F = cd.nn.functional


@st.composite
def bags(draw: Any) -> tuple[Any, ...]:
    """Rows and width of the table, and how many indices each bag has."""
    n, width = draw(st.integers(1, 30)), draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=9))
    return n, width, lengths, draw(st.integers(0, 99))


def _wanted(index: Any, table: Any, offsets: Any, mode: str, shares: Any, padding: Any) -> Any:
    rows = []
    for bag in np.split(np.arange(len(index)), offsets[1:]):
        kept = bag[index[bag] != padding]
        taken = table[index[kept]] * (1 if shares is None else shares[kept][:, None])
        empty = np.zeros(table.shape[1])
        rows.append(getattr(taken, mode)(0) if len(kept) else empty)
    return np.stack(rows)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
@pytest.mark.parametrize("padded", [True, False])
@given(drawn=bags())
def test_bags(dtype: Any, mode: str, padded: bool, drawn: Any) -> None:
    """Of any lengths, also none; with rows that are infinite or no numbers."""
    n, width, lengths, seed = drawn
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((n, width)).astype(dtype)
    table[rng.random((n, width)) < 0.02] = np.nan
    table[rng.random((n, width)) < 0.02] = np.inf
    index = rng.integers(0, n, sum(lengths))
    offsets = np.cumsum([0, *lengths[:-1]])
    shares = rng.standard_normal(len(index)).astype(dtype) if mode == "weighted" else None
    name, padding = "sum" if shares is not None else mode, n - 1 if padded else None
    got = KERNELS["embedding_bag"](index, table, offsets, name, shares, padding, False)
    if not len(index):
        assert got is NotImplemented
        return
    with np.errstate(all="ignore"):
        wide = shares if shares is None else shares.astype(np.float64)
        want = _wanted(index, table.astype(np.float64), offsets, name, wide, padding)
    assert (got.dtype, got.shape) == (dtype, want.shape)
    unit = 64 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got, want, rtol=unit, atol=unit)
    if len(set(lengths)) == 1:
        even = index.reshape(len(lengths), -1)
        given = None if shares is None else shares.reshape(even.shape)
        again = KERNELS["embedding_bag"](even, table, None, name, given, padding, False)
        np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("even", [True, False])
def test_gradients(mode: str, padding: int | None, even: bool) -> None:
    """Those of the derivative, as differences say."""
    table = cd.randn(6, 4, dtype=cd.float64, requires_grad=True)
    index = cd.tensor([5, 1, 3, 2, 4, 3, 0, 1])
    offsets = None if even else cd.tensor([0, 3, 3, 7])
    index = index.reshape(2, 4) if even else index
    shares = cd.rand(index.shape, dtype=cd.float64, requires_grad=True)

    def weighted(table: Any, shares: Any) -> Any:
        return F.embedding_bag(
            index, table, offsets, mode="sum", per_sample_weights=shares, padding_idx=padding
        )

    def plain(table: Any) -> Any:
        return F.embedding_bag(index, table, offsets, mode=mode, padding_idx=padding)

    # A row of the table that pads gets no gradient, though the others of its bag do not need it.
    arguments = (table, shares) if mode == "weighted" else (table,)
    assert cd.autograd.gradcheck(weighted if mode == "weighted" else plain, arguments)


def test_an_index_out_of_range_is_told() -> None:
    table = cd.ones(5, 8)
    for bad in (-1, 5):
        with pytest.raises(DimError, match=str(bad)):
            F.embedding_bag(cd.tensor([[0, 1, 2, 3, bad]]), table)


def test_large_ones_are_shared_among_threads(two_threads: None) -> None:
    rng = np.random.default_rng(0)
    table, index = rng.standard_normal((500, 64)), rng.integers(0, 500, (300, 40))
    got = KERNELS["embedding_bag"](index, table, None, "mean", None, None, False)
    np.testing.assert_allclose(got, table[index].mean(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [0, 2, 5000])
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
def test_no_bags_have_no_rows(mode: str, count: int) -> None:
    weight, index = cd.randn(50, 64, requires_grad=True), cd.randint(0, 50, (count,))
    shares = cd.rand(count, requires_grad=True) if mode == "weighted" else None
    out = cd.nn.functional.embedding_bag(
        index,
        weight,
        cd.zeros(0, dtype=cd.int64),
        mode="sum" if shares is not None else mode,
        per_sample_weights=shares,
    )
    assert out.shape == (0, 64)
    out.sum().backward()
    assert weight.grad is not None and not weight.grad.any()
    assert shares is None or (shares.grad is not None and shares.grad.shape == (count,))
