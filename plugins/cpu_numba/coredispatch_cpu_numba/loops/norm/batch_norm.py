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

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.layout import BLOCK, COLUMNS
from coredispatch_cpu_numba.loops.norm.layer_norms import deviations_of
from coredispatch_cpu_numba.loops.reduction.sums import total_of
from coredispatch_cpu_numba.spans import fill, floats, item, part, put, row_of

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


def _factors_of(char: str) -> Any:
    """A compiled ``factors(variances, weight, eps, into)``: what deviations are multiplied by."""
    T = elementary[char].T
    one = T(1.0)

    @compiled(fastmath={"contract"})
    def factors(variances, weight, eps, into):
        full_vectors()
        least = T(eps)
        for c in range(into.size):
            into[c] = one / math.sqrt(item(variances, c) + least) * item(weight, c)

    return factors


def _inference(char: str) -> Callable[..., None]:
    """``(x - mean) factor + bias``; counts images times channels."""
    factors_of = _factors_of(char)

    def loop(x, means, variances, weight, bias, channels, n, eps, out, lo, hi):
        full_vectors()
        factors = np.empty(channels, means.dtype)
        factors_of(variances, weight, eps, factors)
        for r in range(lo, hi):
            c = r % channels
            mean, factor, level = means[c], factors[c], bias[c]
            row, result = row_of(x, r, n), row_of(out, r, n)
            for j in range(n):
                put(result, j, (item(row, j) - mean) * factor + level)

    return loop


# ---- one element of each channel of an image: sums go down the columns. Counts tiles of them ---


def _train_flat(char: str) -> Callable[..., None]:
    T, reserve = elementary[char].T, stack_words(COLUMNS)

    def loop(x, weight, bias, channels, eps, out, means, variances, lo, hi):
        full_vectors()
        images = x.size // channels
        share = 1.0 / images
        plain, squares = (
            array_at(reserve(), COLUMNS, np.float64), array_at(reserve(), COLUMNS, np.float64),
        )  # fmt: skip
        for tile in range(lo, hi):
            left = tile * COLUMNS
            width = min(COLUMNS, channels - left)
            mean, variance = part(means, left, left + width), part(variances, left, left + width)
            slope, level = part(weight, left, left + width), part(bias, left, left + width)
            fill(plain, 0.0)
            for i in range(images):
                row = part(x, i * channels + left, i * channels + left + width)
                for j in range(width):
                    plain[j] += np.float64(item(row, j))
            for j in range(width):
                mean[j] = T(plain[j] * share)
            fill(plain, 0.0)
            fill(squares, 0.0)
            for i in range(images):
                row = part(x, i * channels + left, i * channels + left + width)
                for j in range(width):
                    away = np.float64(item(row, j) - mean[j])
                    plain[j] += away
                    squares[j] += away * away
            for j in range(width):
                rest = plain[j] * share
                found = squares[j] * share - rest * rest
                found = choose(found < 0.0, 0.0, found)
                plain[j] = rest
                squares[j] = 1.0 / math.sqrt(found + eps)
                variance[j] = T(found)
            for i in range(images):
                at = i * channels + left
                row, result = part(x, at, at + width), part(out, at, at + width)
                for j in range(width):
                    factor = T(squares[j]) * slope[j]
                    put(result, j, ((item(row, j) - mean[j]) - T(plain[j])) * factor + level[j])
            for j in range(width):
                mean[j] += T(plain[j])

    return loop


def _train_flat_backward(char: str) -> Callable[..., None]:
    T, reserve = elementary[char].T, stack_words(COLUMNS)

    def loop(
        grad, mean_grad, var_grad, x, weight, means, variances, channels, eps, out, weight_grad,
        bias_grad, lo, hi,
    ):  # fmt: skip
        full_vectors()
        images = x.size // channels
        share = 1.0 / images
        given, along = (
            array_at(reserve(), COLUMNS, np.float64), array_at(reserve(), COLUMNS, np.float64),
        )  # fmt: skip
        slopes = array_at(reserve(), COLUMNS, np.float64)
        for tile in range(lo, hi):
            left = tile * COLUMNS
            width = min(COLUMNS, channels - left)
            mean = part(means, left, left + width)
            fill(given, 0.0)
            fill(along, 0.0)
            for i in range(images):
                at = i * channels + left
                g, row = part(grad, at, at + width), part(x, at, at + width)
                for j in range(width):
                    one = item(g, j)
                    given[j] += np.float64(one)
                    along[j] += np.float64(one * (item(row, j) - mean[j]))
            for j in range(width):
                c = left + j
                scale = 1.0 / math.sqrt(np.float64(variances[c]) + eps)
                bias_grad[c], weight_grad[c] = T(given[j]), T(along[j] * scale)
                slope = scale * np.float64(weight[c])
                away = 2.0 * np.float64(var_grad[c]) - slope * scale * scale * along[j]
                slopes[j], along[j] = slope, away * share
                given[j] = (np.float64(mean_grad[c]) - slope * given[j]) * share
            for i in range(images):
                at = i * channels + left
                g, row = part(grad, at, at + width), part(x, at, at + width)
                result = part(out, at, at + width)
                for j in range(width):
                    other = (item(row, j) - mean[j]) * T(along[j]) + T(given[j])
                    put(result, j, other + item(g, j) * T(slopes[j]))

    return loop


def _inference_flat(char: str) -> Callable[..., None]:
    """``(x - mean) factor + bias``; counts images."""
    factors_of = _factors_of(char)

    def loop(x, means, variances, weight, bias, channels, eps, out, lo, hi):
        full_vectors()
        factors = np.empty(channels, means.dtype)
        factors_of(variances, weight, eps, factors)
        for i in range(lo, hi):
            row, result = row_of(x, i, channels), row_of(out, i, channels)
            for j in range(channels):
                level = item(bias, j)
                put(result, j, (item(row, j) - item(means, j)) * item(factors, j) + level)

    return loop


LOOPS: dict[str, Loop] = {
    "inference_flat": Loop("awwwwnea", _inference_flat, dtypes="fdEe"),
    "train_flat": Loop("awwneaww", _train_flat, dtypes="fdEe"),
    "train_flat_backward": Loop("awwawwwneaww", _train_flat_backward, dtypes="fdEe"),
    "inference": Loop("awwwwnnea", _inference, dtypes="fdEe"),
    "train": Loop("awwnneaww", _train, dtypes="fdEe"),
    "train_backward": Loop("awwawwwnneaww", _train_backward, dtypes="fdEe"),
}
