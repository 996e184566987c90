"""softmax, log_softmax and their gradients along the middle dimension of ``(outer, n, inner)``.

*Rows* have ``inner == 1`` and count rows. *Columns* count tiles of ``COLUMNS`` columns, ``tiles``
of them for each of the ``outer`` matrices, and vectorize across the tile.

The maximum is subtracted first, so no exponential overflows; a row whose maximum is infinite or
NaN gives NaN throughout, as the definition does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors, largest
from coredispatch_cpu_numba.layout import BLOCK, COLUMNS
from coredispatch_cpu_numba.loops.reduction.sums import extreme_of, total_of
from coredispatch_cpu_numba.spans import copy, part, row_of

__all__ = ["LOOPS", "dot_of", "store_exp_of", "sum_exp_of"]

_reducing = compiled(fastmath=set(REDUCTION), forceinline=True)


def sum_exp_of(char: str) -> Callable[..., Any]:
    """A compiled ``sum_exp(row, shift)``: the float64 sum of ``exp(row - shift)``."""
    e = elementary[char]
    exp, zero = e.exp, e.T(0.0)

    @_reducing
    def block_sum(block, shift):
        total = zero
        for i in range(block.size):
            total += exp(block[i] - shift)
        return total

    @inlined
    def sum_exp(row, shift):
        n = row.size
        result = 0.0
        for start in range(0, n, BLOCK):
            result += np.float64(block_sum(part(row, start, min(n, start + BLOCK)), shift))
        return result

    return sum_exp


def store_exp_of(char: str) -> Callable[..., Any]:
    """A compiled ``store_exp(row, shift, out)``: ``out = exp(row - shift)``, returns its sum."""
    e = elementary[char]
    exp, zero = e.exp, e.T(0.0)

    @_reducing
    def block_store(block, shift, out):
        total = zero
        for i in range(block.size):
            value = exp(block[i] - shift)
            out[i] = value
            total += value
        return total

    @inlined
    def store_exp(row, shift, out):
        n = row.size
        result = 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            result += np.float64(block_store(part(row, start, stop), shift, part(out, start, stop)))
        return result

    return store_exp


def _softmax_rows(char: str) -> Callable[..., None]:
    T = elementary[char].T
    extreme, store_exp = extreme_of(char, "amax"), store_exp_of(char)

    def loop(x, n, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, result = row_of(x, r, n), row_of(out, r, n)
            scale = T(1.0 / store_exp(row, extreme(row), result))
            for i in range(n):
                result[i] *= scale

    return loop


def _log_softmax_rows(char: str) -> Callable[..., None]:
    T, log = elementary[char].T, elementary[char].log
    extreme, sum_exp = extreme_of(char, "amax"), sum_exp_of(char)

    def loop(x, n, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, result = row_of(x, r, n), row_of(out, r, n)
            shift = extreme(row)
            log_total = log(T(sum_exp(row, shift)))
            for i in range(n):
                result[i] = (row[i] - shift) - log_total

    return loop


def dot_of(char: str) -> Callable[..., Any]:
    """A compiled ``dot(x, y)`` of two rows, in float64 from block to block."""
    zero = elementary[char].T(0.0)

    @_reducing
    def block_dot(x, y):
        total = zero
        for i in range(x.size):
            total += x[i] * y[i]
        return total

    @inlined
    def dot(x, y):
        n = x.size
        result = 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            result += np.float64(block_dot(part(x, start, stop), part(y, start, stop)))
        return result

    return dot


def _softmax_backward_rows(char: str) -> Callable[..., None]:
    """``out (grad - sum(grad out))``"""
    T, dot = elementary[char].T, dot_of(char)

    def loop(grad, out, n, result, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            g, o = row_of(grad, r, n), row_of(out, r, n)
            target = row_of(result, r, n)
            mean = T(dot(g, o))
            for i in range(n):
                target[i] = o[i] * (g[i] - mean)

    return loop


def _log_softmax_backward_rows(char: str) -> Callable[..., None]:
    """``grad - exp(out) sum(grad)``"""
    e, total = elementary[char], total_of(char)
    exp, T = e.exp, e.T

    def loop(grad, out, n, result, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            g, o = row_of(grad, r, n), row_of(out, r, n)
            target = row_of(result, r, n)
            whole = T(total(g))
            for i in range(n):
                target[i] = g[i] - exp(o[i]) * whole

    return loop


def _columns(log: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        e = elementary[char]
        exp, ln, one = e.exp, e.log, e.T(1.0)

        def loop(x, n, inner, tiles, out, lo, hi):
            full_vectors()
            shift, total = np.empty(COLUMNS, out.dtype), np.empty(COLUMNS, out.dtype)
            wide = np.empty(COLUMNS, np.float64)  # one sum per column: its errors would add up
            for unit in range(lo, hi):
                left = unit % tiles * COLUMNS
                width = min(COLUMNS, inner - left)
                base = unit // tiles * n * inner + left
                copy(part(shift, 0, width), part(x, base, base + width))
                for j in range(width):
                    wide[j] = 0.0
                for i in range(1, n):
                    row = part(x, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        shift[j] = largest(shift[j], row[j])
                for i in range(n):
                    row = part(x, base + i * inner, base + i * inner + width)
                    result = part(out, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        difference = row[j] - shift[j]
                        value = exp(difference)
                        result[j] = difference if log else value
                        wide[j] += value
                for j in range(width):
                    total[j] = wide[j]
                    total[j] = ln(total[j]) if log else one / total[j]
                for i in range(n):
                    result = part(out, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        result[j] = result[j] - total[j] if log else result[j] * total[j]

        return loop

    return build


def _columns_backward(log: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        e = elementary[char]
        exp = e.exp

        def loop(grad, out, n, inner, tiles, result, lo, hi):
            full_vectors()
            total = np.empty(COLUMNS, out.dtype)
            # Sums of blocks of rows are added up: the errors of one long sum would be, too.
            wide, block = np.empty(COLUMNS, np.float64), np.empty(COLUMNS, np.float64)
            for unit in range(lo, hi):
                left = unit % tiles * COLUMNS
                width = min(COLUMNS, inner - left)
                base = unit // tiles * n * inner + left
                for j in range(width):
                    wide[j] = block[j] = 0.0
                for i in range(n):
                    g = part(grad, base + i * inner, base + i * inner + width)
                    o = part(out, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        block[j] += g[j] if log else g[j] * o[j]
                    if i % 128 == 127:
                        for j in range(width):
                            wide[j] += block[j]
                            block[j] = 0.0
                for j in range(width):
                    total[j] = wide[j] + block[j]
                for i in range(n):
                    g = part(grad, base + i * inner, base + i * inner + width)
                    o = part(out, base + i * inner, base + i * inner + width)
                    target = part(result, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        if log:
                            target[j] = g[j] - exp(o[j]) * total[j]
                        else:
                            target[j] = o[j] * (g[j] - total[j])

        return loop

    return build


LOOPS: dict[str, Loop] = {
    "softmax_rows": Loop("ana", _softmax_rows),
    "log_softmax_rows": Loop("ana", _log_softmax_rows),
    "softmax_backward_rows": Loop("aana", _softmax_backward_rows),
    "log_softmax_backward_rows": Loop("aana", _log_softmax_backward_rows),
    "softmax_columns": Loop("annna", _columns(False)),
    "log_softmax_columns": Loop("annna", _columns(True)),
    "softmax_backward_columns": Loop("aannna", _columns_backward(False)),
    "log_softmax_backward_columns": Loop("aannna", _columns_backward(True)),
}
