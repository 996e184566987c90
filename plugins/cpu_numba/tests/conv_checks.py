"""Checks of kernels of convolution against NumPy's, in float64."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from pack_under_test import Reference

import coredispatch_cpu_numba as pack

__all__ = ["arrays", "check_special_values", "check_threads", "checked", "close"]


def arrays(dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def close(got: Any, want: np.ndarray, products: int) -> None:
    """What was computed in the dtype of ``got`` is the float64 sum of so many products."""
    assert got is not NotImplemented
    assert got.shape == want.shape
    unit = float(np.finfo(got.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=8 * unit, atol=unit * (products + 8))


def checked(
    kernels: Reference,
    reference: Reference,
    dtype: Any,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> set[str]:
    """A convolution, the transposed one, and the gradients; returns which kernels do not serve."""
    given, channels, kernel = w_shape[1], w_shape[0] // groups, w_shape[2:]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = zip(x_shape[2:], reach, stride, padding, strict=True)
    shape = x_shape[0], w_shape[0], *((n + 2 * p - k) // s + 1 for n, k, s, p in sizes)
    x, w, bias, grad, level = arrays(dtype, x_shape, w_shape, w_shape[:1], shape, x_shape[1:2])
    options, none = (stride, padding, dilation), (0,) * len(kernel)
    calls = {
        "convolution": ((x, w, bias, *options, False, none, groups), prod(kernel) * given + 1),
        "conv_input_grad": ((grad, w, x_shape, *options, groups), prod(kernel) * channels),
        "conv_weight_grad": (
            (grad, x, w_shape, *options, groups),
            shape[0] * prod(shape[2:]),
        ),
    }
    left = set()
    for name, (arguments, products) in calls.items():
        wide = [a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in arguments]
        got = kernels[name](*arguments)
        if got is NotImplemented:
            left.add(name)
        else:
            close(got, reference[name](*wide), products)
    sizes = zip(x_shape[2:], shape[2:], reach, stride, padding, strict=True)
    more = tuple(n - ((m - 1) * s - 2 * p + k) for n, m, k, s, p in sizes)
    if all(m < s for m, s in zip(more, stride, strict=True)):
        got = kernels["convolution"](grad, w, level, *options, True, more, groups)
        if got is NotImplemented:
            assert "conv_input_grad" in left
        else:
            wide_grad, wide_w = grad.astype(np.float64), w.astype(np.float64)
            want = reference["conv_input_grad"](wide_grad, wide_w, x_shape, *options, groups)
            want = want + level.astype(np.float64).reshape(-1, *[1] * len(kernel))
            close(got, want, prod(kernel) * channels + 1)
    return left


def check_special_values(
    kernels: Reference,
    reference: Reference,
    shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    step: int,
    groups: int,
) -> None:
    """NaN and infinities of inputs, weights and gradients are where NumPy's kernels have them."""
    x, w = arrays(np.float32, shape, w_shape)
    x[0, 1, 4, -1], x[0, 2, 0, 0], x[1, 3, 8, -1] = np.inf, np.nan, -np.inf
    x[0, 4, 0, -1], x[1, 0, 8, 0] = np.nan, np.inf
    w[1, 0, 1, 1] = 0
    options = ((step, step), (1, 1), (1, 1))
    more = (None, *options, False, (0, 0), groups)

    def agree(name: str, *arguments: Any) -> np.ndarray:
        wide = [a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in arguments]
        got, want = kernels[name](*arguments), reference[name](*wide)
        assert np.isfinite(want).any()
        assert not np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
        return got

    (grad,) = arrays(np.float32, agree("convolution", x, w, *more).shape)
    grad[0, 2, 0, 0] = 0
    agree("conv_weight_grad", grad, x, w_shape, *options, groups)
    grad[0, 1, 0, -1], grad[1, 4, -1, -1] = np.inf, np.nan
    w[0, 0, 0, 2], w[3, 0, 1, 1], w[5, 0, 2, 0] = np.inf, np.nan, -np.inf
    agree("conv_input_grad", grad, w, shape, *options, groups)


def check_threads(
    kernels: Reference, dtype: Any, x: tuple[int, ...], w: tuple[int, ...], groups: int
) -> None:
    """Results are the same bits for one and two threads; windows keep the size of a plane."""
    grad_shape = (x[0], w[0], *x[2:])
    given, weight, grad = arrays(dtype, x, w, grad_shape)
    options = ((1, 1), (1, 1), (1, 1))
    found = []
    for threads in (1, 2):
        pack.set_num_threads(threads)
        found.append(
            (
                kernels["convolution"](given, weight, None, *options, False, (0, 0), groups),
                kernels["conv_input_grad"](grad, weight, x, *options, groups),
                kernels["conv_weight_grad"](grad, given, w, *options, groups),
            )
        )
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
