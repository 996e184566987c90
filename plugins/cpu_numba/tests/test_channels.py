"""What works channel by channel: batch_norm, losses of positions, sums, pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pack_under_test import DTYPES, KERNELS, WHEN, Reference

import coredispatch as cd
from coredispatch.plugin import DimError, numpy_dtype

pytestmark = pytest.mark.once

TOLERANCE: dict[Any, float] = {np.float32: 2e-5, np.float64: 1e-12}


def close(ours: Any, theirs: Any, dtype: Any, factor: float = 1) -> None:
    tolerance = factor * TOLERANCE[dtype]
    scale = np.abs(np.nan_to_num(theirs)).max(initial=1.0)
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "shape",
    [(4, 8, 12, 12), (3, 5, 500), (2, 3, 7, 9, 61), (1, 2, 5000), (300, 5), (40, 333), (2, 64)],
)
def test_batch_norm(reference: Reference, shape: Any, affine: bool, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    channels = shape[1]
    x = (rng.standard_normal(shape) + 100).astype(dtype)  # the mean is far from 0
    weight, bias = (rng.random(channels).astype(dtype) if affine else None for _ in range(2))
    assert WHEN["batch_norm_train"](x, weight, bias, 1e-5)
    ours = KERNELS["batch_norm_train"](x, weight, bias, 1e-5)
    exact = [None if a is None else a.astype(np.float64) for a in (x, weight, bias)]
    theirs = reference["batch_norm_train"].fn(*exact, 1e-5)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == dtype
        close(a, b, dtype)
    _, mean, var = ours
    grad = rng.standard_normal(shape).astype(dtype)
    mean_grad, var_grad = (rng.standard_normal(channels).astype(dtype) for _ in range(2))
    given = (grad, mean_grad, var_grad, x, weight, mean, var)
    assert WHEN["batch_norm_train_backward"](*given, 1e-5)
    exact = [None if a is None else a.astype(np.float64) for a in given]
    for a, b in zip(
        KERNELS["batch_norm_train_backward"](*given, 1e-5),
        reference["batch_norm_train_backward"].fn(*exact, 1e-5),
        strict=True,
    ):
        close(a, b, dtype, 10)
    given = (x, mean, var, weight, bias)
    exact = [None if a is None else a.astype(np.float64) for a in given]
    close(
        KERNELS["batch_norm_inference"](*given, 1e-5),
        reference["batch_norm_inference"].fn(*exact, 1e-5),
        dtype,
        10,
    )


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("spatial", [(20, 31), ()])
def test_batch_norm_of_half_precision(name: str, spatial: tuple[int, ...]) -> None:
    """As of the same numbers in float32, rounded once; what is per channel is float32."""
    rng, dtype = np.random.default_rng(0), numpy_dtype(getattr(cd, name))
    x, grad = (rng.standard_normal((30, 5, *spatial)).astype(dtype) for _ in range(2))
    weight, bias, of_mean, of_var = rng.random((4, 5)).astype(np.float32)
    wide, wide_grad = x.astype(np.float32), grad.astype(np.float32)
    train, back, inference = (
        KERNELS[f"batch_norm_{kind}"] for kind in ("train", "train_backward", "inference")
    )
    ours, theirs = train(x, weight, bias, 1e-5), train(wide, weight, bias, 1e-5)
    _, mean, var = theirs
    given = (of_mean, of_var)
    pairs = [
        (ours, theirs),
        (
            back(grad, *given, x, weight, mean, var, 1e-5),
            back(wide_grad, *given, wide, weight, mean, var, 1e-5),
        ),
        (
            [inference(x, mean, var, weight, bias, 1e-5)],
            [inference(wide, mean, var, weight, bias, 1e-5)],
        ),
    ]
    for found, wanted in pairs:
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert a.dtype == (np.float32 if i else dtype)
            step = 0 if i else 2.0 ** (-8 if name == "bfloat16" else -11)
            np.testing.assert_allclose(
                a.astype(np.float32), b, rtol=step + 1e-5, atol=1e-5 * np.abs(b).max()
            )
    assert WHEN["batch_norm_train"](x, weight, bias, 1e-5)
    assert not WHEN["batch_norm_train"](x, weight.astype(dtype), bias, 1e-5)


def test_batch_norm_of_special_values() -> None:
    """A NaN or an infinity spoils its own channel, the variance included, and no other."""
    for spatial in ((300,), ()):
        x = np.ones((40, 3, *spatial), np.float32)
        x[0, 0], x[1, 1] = np.nan, np.inf
        out, mean, var = KERNELS["batch_norm_train"](x, None, None, 1e-5)
        assert np.isnan(out[:, :2]).all()
        assert np.isnan(var[:2]).all()
        assert np.isnan(mean[0])
        np.testing.assert_array_equal(out[:, 2], 0)
        assert (mean[2], var[2]) == (1, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_means_of_planes(reference: Reference, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    pool = KERNELS["adaptive_avg_pool"]
    cases: list[Any] = [((4, 8, 12, 12), (1, 1)), ((3, 50, 70), (1,)), ((2, 3, 4, 5, 6), (1,) * 3)]
    for shape, size in [*cases, ((2, 3, 4, 5, 6), (2, 1))]:
        x = rng.standard_normal(shape).astype(dtype)
        found = pool(x, size)
        assert found.dtype == dtype and found.shape == (*shape[: -len(size)], *size)
        close(found, reference["adaptive_avg_pool"].fn(x.astype(np.float64), size), dtype)
    assert pool(x, (2, 1, 1)) is NotImplemented


@settings(max_examples=40)
@given(
    rows=st.integers(2, 40),
    columns=st.integers(2, 40),
    seed=st.integers(0, 1000),
    values=st.sampled_from(["any", "ties", "nan", "lowest"]),
    options=st.one_of(
        st.just(((2, 2), (2, 2), (0, 0), (1, 1), False)),
        st.tuples(
            *(st.tuples(n, n) for n in (st.integers(2, 4), st.integers(1, 3))),
            *(st.tuples(n, n) for n in (st.integers(0, 1), st.integers(1, 2))),
            st.booleans(),
        ),
    ),
    dtype=st.sampled_from(DTYPES),
)
def test_the_first_maximum_gets_the_gradient(
    reference: Reference, rows: int, columns: int, seed: int, values: str, options: Any, dtype: Any
) -> None:
    """Of windows of any size, which may overlap, reach into padding, or leave elements out."""
    rng = np.random.default_rng(seed)
    planes = -(-1024 // (rows * columns))
    x = rng.standard_normal((planes, rows, columns)).astype(dtype)
    if values != "any":
        x = np.round(x)
    if values in ("nan", "lowest"):
        x[rng.random(x.shape) < 0.4] = np.nan if values == "nan" else -np.inf
    try:
        pooled = reference["max_pool"].fn(x, *options)
    except ValueError:
        assume(False)  # no window fits
    np.testing.assert_array_equal(KERNELS["max_pool"](x, *options), pooled)
    # Whole numbers: their sums are the same in every order.
    grad = rng.integers(-9, 9, pooled.shape).astype(dtype)
    ours = KERNELS["max_pool_backward"](grad, x, *options)
    theirs = reference["max_pool_backward"].fn(grad, x, *options)
    np.testing.assert_array_equal(ours, theirs)


def test_windows_of_other_sizes_are_left_to_numpy() -> None:
    x, grad = np.ones((4, 17, 17), np.float32), np.ones((4, 9, 9), np.float32)
    kernel, pool = KERNELS["max_pool_backward"], KERNELS["max_pool"]
    two, none, one = (2, 2), (0, 0), (1, 1)
    assert pool(x, (30, 30), two, none, one, False) is NotImplemented
    assert pool(x, (3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3, False) is NotImplemented
    assert pool(x, two, (2,), none, one, True) is NotImplemented
    assert pool(x.T, two, two, none, one, False) is NotImplemented
    assert kernel(grad, x, two, two, none, one, False) is NotImplemented  # a shape that is wrong
    assert kernel(grad, x, two, two, none, one, True) is not NotImplemented
    assert kernel(grad, x, (5, 5), two, none, one, False) is NotImplemented
    assert kernel(grad[:3], x, two, two, none, one, True) is NotImplemented
    assert kernel(grad, x, (3,), (2,), (1,), (1,), False) is NotImplemented
    assert kernel(grad, x, two, (2,), none, one, True) is NotImplemented


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_positions(reference: Reference, reduction: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 9, 11)).astype(dtype)
    target = rng.integers(0, 7, (3, 9, 11))
    target[0, 0, :3] = -100
    x[0, :, 0, 0] = np.nan  # does not count
    options = (target, None, -100, reduction, 0.0)
    assert WHEN["cross_entropy"](x, *options)
    wide = x.astype(np.float64)
    loss = reference["cross_entropy"].fn(np.nan_to_num(wide), *options)
    close(KERNELS["cross_entropy"](x, *options), loss, dtype)
    grad = np.asarray(rng.standard_normal(loss.shape), dtype)
    exact = reference["cross_entropy_backward"].fn(
        grad.astype(np.float64), np.nan_to_num(wide), *options
    )
    assert WHEN["cross_entropy_backward"](grad, x, *options)
    close(KERNELS["cross_entropy_backward"](grad, x, *options), exact, dtype)
    for outside in (7, -1):
        target[1, 2, 3] = outside
        with pytest.raises(DimError, match=f"target {outside} is out of bounds for 7 classes"):
            KERNELS["cross_entropy"](x, *options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_around_a_dimension(dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 8, 20)).astype(dtype)
    for name, function in (("sum", np.sum), ("mean", np.mean)):
        for dims in ((0, 2, 3), (3, 0, -2), (0, 2)):
            for keepdim in (False, True):
                ours = KERNELS[name](x, dims, keepdim, None)
                close(ours, function(x.astype(np.float64), dims, keepdims=keepdim), dtype)
    assert KERNELS["sum"](x, (0, 1, 1), False, None) is NotImplemented
    assert KERNELS["sum"](x, (0, 2, 9), False, None) is NotImplemented
