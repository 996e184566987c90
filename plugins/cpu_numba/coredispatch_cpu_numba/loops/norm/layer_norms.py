"""layer_norm and rms_norm over rows of length ``n``, and their gradients.

The variance is the mean of squared deviations from the mean, taken in a second pass over the
row, which is then in the cache. That pass also corrects the mean by the sum of the deviations,
which would be 0 but for rounding: a row of equal numbers has itself as mean, however large.

Backward loops compute the statistics anew; they count *strips* of ``height`` rows, each of which
leaves its share of the weight's and the bias's gradient in a row of its own, so that the sums do
not depend on the number of threads.
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
from coredispatch_cpu_numba.loops.activation.softmax import dot_of
from coredispatch_cpu_numba.loops.reduction.sums import total_of
from coredispatch_cpu_numba.spans import fill, part, row_of

__all__ = ["LOOPS", "deviations_of"]

_reducing = compiled(fastmath=set(REDUCTION), forceinline=True)


def deviations_of(char: str) -> Callable[..., Any]:
    """A compiled function: sums of the deviations from a mean, and of their squares."""
    zero = elementary[char].T(0.0)

    @_reducing
    def block_sums(block, mean):
        plain, squares = zero, zero
        for i in range(block.size):
            deviation = block[i] - mean
            plain += deviation
            squares += deviation * deviation
        return plain, squares

    @inlined
    def sums(row, mean):
        n = row.size
        plain, squares = 0.0, 0.0
        for start in range(0, n, BLOCK):
            p, s = block_sums(part(row, start, min(n, start + BLOCK)), mean)
            plain += np.float64(p)
            squares += np.float64(s)
        return plain, squares

    return sums


def _layer_norm(char: str) -> Callable[..., None]:
    T, total, sums = elementary[char].T, total_of(char), deviations_of(char)

    def loop(x, weight, bias, n, eps, out, lo, hi):
        full_vectors()
        share = 1.0 / n
        for r in range(lo, hi):
            row, result = row_of(x, r, n), row_of(out, r, n)
            mean = T(total(row) * share)
            plain, squares = sums(row, mean)
            rest = plain * share
            scale = T(1.0 / math.sqrt(max(squares * share - rest * rest, 0.0) + eps))
            shift = T(rest)
            for i in range(n):
                result[i] = ((row[i] - mean) - shift) * scale * weight[i] + bias[i]

    return loop


def _layer_norm_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    total = total_of(char)

    @_reducing
    def block_sums(g, row, weight, mean):
        """Sums of deviations and of their squares, of ``grad weight``, of ``grad weight dev``."""
        plain, squares, given, along = zero, zero, zero, zero
        for i in range(row.size):
            deviation = row[i] - mean
            weighted = g[i] * weight[i]
            plain += deviation
            squares += deviation * deviation
            given += weighted
            along += weighted * deviation
        return plain, squares, given, along

    @inlined
    def sums(g, row, weight, mean):
        n = row.size
        plain, squares, given, along = 0.0, 0.0, 0.0, 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            p, s, w, a = block_sums(
                part(g, start, stop), part(row, start, stop), part(weight, start, stop), mean
            )
            plain += np.float64(p)
            squares += np.float64(s)
            given += np.float64(w)
            along += np.float64(a)
        return plain, squares, given, along

    def loop(grad, x, weight, n, height, eps, result, weight_grad, bias_grad, lo, hi):
        full_vectors()
        rows, share = x.size // n, 1.0 / n
        for strip in range(lo, hi):
            dw, db = row_of(weight_grad, strip, n), row_of(bias_grad, strip, n)
            fill(dw, zero)
            fill(db, zero)
            for r in range(strip * height, min(rows, strip * height + height)):
                row, g = row_of(x, r, n), row_of(grad, r, n)
                target = row_of(result, r, n)
                mean = T(total(row) * share)
                plain, squares, given, along = sums(g, row, weight, mean)
                rest = plain * share
                inverse = 1.0 / math.sqrt(max(squares * share - rest * rest, 0.0) + eps)
                scale, shift = T(inverse), T(rest)
                level, slope = T(given * share), T((along - rest * given) * inverse * share)
                for i in range(n):
                    normal = ((row[i] - mean) - shift) * scale
                    upstream = g[i]
                    target[i] = (upstream * weight[i] - level - normal * slope) * scale
                    dw[i] += upstream * normal
                    db[i] += upstream

    return loop


def _rms_norm(char: str) -> Callable[..., None]:
    T, dot = elementary[char].T, dot_of(char)

    def loop(x, weight, n, eps, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, result = row_of(x, r, n), row_of(out, r, n)
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
            dw = row_of(weight_grad, strip, n)
            fill(dw, zero)
            for r in range(strip * height, min(rows, strip * height + height)):
                row, g = row_of(x, r, n), row_of(grad, r, n)
                target = row_of(result, r, n)
                scale = T(1.0 / math.sqrt(dot(row, row) / n + eps))
                along = T(np.float64(projection(g, row, weight)) * scale * scale / n)
                for i in range(n):
                    given = g[i]
                    target[i] = (given * weight[i] - row[i] * along) * scale
                    dw[i] += given * (row[i] * scale)

    return loop


def _group_norm(char: str) -> Callable[..., None]:
    """Counts groups of ``channels`` channels of ``n`` elements; a channel has weight and bias."""
    T, total = elementary[char].T, total_of(char)
    sums = deviations_of(char)

    def loop(x, weight, bias, groups, channels, n, eps, out, lo, hi):
        full_vectors()
        size = channels * n
        share = 1.0 / size
        for r in range(lo, hi):
            row, result = row_of(x, r, size), row_of(out, r, size)
            mean = T(total(row) * share)
            plain, squares = sums(row, mean)
            rest = plain * share
            scale = 1.0 / math.sqrt(max(squares * share - rest * rest, 0.0) + eps)
            shift = T(rest)
            for c in range(channels):
                channel = r % groups * channels + c
                factor, level = T(scale) * weight[channel], bias[channel]
                given, target = row_of(row, c, n), row_of(result, c, n)
                for i in range(n):
                    target[i] = ((given[i] - mean) - shift) * factor + level

    return loop


def _group_norm_backward(char: str) -> Callable[..., None]:
    """Counts groups; leaves each channel's share of the weight's and bias's gradients."""
    T, total = elementary[char].T, total_of(char)
    sums, dot = deviations_of(char), dot_of(char)

    def loop(grad, x, weight, groups, channels, n, eps, result, weight_grad, bias_grad, lo, hi):
        full_vectors()
        size = channels * n
        share = 1.0 / size
        for r in range(lo, hi):
            row, g, target = row_of(x, r, size), row_of(grad, r, size), row_of(result, r, size)
            mean = T(total(row) * share)
            plain, squares = sums(row, mean)
            rest = plain * share
            inverse = 1.0 / math.sqrt(max(squares * share - rest * rest, 0.0) + eps)
            scale, shift = T(inverse), T(rest)
            given, along = 0.0, 0.0
            for c in range(channels):
                first = r % groups * channels + c
                upstream, line, normal = row_of(g, c, n), row_of(row, c, n), row_of(target, c, n)
                for i in range(n):
                    normal[i] = ((line[i] - mean) - shift) * scale
                here, there = total(upstream), dot(upstream, normal)
                bias_grad[r * channels + c], weight_grad[r * channels + c] = here, there
                given += here * np.float64(weight[first])
                along += there * np.float64(weight[first])
            level, slope = T(given * share), T(along * share)
            for c in range(channels):
                factor = weight[r % groups * channels + c]
                upstream, normal = row_of(g, c, n), row_of(target, c, n)
                for i in range(n):
                    normal[i] = (upstream[i] * factor - level - normal[i] * slope) * scale

    return loop


LOOPS: dict[str, Loop] = {
    "group_norm": Loop("aaannnea", _group_norm),
    "group_norm_backward": Loop("aaannneaaa", _group_norm_backward),
    "layer_norm": Loop("aaanea", _layer_norm),
    "layer_norm_backward": Loop("aaanneaaa", _layer_norm_backward),
    "rms_norm": Loop("aanea", _rms_norm),
    "rms_norm_backward": Loop("aaanneaa", _rms_norm_backward),
}
