"""Checks of kernels of convolution against NumPy's, in float64."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from pack_under_test import Reference

__all__ = ["arrays", "checked", "close"]


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
