"""Norms along dimensions, distances of rows and running logarithms of sums against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS

import coredispatch as cd
from coredispatch_cpu_numba.kernels.linalg import distances as kernel
from coredispatch_cpu_numba.loops.linalg import distances as loops

pytestmark = pytest.mark.once
INF = float("inf")


def _drawn(dtype: Any, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _near(got: Any, want: np.ndarray, dtype: Any, units: float) -> None:
    assert got is not NotImplemented
    assert (got.dtype, got.shape) == (np.dtype(dtype), want.shape)
    unit = units * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got, want, rtol=unit, atol=unit)


# ---- norms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2.0, 1.0, INF])
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), keepdim=st.booleans())
def test_norms(dtype: Any, p: float, shape: list[int], keepdim: bool) -> None:
    x = _drawn(dtype, *shape)
    dims: list[Any] = [None, (), *[(d,) for d in range(-len(shape), len(shape))]]
    if len(shape) == 3:
        dims += [(0, 1), (2, 1)]
    for dim in dims:
        got = KERNELS["power_norm"](x, p, dim, keepdim)
        size = np.abs(x.astype(np.float64))
        if p == INF:
            want = size.max(dim or None, keepdims=keepdim)
        else:
            want = (size**p).sum(dim or None, keepdims=keepdim) ** (1 / p)
        # Sums of either order round once for each term; roundings of either sign grow as the root.
        terms = x.size / want.size if dtype == np.float64 else 0
        _near(got, want, dtype, 16 + terms**0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(70000,), (3, 50000), (50000, 3), (300, 400), (2, 300, 400)])
def test_large_norms(dtype: Any, shape: Any, two_threads: None) -> None:
    x = _drawn(dtype, *shape)
    for dim in (None, 0, len(shape) - 1):
        want = np.linalg.norm(x.astype(np.float64).reshape(shape), axis=dim)
        want = np.sqrt((x.astype(np.float64) ** 2).sum(dim))
        _near(KERNELS["power_norm"](x, 2.0, dim, False), want, dtype, 64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2.0, 1.0, INF])
def test_norms_of_odd_numbers(dtype: Any, p: float) -> None:
    x = _drawn(dtype, 30, 37)
    x[3, 5], x[4, 36], x[5, 0], x[7] = np.nan, -np.inf, np.inf, -0.0
    for dim in (0, 1):
        size = np.abs(x.astype(np.float64))
        want = size.max(dim) if p == INF else (size**p).sum(dim) ** (1 / p)
        got = KERNELS["power_norm"](x, p, dim, False)
        np.testing.assert_allclose(got, want, rtol=1e-5)
        assert not np.signbit(got[~np.isnan(got)]).any()
    tiny = np.full((100, 1), np.finfo(dtype).tiny, dtype)
    np.testing.assert_array_equal(KERNELS["power_norm"](-tiny, p, 1, True), tiny)


def test_names_of_norms() -> None:
    x = _drawn(np.float32, 20, 30)
    want = KERNELS["power_norm"](x, 2.0, 1, True)
    for p in (2, 2.0, None, "fro"):
        np.testing.assert_array_equal(KERNELS["norm"](x, p, 1, True, None), want)
    np.testing.assert_array_equal(KERNELS["linalg_vector_norm"](x, 2, 1, True, None), want)
    for p in ("nuc", 3, 0, -INF):
        assert KERNELS["norm"](x, p, 1, True, None) is NotImplemented
    assert KERNELS["linalg_vector_norm"](x, "fro", 1, True, None) is NotImplemented
    assert KERNELS["norm"](x, 2, 1, True, cd.float64) is NotImplemented
    assert KERNELS["power_norm"](x, 2.0, 2, True) is NotImplemented
    assert KERNELS["power_norm"](x.T, 2.0, 1, True) is NotImplemented


# ---- distances ----------------------------------------------------------------------------------


def _apart(x: np.ndarray, y: np.ndarray, p: float) -> np.ndarray:
    wide = x.astype(np.float64)[..., :, None, :] - y.astype(np.float64)[..., None, :, :]
    return np.linalg.norm(wide, p, -1)


SIZES = [(1, 1, 1), (5, 7, 3), (17, 16, 4), (3, 300, 6), (40, 65, 100), (2, 3, 600), (33, 513, 2)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2.0, 1.0, INF])
@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_distances(dtype: Any, p: float, lead: Any, n: int, m: int, d: int) -> None:
    x, y = _drawn(dtype, *lead, n, d), _drawn(dtype, *lead, m, d)
    _near(KERNELS["cdist"](x, y, p, None), _apart(x, y, p), dtype, 64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2.0, 1.0])
@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_gradients_of_distances(dtype: Any, p: float, lead: Any, n: int, m: int, d: int) -> None:
    x, y = _drawn(dtype, *lead, n, d), _drawn(dtype, *lead, m, d)
    y[..., 0, :] = x[..., 0, :]  # no distance, no gradient
    grad, norms = _drawn(dtype, *lead, n, m), _apart(x, y, p).astype(dtype)
    apart = x.astype(np.float64)[..., :, None, :] - y.astype(np.float64)[..., None, :, :]
    if p == 2:
        safe = np.where(norms == 0, 1.0, norms)
        slopes = apart * (grad / safe)[..., None]
    else:
        slopes = np.sign(apart) * grad.astype(np.float64)[..., None]
    got = KERNELS["cdist_backward"](grad, x, y, p, norms)
    _near(got, slopes.sum(-2), dtype, 256)


@pytest.mark.parametrize("p", [2.0, 1.0, INF])
def test_distances_of_odd_numbers(p: float) -> None:
    """As the differences have it, whose zeros fill up vectors."""
    x, y = _drawn(np.float32, 5, 4), _drawn(np.float32, 19, 4)
    x[0, 1], x[1, 2], y[3, 0], y[4] = np.nan, np.inf, -np.inf, x[2]
    got = KERNELS["cdist"](x, y, p, None)
    np.testing.assert_allclose(got, _apart(x, y, p), rtol=1e-5)
    assert got[2, 4] == 0


def test_large_distances_are_shared_among_threads(two_threads: None) -> None:
    x, y = _drawn(np.float32, 2, 100, 30), _drawn(np.float32, 2, 200, 30)
    _near(KERNELS["cdist"](x, y, 2.0, None), _apart(x, y, 2.0), np.float32, 64)


def test_pairs_of_rows() -> None:
    x = _drawn(np.float32, 30, 5)
    rows, columns = np.triu_indices(30, 1)
    want = _apart(x, x, 2.0)[rows, columns]
    _near(KERNELS["pdist"](x, 2.0), want, np.float32, 16)
    assert KERNELS["pdist"](x[:1], 2.0) is NotImplemented
    assert KERNELS["pdist"](x, 3.0) is NotImplemented
    t = cd.from_numpy(x).requires_grad_()
    (cd.nn.functional.pdist(t) * cd.from_numpy(want.astype(np.float32))).sum().backward()
    apart = x[:, None] - x[None]  # each slope is the difference over its length, times the length
    np.testing.assert_allclose(t.grad.numpy(), apart.sum(1), rtol=1e-4, atol=1e-4)


def test_what_is_left_to_others() -> None:
    x = _drawn(np.float32, 8, 4)
    assert KERNELS["cdist"](x, x, 3.0, None) is NotImplemented
    assert KERNELS["cdist"](x, x.T, 2.0, None) is NotImplemented
    assert KERNELS["cdist"](x, x[None], 2.0, None) is NotImplemented
    assert KERNELS["cdist"](x, x, 2.0, "donot_use_mm_for_euclid_dist") is NotImplemented
    assert KERNELS["cdist_backward"](x, x, x, INF, x) is NotImplemented


def test_groups_of_rows() -> None:
    assert kernel._ROWS == loops.ROWS


# ---- logcumsumexp -------------------------------------------------------------------------------

SHAPES = st.one_of(
    st.tuples(st.integers(1, 600)),
    st.tuples(st.integers(1, 20), st.integers(1, 300)),
    st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(1, 20)),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 2000.0])
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_logcumsumexp(dtype: Any, scale: float, shape: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * scale).astype(dtype)
    if seed % 3 == 0:
        x[rng.random(shape) < 0.2] = -np.inf
    if seed % 5 == 0:
        x[rng.random(shape) < 0.01] = np.inf
    if seed % 7 == 0:
        x[rng.random(shape) < 0.01] = np.nan
    for dim in range(-len(shape), len(shape)):
        with np.errstate(invalid="ignore"):
            want = np.logaddexp.accumulate(x.astype(np.longdouble), dim)
        got = KERNELS["logcumsumexp"](x, dim)
        # A result near zero is the difference of its largest term and a logarithm.
        unit = 8 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(
            got, want, rtol=unit, atol=unit * (8 if dtype is np.float64 else 1)
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_first_results_are_the_first_elements(dtype: Any) -> None:
    x = _drawn(dtype, 3, 40)
    for dim in (0, 1):
        first = np.take(KERNELS["logcumsumexp"](x, dim), 0, dim)
        np.testing.assert_allclose(first, np.take(x, 0, dim), rtol=4 * float(np.finfo(dtype).eps))


def test_long_ones_are_shared_among_threads(two_threads: None) -> None:
    x = _drawn(np.float32, 40, 300, 20)
    for dim in range(3):
        want = np.logaddexp.accumulate(x.astype(np.float64), dim)
        np.testing.assert_allclose(KERNELS["logcumsumexp"](x, dim), want, rtol=1e-6, atol=1e-6)
