"""The kernels against the embedded NumPy kernels, on raw arrays of every kind of shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pack_under_test import DTYPES, KERNELS, Reference

from coredispatch_cpu_numba.kernels.elementwise.pointwise import BINARY, COMPARISON, UNARY

pytestmark = pytest.mark.once

SHAPES = [(1,), (17,), (300, 31), (4, 37, 50), (2, 3, 129), (70_001,), (40_000, 3), (3, 5000)]


def agree(reference: Reference, name: str, *args: Any, scale: float = 1.0) -> None:
    """Both kernels on copies of ``args``: dtype, shape and values."""
    got, want = KERNELS[name](*args), reference[name](*args)
    if not isinstance(got, tuple):
        got, want = (got,), (want,)
    for ours, theirs in zip(got, want, strict=True):
        theirs = np.asarray(theirs)
        assert type(ours) is np.ndarray
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        unit = float(np.finfo(args[0].dtype).eps)
        tolerance = {"rtol": 64 * unit, "atol": 16 * unit * scale}
        np.testing.assert_allclose(ours, theirs, **tolerance, err_msg=name)


def normal(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, "gelu", "leaky_relu"])
def test_unary(reference: Reference, name: str, dtype: Any) -> None:
    options = {"gelu": ("none", "tanh"), "leaky_relu": (0.01, 1.5)}.get(name)
    for shape in SHAPES:
        x = normal(shape, dtype)
        x = np.abs(x) + dtype(0.1) if name in ("log", "sqrt", "rsqrt") else x
        for option in options or (None,):
            agree(reference, name, x, *(() if option is None else (option,)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*BINARY, *COMPARISON])
def test_binary(reference: Reference, name: str, dtype: Any) -> None:
    for shape in SHAPES:
        x, y = normal(shape, dtype), normal(shape, dtype, 1)
        agree(reference, name, x, y)
        if name.endswith("backward"):
            continue
        for number in (0.7, 3, -2):
            agree(reference, name, x, number)
        if name in BINARY:
            agree(reference, name, x, y.reshape(-1, shape[-1])[0].copy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_with_parameter(reference: Reference, dtype: Any) -> None:
    for shape in SHAPES:
        grad, x = normal(shape, dtype), normal(shape, dtype, 1)
        agree(reference, "threshold_backward", grad, x, 0)
        agree(reference, "threshold_backward", grad, x, 0.3)
        for form in ("none", "tanh"):
            agree(reference, "gelu_backward", grad, x, form)


EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pair_of_special_values(reference: Reference, dtype: Any) -> None:
    """Bit for bit what NumPy gives, the sign of zero included."""
    left, right = (a.ravel().astype(dtype) for a in np.meshgrid(EDGES, EDGES))
    for name in [*BINARY, *COMPARISON]:
        if name.endswith("backward"):
            continue
        with np.errstate(all="ignore"):
            got, want = KERNELS[name](left, right), reference[name](left, right)
        np.testing.assert_array_equal(got, want, name)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]), name)


REDUCTIONS = [
    ((300, 31), [None, (0,), (1,), (-1,), (0, 1), (-2, -1)]),
    ((4, 37, 50), [None, (0,), (1,), (2,), (1, 2), (2, 1), (0, 1)]),
    ((70_001,), [None, (0,)]),
    ((40_000, 3), [(0,), (1,)]),
    ((5, 300, 7), [(1,)]),
    ((3, 5000), [(0,), (1,)]),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dims"), REDUCTIONS)
def test_reductions(reference: Reference, dtype: Any, shape: Any, dims: Any) -> None:
    x = normal(shape, dtype)
    for dim in dims:
        for keepdim in (False, True):
            agree(reference, "sum", x, dim, keepdim, None, scale=x.size)
            agree(reference, "mean", x, dim, keepdim, None, scale=4)
            agree(reference, "amax", x, dim or (), keepdim)
            agree(reference, "amin", x, dim or (), keepdim)
            if dim is None or len(dim) == 1:
                one = None if dim is None else dim[0]
                agree(reference, "argmax", x, one, keepdim)
                agree(reference, "argmin", x, one, keepdim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(reference: Reference, dtype: Any) -> None:
    x = 1 + normal((50, 300), dtype) * dtype(1e-3)
    agree(reference, "prod", x, (1,), False, None, scale=300)
    agree(reference, "prod", x, None, True, None, scale=300)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_is_accurate(dtype: Any) -> None:
    """A biased sum keeps its digits: the error does not grow with the number of elements."""
    x = np.random.default_rng(3).random(2_000_000).astype(dtype)
    exact = np.add.reduce(x, dtype=np.longdouble)
    unit = np.spacing(dtype(exact))
    for view, dim in ((x, None), (x.reshape(-1, 2), (0,)), (x.reshape(-1, 1000), (0,))):
        total = np.add.reduce(KERNELS["sum"](view, dim, False, None), None, np.longdouble)
        assert abs(total - exact) <= 256 * unit


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_with_nan_and_ties(reference: Reference, dtype: Any) -> None:
    for shape in ((300,), (9000,), (20, 65), (65, 20)):
        x = np.random.default_rng(1).integers(0, 5, shape).astype(dtype)
        flat = x.reshape(-1)
        for places in ([], [3], [150, 299], [0, 7]):
            flat[places] = np.nan
            for dim in range(len(shape)):
                for name in ("argmax", "argmin"):
                    agree(reference, name, x, dim, False)
                for name in ("amax", "amin"):
                    agree(reference, name, x, (dim,), False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 1000), (300, 7), (4, 21, 130), (1, 9000), (6, 5, 3)])
def test_softmax(reference: Reference, dtype: Any, shape: Any) -> None:
    x, grad = normal(shape, dtype) * 3, normal(shape, dtype, 1)
    for dim in range(-1, len(shape)):
        for name in ("softmax", "log_softmax"):
            agree(reference, name, x, dim, None)
            out = reference[name](x, dim, None)
            agree(reference, f"{name}_backward", grad, out, dim, scale=8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_infinities(reference: Reference, dtype: Any) -> None:
    x = normal((6, 40), dtype)
    x[0, 3] = -np.inf
    x[1, 4] = np.inf
    x[2] = -np.inf
    x[3, 5] = np.nan
    x[4] = 1e4
    for array, dim in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        for name in ("softmax", "log_softmax"):
            agree(reference, name, array, dim, None)


NORMS = [((300, 31), (31,)), ((40, 12, 13), (12, 13)), ((40, 12, 13), (13,)), ((3, 5000), (5000,))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "over"), NORMS)
def test_normalization(reference: Reference, dtype: Any, shape: Any, over: Any) -> None:
    x, grad = normal(shape, dtype) + dtype(0.3), normal(shape, dtype, 1)
    weight, bias = normal(over, dtype, 2), normal(over, dtype, 3)
    rows = x.size // bias.size
    for w, b in ((weight, bias), (weight, None), (None, bias), (None, None)):
        agree(reference, "layer_norm", x, over, w, b, 1e-5, scale=4)
        agree(reference, "layer_norm_backward", grad, x, over, w, 1e-5, scale=8 * rows)
        agree(reference, "rms_norm", x, over, w, None, scale=4)
        agree(reference, "rms_norm_backward", grad, x, over, w, 1e-6, scale=8 * rows)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_of_constant_rows(dtype: Any) -> None:
    """No spread is not confused with the rounding of a large mean."""
    x = np.full((8, 300), 12345.678, dtype)
    out = KERNELS["layer_norm"](x, (300,), None, None, 1e-12)
    np.testing.assert_array_equal(out, np.zeros_like(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [10, 300, 5000])
def test_cross_entropy(reference: Reference, dtype: Any, classes: int) -> None:
    logits = normal((40, classes), dtype) * 3
    target = np.random.default_rng(5).integers(0, classes, 40)
    some_ignored = target.copy()
    some_ignored[::7] = -100
    for wanted in (target, some_ignored):
        for reduction in ("mean", "sum", "none"):
            options = (wanted, None, -100, reduction, 0.0)
            agree(reference, "cross_entropy", logits, *options, scale=40)
            grad = normal((40,) if reduction == "none" else (), dtype) * np.ones(1, dtype)
            grad = grad.reshape(() if reduction != "none" else (40,))
            agree(reference, "cross_entropy_backward", grad, logits, *options)


def test_cross_entropy_of_a_class_out_of_range() -> None:
    logits = normal((40, 50), np.float32)
    for wrong in (50, -1):
        target = np.zeros(40, np.int64)
        target[17] = wrong
        with pytest.raises(IndexError, match=str(wrong)):
            KERNELS["cross_entropy"](logits, target, None, -100, "mean", 0.0)
        with pytest.raises(IndexError, match=str(wrong)):
            grad = np.ones((), np.float32)
            KERNELS["cross_entropy_backward"](grad, logits, target, None, -100, "mean", 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_optimizer_steps(reference: Reference, dtype: Any, maximize: bool, decay: float) -> None:
    arrays = [normal((1000,), dtype, seed) for seed in range(3)]
    if not decay:  # 0 times an infinity would be NaN
        arrays[0][::7] = np.inf
    square = np.random.default_rng(9).random(1000).astype(dtype)

    def check(name: str, state: list[np.ndarray], *options: Any) -> None:
        ours, theirs = [a.copy() for a in state], [a.copy() for a in state]
        missing = [None] * (5 - len(state)) if name == "adam_step" else [None] * (3 - len(state))
        assert KERNELS[name](*ours, *missing, *options) is None
        reference[name](*theirs, *missing, *options)
        unit = float(np.finfo(dtype).eps)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=64 * unit, atol=16 * unit)

    for decoupled in (False, True):
        options = (3, 1e-2, 0.9, 0.999, 1e-8, decay, decoupled, maximize)
        check("adam_step", [*arrays, square], *options)
    for nesterov, first in ((False, False), (False, True), (True, False), (True, True)):
        options = (1e-2, 0.9, 0.0 if nesterov else 0.1, decay, nesterov, maximize, first)
        check("sgd_step", arrays, *options)
    check("sgd_step", arrays[:2], 1e-2, 0.0, 0.0, decay, False, maximize, False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_steps_of_adam(dtype: Any) -> None:
    """From nothing: there is no old average for the rounding of 1 - 0.999 to hide in."""
    rng, unit = np.random.default_rng(0), float(np.finfo(dtype).eps)
    param, mean, square = rng.normal(size=100).astype(dtype), *np.zeros((2, 100), dtype)
    wide, first, second = param.astype(np.longdouble), *np.zeros((2, 100), np.longdouble)
    for step in range(1, 4):
        grad = rng.normal(size=100).astype(dtype)
        KERNELS["adam_step"](
            param, grad, mean, square, None, step, 0.1, 0.9, 0.999, 1e-8, 0.0, False, False
        )
        g = grad.astype(np.longdouble)
        first = first * 0.9 + g * (1 - 0.9)
        second = second * 0.999 + g * g * (1 - 0.999)
        root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        wide = wide - 0.1 * first / (1 - 0.9**step) / root
    np.testing.assert_allclose(mean, first, rtol=8 * unit, atol=unit)
    np.testing.assert_allclose(square, second, rtol=8 * unit)
    np.testing.assert_allclose(param, wide, rtol=8 * unit, atol=8 * unit)


@settings(max_examples=150)
@given(
    x=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
        elements=st.floats(-50, 50, width=32),
    ),
    data=st.data(),
)
def test_any_array(reference: Reference, x: np.ndarray, data: st.DataObject) -> None:
    """Whatever hypothesis thinks of: one unary, one reduction, one softmax."""
    name = data.draw(st.sampled_from(["exp", "tanh", "sigmoid", "silu", "erf", "relu", "square"]))
    agree(reference, name, x)
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    agree(
        reference, data.draw(st.sampled_from(["amax", "amin"])), x, (dim,), data.draw(st.booleans())
    )
    agree(reference, "sum", x, (dim,), False, None, scale=50 * x.shape[dim])
    agree(reference, "softmax", x, dim, None)
