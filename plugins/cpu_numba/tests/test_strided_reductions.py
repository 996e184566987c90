"""Sums, extremes, norms and scans of arrays that are not contiguous, and over dimensions apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

import coredispatch as cd
from coredispatch_cpu_numba.layout import runs, spread

pytestmark = pytest.mark.once
Strided = Callable[[np.ndarray], np.ndarray]

ORDERS: dict[str, Strided] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.transpose()).transpose(),
    "channels last": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1),
    "slice of rows": lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
    "every second": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "every second row": lambda x: np.repeat(x, 2, -2)[..., ::2, :],
    "window": lambda x: np.pad(x, 1)[(slice(1, -1),) * x.ndim],
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
}


def _dims(ndim: int) -> list[Any]:
    return [None, *(c for n in range(1, ndim + 1) for c in combinations(range(ndim), n))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(40, 70), (9, 13, 40), (600, 3, 5), (70, 1, 30)])
def test_reductions(dtype: Any, order: str, shape: Any) -> None:
    x = ORDERS[order](np.random.default_rng(0).standard_normal(shape).astype(dtype))
    t = cd.from_numpy(x) if order != "backwards" else cd.from_numpy(x.copy())
    unit = 64 * float(np.finfo(dtype).eps)
    functions: dict[str, Any] = {
        "sum": np.sum,
        "mean": np.mean,
        "amax": np.max,
        "norm": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    }
    for dim in _dims(len(shape)):
        for keepdim in (False, True):
            for name, function in functions.items():
                want = function(x.astype(np.float64), axis=dim, keepdims=keepdim)
                options = (2, dim, keepdim) if name == "norm" else (dim or (), keepdim)
                found = [getattr(cd, name)(t, *options).numpy()]
                if name in ("sum", "mean"):
                    found.append(KERNELS[name](x, dim, keepdim))
                for got in found:
                    if got is NotImplemented:
                        continue
                    assert (got.dtype, got.shape) == (np.dtype(dtype), want.shape)
                    np.testing.assert_allclose(got, want, rtol=unit, atol=unit * 10)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans(order: str, name: str) -> None:
    x = ORDERS[order](np.random.default_rng(0).standard_normal((9, 13, 40)))
    t = cd.from_numpy(x) if order != "backwards" else cd.from_numpy(x.copy())
    for dim in range(-3, 3):
        want = getattr(cd, name)(cd.from_numpy(x.copy()), dim)
        cd.testing.assert_close(getattr(cd, name)(t, dim), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_large_sums_are_shared_among_threads(dtype: Any, order: str, two_threads: None) -> None:
    x = ORDERS[order](np.random.default_rng(0).standard_normal((70, 40, 50)).astype(dtype))
    unit = 256 * float(np.finfo(dtype).eps)
    for dim in _dims(3):
        for name in ("sum", "mean"):
            got = KERNELS[name](x, dim, False)
            if got is not NotImplemented:
                want = getattr(np, name)(x.astype(np.float64), axis=dim)
                np.testing.assert_allclose(got, want, rtol=unit, atol=unit * 10)


@pytest.mark.parametrize("order", ["transposed", "slice of rows", "every second row"])
def test_the_pack_sums_them_itself(order: str) -> None:
    x = ORDERS[order](np.ones((40, 70), np.float32))
    for dim in (None, (0,), (1,), (0, 1)):
        assert KERNELS["sum"](x, dim, False) is not NotImplemented


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_spans_are_the_memory(shape: list[int], seed: int, data: Any) -> None:
    """The elements that spans lead to are those of the array, each once, in the order told."""
    rng = np.random.default_rng(seed)
    wide = np.arange(int(np.prod([n + 2 for n in shape]))).reshape([n + 2 for n in shape])
    x = wide[tuple(slice(1, 1 + n) if rng.random() < 0.5 else slice(n) for n in shape)]
    x = x.transpose(rng.permutation(len(shape)))
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    spans = spread(x.shape, x.strides, x.itemsize, dims)
    if spans is None:
        return
    places = np.zeros((), np.int64)
    for _, count, step, _ in spans:
        places = places[..., None] + np.arange(count) * step
    start = int(x[(0,) * x.ndim])
    assert sorted(start + places.reshape(-1)) == sorted(x.reshape(-1))
    kept = places.sum(tuple(i for i, span in enumerate(spans) if span[0] == "+"))
    over = int(np.prod([span[1] for span in spans if span[0] == "+"]))
    np.testing.assert_array_equal((kept + start * over).reshape(-1), x.sum(dims).reshape(-1))


def test_runs() -> None:
    assert runs(4, (1, 3)) == ((3,), (1,))
    assert runs(5, (0, 1, -1, 3)) == ((3, 4), (0, 1))
    for dims in ((1, 2), (1,), (1, 1), (1, 4), (), 2, None):
        assert runs(4, dims) is None
