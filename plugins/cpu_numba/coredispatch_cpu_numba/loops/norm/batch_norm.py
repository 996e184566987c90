"""Batch statistics of channels, and what is normalized by them. Counts channels.

An array is seen as ``(images, channels, n)``. Sums are taken by rows of ``n`` elements and carried
in float64 from row to row. The variance is the mean of squared deviations from the mean, which a
second pass corrects for what rounding left of the mean, as in ``loops/norm/layer_norms.py``. Rows
of half precision are widened one at a time; vectors of one number per channel are then float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.layout import BLOCK
from coredispatch_cpu_numba.loops.norm.layer_norms import deviations_of
from coredispatch_cpu_numba.loops.reduction.sums import total_of
from coredispatch_cpu_numba.spans import floats, item, part, put, row_of

__all__ = ["LOOPS"]

_reducing = compiled(fastmath=set(REDUCTION), forceinline=True)


def _train(char: str) -> Callable[..., None]:
    T, total, sums = elementary[char].T, total_of(char), deviations_of(char)

    def loop(x, weight, bias, channels, n, eps, out, means, variances, lo, hi):
        full_vectors()
        images = x.size // (channels * n)
        share = 1.0 / (images * n)
        room = np.empty(n, means.dtype)
        for c in range(lo, hi):
            whole = 0.0
            for i in range(images):
                whole += total(floats(row_of(x, i * channels + c, n), room))
            mean = T(whole * share)
            plain, squares = 0.0, 0.0
            for i in range(images):
                p, s = sums(floats(row_of(x, i * channels + c, n), room), mean)
                plain += p
                squares += s
            rest = plain * share
            variance = max(squares * share - rest * rest, 0.0)
            if variance != variance:  # max() of a NaN is its other argument
                variance = squares
            shift = T(rest)
            factor, level = T(1.0 / math.sqrt(variance + eps)) * weight[c], bias[c]
            means[c], variances[c] = mean + shift, variance
            for i in range(images):
                row = row_of(x, i * channels + c, n)
                result = row_of(out, i * channels + c, n)
                for j in range(n):
                    put(result, j, ((item(row, j) - mean) - shift) * factor + level)

    return loop


def _products(char: str) -> Callable[..., Any]:
    """A compiled function: sums of ``g`` and of ``g`` times the deviations from a mean."""
    zero = elementary[char].T(0.0)

    @_reducing
    def block_sums(g, row, mean):
        given, along = zero, zero
        for j in range(row.size):
            given += g[j]
            along += g[j] * (row[j] - mean)
        return given, along

    @inlined
    def sums(g, row, mean):
        n = row.size
        given, along = 0.0, 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            p, a = block_sums(part(g, start, stop), part(row, start, stop), mean)
            given += np.float64(p)
            along += np.float64(a)
        return given, along

    return sums


def _train_backward(char: str) -> Callable[..., None]:
    """``a grad + b (x - mean) + c`` for each channel."""
    T, products = elementary[char].T, _products(char)

    def loop(
        grad, mean_grad, var_grad, x, weight, means, variances, channels, n, eps, out, weight_grad,
        bias_grad, lo, hi,
    ):  # fmt: skip
        full_vectors()
        images = x.size // (channels * n)
        share = 1.0 / (images * n)
        room, other = np.empty(n, means.dtype), np.empty(n, means.dtype)
        for c in range(lo, hi):
            mean = means[c]
            given, along = 0.0, 0.0
            for i in range(images):
                g, row = row_of(grad, i * channels + c, n), row_of(x, i * channels + c, n)
                p, s = products(floats(g, room), floats(row, other), mean)
                given += p
                along += s
            scale = 1.0 / math.sqrt(np.float64(variances[c]) + eps)
            bias_grad[c], weight_grad[c] = given, along * scale
            slope = scale * np.float64(weight[c])
            of_deviation = (2.0 * np.float64(var_grad[c]) - slope * scale * scale * along) * share
            of_all = (np.float64(mean_grad[c]) - slope * given) * share
            a, b, level = T(slope), T(of_deviation), T(of_all)
            for i in range(images):
                g, row = row_of(grad, i * channels + c, n), row_of(x, i * channels + c, n)
                result = row_of(out, i * channels + c, n)
                for j in range(n):
                    put(result, j, (item(row, j) - mean) * b + level + item(g, j) * a)

    return loop


def _inference(char: str) -> Callable[..., None]:
    """``(x - mean) factor + bias``; counts images times channels."""

    def loop(x, means, factors, bias, channels, n, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            c = r % channels
            mean, factor, level = means[c], factors[c], bias[c]
            row, result = row_of(x, r, n), row_of(out, r, n)
            for j in range(n):
                put(result, j, (item(row, j) - mean) * factor + level)

    return loop


LOOPS: dict[str, Loop] = {
    "inference": Loop("awwwnna", _inference, dtypes="fdEe"),
    "train": Loop("awwnneaww", _train, dtypes="fdEe"),
    "train_backward": Loop("awwawwwnneaww", _train_backward, dtypes="fdEe"),
}
