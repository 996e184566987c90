"""layer_norm and rms_norm over rows of length ``n``, and their gradients.

The variance is the mean of squared deviations from the mean, taken in a second pass over the
row, which is then in the cache. Backward loops compute the statistics anew; they count *strips*
of ``height`` rows, each of which leaves its share of the weight's and the bias's gradient in a
row of its own, so that the sums do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from ..compilation import REDUCTION, Loop
from ..elementary.derived import elementary
from ..elementary.inlined import inlined
from ..intrinsics import full_vectors
from ..layout import BLOCK
from .reduction import total_of
from .softmax import dot_of

__all__ = ["LOOPS"]

_reducing = njit(
    fastmath=set(REDUCTION), error_model="numpy", no_cpython_wrapper=True, forceinline=True
)


def _statistics_of(char: str) -> Callable[..., Any]:
    """A compiled ``statistics(row, eps)``: the mean and ``1 / sqrt(variance + eps)``."""
    T, zero = elementary[char].T, elementary[char].T(0.0)
    total = total_of(char)

    @_reducing
    def block_squares(block, mean):
        squares = zero
        for i in range(block.size):
            deviation = block[i] - mean
            squares += deviation * deviation
        return squares

    @inlined
    def statistics(row, eps):
        n = row.size
        mean = T(total(row) / n)
        squares = 0.0
        for start in range(0, n, BLOCK):
            squares += np.float64(block_squares(row[start : min(n, start + BLOCK)], mean))
        return mean, T(1.0 / math.sqrt(squares / n + eps))

    return statistics


def _layer_norm(char: str) -> Callable[..., None]:
    statistics = _statistics_of(char)

    def loop(x, weight, bias, n, eps, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, result = x[r * n : r * n + n], out[r * n : r * n + n]
            mean, scale = statistics(row, eps)
            for i in range(n):
                result[i] = (row[i] - mean) * scale * weight[i] + bias[i]

    return loop


def _layer_norm_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    total = total_of(char)

    @_reducing
    def block_sums(g, row, weight, mean):
        """Sums of squared deviations, of ``grad weight``, and of their products."""
        squares, plain, along = zero, zero, zero
        for i in range(row.size):
            deviation = row[i] - mean
            weighted = g[i] * weight[i]
            squares += deviation * deviation
            plain += weighted
            along += weighted * deviation
        return squares, plain, along

    @inlined
    def sums(g, row, weight, mean):
        n = row.size
        squares, plain, along = 0.0, 0.0, 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            s, p, a = block_sums(g[start:stop], row[start:stop], weight[start:stop], mean)
            squares += np.float64(s)
            plain += np.float64(p)
            along += np.float64(a)
        return squares, plain, along

    def loop(grad, x, weight, n, height, eps, result, weight_grad, bias_grad, lo, hi):
        full_vectors()
        rows, share = x.size // n, 1.0 / n
        for strip in range(lo, hi):
            dw, db = weight_grad[strip * n : strip * n + n], bias_grad[strip * n : strip * n + n]
            dw[:] = zero
            db[:] = zero
            for r in range(strip * height, min(rows, strip * height + height)):
                row, g = x[r * n : r * n + n], grad[r * n : r * n + n]
                target = result[r * n : r * n + n]
                mean = T(total(row) / n)
                squares, plain_sum, along_sum = sums(g, row, weight, mean)
                inverse = 1.0 / math.sqrt(squares * share + eps)
                scale = T(inverse)
                plain, along = T(plain_sum * share), T(along_sum * inverse * share)
                for i in range(n):
                    normal = (row[i] - mean) * scale
                    given = g[i]
                    target[i] = (given * weight[i] - plain - normal * along) * scale
                    dw[i] += given * normal
                    db[i] += given

    return loop


def _rms_norm(char: str) -> Callable[..., None]:
    T, dot = elementary[char].T, dot_of(char)

    def loop(x, weight, n, eps, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, result = x[r * n : r * n + n], out[r * n : r * n + n]
            scale = T(1.0 / math.sqrt(dot(row, row) / n + eps))
            for i in range(n):
                result[i] = row[i] * scale * weight[i]

    return loop


def _rms_norm_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    dot = dot_of(char)

    @_reducing
    def projection(g, row, weight):
        along = zero
        for i in range(row.size):
            along += g[i] * weight[i] * row[i]
        return along

    def loop(grad, x, weight, n, height, eps, result, weight_grad, lo, hi):
        full_vectors()
        rows = x.size // n
        for strip in range(lo, hi):
            dw = weight_grad[strip * n : strip * n + n]
            dw[:] = zero
            for r in range(strip * height, min(rows, strip * height + height)):
                row, g = x[r * n : r * n + n], grad[r * n : r * n + n]
                target = result[r * n : r * n + n]
                scale = T(1.0 / math.sqrt(dot(row, row) / n + eps))
                along = T(np.float64(projection(g, row, weight)) * scale * scale / n)
                for i in range(n):
                    given = g[i]
                    target[i] = (given * weight[i] - row[i] * along) * scale
                    dw[i] += given * (row[i] * scale)

    return loop


LOOPS: dict[str, Loop] = {
    "layer_norm": Loop("aaanea", _layer_norm),
    "layer_norm_backward": Loop("aaanneaaa", _layer_norm_backward),
    "rms_norm": Loop("aanea", _rms_norm),
    "rms_norm_backward": Loop("aaanneaa", _rms_norm_backward),
}
