"""Cross entropy of ``n`` logits against one class; the softmax is never stored.

Logits are rows, which are counted, or lie ``inner`` apart where classes are the second of more than
two dimensions: counted are then tiles of ``COLUMNS`` positions, ``tiles`` of them for each image.
Exponentials of a position are added up in their own dtype, 128 at a time, then in float64.

A target equal to ``ignored`` gives loss 0 and gradient 0. Any other target outside ``[0, n)`` is
reported through ``bad[0]`` and read from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors, largest
from coredispatch_cpu_numba.layout import COLUMNS
from coredispatch_cpu_numba.loops.activation.softmax import store_exp_of, sum_exp_of
from coredispatch_cpu_numba.loops.reduction.sums import extreme_of
from coredispatch_cpu_numba.spans import add_to, copy, fill, item, part, row_of

__all__ = ["LOOPS"]


def _cross_entropy(char: str) -> Callable[..., None]:
    """``log sum exp(row) - row[target]``"""
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    extreme, sum_exp = extreme_of(char, "amax"), sum_exp_of(char)

    def loop(x, target, n, ignored, out, bad, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            own = target[r]
            if own == ignored:
                out[r] = zero
            elif own < 0 or own >= n:
                bad[0] = 1
            else:
                row = row_of(x, r, n)
                shift = extreme(row)
                out[r] = log(T(sum_exp(row, shift))) - (row[own] - shift)

    return loop


def _cross_entropy_backward(char: str) -> Callable[..., None]:
    """``(softmax - onehot(target)) grad``, ``grad`` one number per row"""
    T, zero = elementary[char].T, elementary[char].T(0.0)
    extreme, store_exp = extreme_of(char, "amax"), store_exp_of(char)

    def loop(grad, x, target, n, ignored, out, bad, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            own = target[r]
            result = row_of(out, r, n)
            if own == ignored:
                fill(result, zero)
            elif own < 0 or own >= n:
                bad[0] = 1
            else:
                row = row_of(x, r, n)
                scale = T(grad[r] / store_exp(row, extreme(row), result))
                for i in range(n):
                    result[i] *= scale
                result[own] -= grad[r]

    return loop


def _fold(char: str) -> Callable[..., None]:
    """``out[0]`` is the sum of ``losses``; for a ``mean``, over the targets that count."""

    def loop(losses, target, ignored, mean, out, lo, hi):
        total, kept = 0.0, 0
        for r in range(losses.size):
            total += losses[r]
            kept += target[r] != ignored
        out[0] = total / kept if mean else total

    return loop


def _exponentials_of(char: str) -> Callable[..., Any]:
    """``exponentials(x, base, inner, n, shift, total, wide, store, out)`` of a tile.

    The largest logit of each position goes to ``shift``, the sum of ``exp(logit - shift)`` to
    ``total``; the exponentials themselves to ``out`` where that is to ``store`` them.
    """
    e = elementary[char]
    exp, zero = e.exp, e.T(0.0)

    @compiled(fastmath={"contract"})
    def exponentials(x, base, inner, n, shift, total, wide, store, out):
        full_vectors()
        width = shift.size
        copy(shift, part(x, base, base + width))
        for i in range(1, n):
            row = part(x, base + i * inner, base + i * inner + width)
            for j in range(width):
                shift[j] = largest(shift[j], row[j])
        fill(total, zero)
        fill(wide, 0.0)
        for i in range(n):
            at = base + i * inner
            row = part(x, at, at + width)
            if store:
                result = part(out, at, at + width)
                for j in range(width):
                    value = exp(row[j] - shift[j])
                    result[j] = value
                    total[j] += value
            else:
                for j in range(width):
                    total[j] += exp(row[j] - shift[j])
            if i % 128 == 127:
                for j in range(width):
                    wide[j] += total[j]
                    total[j] = zero
        if n > 127:
            for j in range(width):
                total[j] = wide[j] + total[j]

    return exponentials


def _positions(char: str) -> Callable[..., None]:
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    exponentials = _exponentials_of(char)

    def loop(x, target, n, inner, tiles, ignored, out, bad, lo, hi):
        full_vectors()
        shifts, totals = np.empty(COLUMNS, out.dtype), np.empty(COLUMNS, out.dtype)
        wide = np.empty(COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            shift, total = part(shifts, 0, width), part(totals, 0, width)
            exponentials(x, base, inner, n, shift, total, part(wide, 0, width), False, out)
            at = image * inner + left
            own, result = part(target, at, at + width), part(out, at, at + width)
            for j in range(width):
                label = own[j]
                if label == ignored:
                    label = 0
                elif label < 0 or label >= n:
                    bad[0], label = 1, 0
                result[j] = item(x, base + label * inner + j)
            for j in range(width):
                loss = log(total[j]) - (result[j] - shift[j])
                result[j] = choose(own[j] == ignored, zero, T(loss))

    return loop


def _positions_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    exponentials = _exponentials_of(char)

    def loop(grad, x, target, n, inner, tiles, ignored, out, bad, lo, hi):
        full_vectors()
        shifts, totals = np.empty(COLUMNS, out.dtype), np.empty(COLUMNS, out.dtype)
        wide = np.empty(COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            shift, total = part(shifts, 0, width), part(totals, 0, width)
            exponentials(x, base, inner, n, shift, total, part(wide, 0, width), True, out)
            at = image * inner + left
            own, given = part(target, at, at + width), part(grad, at, at + width)
            for j in range(width):
                total[j] = T(given[j] / total[j])
                shift[j] = choose(own[j] == ignored, zero, T(1))
            for i in range(n):
                row = part(out, base + i * inner, base + i * inner + width)
                for j in range(width):
                    row[j] = choose(shift[j] == zero, zero, row[j] * total[j])
            for j in range(width):
                label = own[j]
                if label == ignored:
                    continue
                if label < 0 or label >= n:
                    bad[0] = 1
                else:
                    add_to(out, base + label * inner + j, -given[j])

    return loop


LOOPS: dict[str, Loop] = {
    "positions": Loop("ainnnnai", _positions),
    "positions_backward": Loop("aainnnnai", _positions_backward),
    "fold": Loop("ainna", _fold),
    "cross_entropy": Loop("ainnai", _cross_entropy),
    "cross_entropy_backward": Loop("aainnai", _cross_entropy_backward),
}
