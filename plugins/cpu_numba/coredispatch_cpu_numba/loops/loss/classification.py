"""Cross entropy of ``n`` logits against one class; the softmax is never stored.

Logits are rows, which are counted, or lie ``inner`` apart where classes are the second of more than
two dimensions: counted are then tiles of ``COLUMNS`` positions, ``tiles`` of them for each image.
Exponentials of a position are added up in their own dtype, 128 at a time, then in float64.

A target equal to ``ignored`` gives loss 0 and gradient 0. Any other target outside ``[0, n)`` is
reported through ``bad[0]`` and read from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.layout import COLUMNS
from coredispatch_cpu_numba.loops.activation.softmax import (
    exponential_strips_of,
    store_exp_of,
    sum_exp_of,
)
from coredispatch_cpu_numba.spans import add_to, fill, item, part, row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["LOOPS"]


def _cross_entropy(char: str) -> Callable[..., None]:
    """``log sum exp(row) - row[target]``"""
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    extreme, sum_exp = fold_of(char, "top"), sum_exp_of(char)

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
    extreme, store_exp = fold_of(char, "top"), store_exp_of(char)

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


def _positions(char: str) -> Callable[..., None]:
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    sums, dtype, reserve = (
        exponential_strips_of(char, False),
        np.dtype(char).type,
        stack_words(COLUMNS),
    )

    def loop(x, target, n, inner, tiles, ignored, out, bad, lo, hi):
        full_vectors()
        shift, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
        wide = array_at(reserve(), COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            sums(x, x, base, inner, n, width, shift, total, wide)
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
    sums, dtype, reserve = (
        exponential_strips_of(char, True),
        np.dtype(char).type,
        stack_words(COLUMNS),
    )

    def loop(grad, x, target, n, inner, tiles, ignored, out, bad, lo, hi):
        full_vectors()
        shift, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
        wide = array_at(reserve(), COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            sums(x, out, base, inner, n, width, shift, total, wide)
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
