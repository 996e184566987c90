"""Cross entropy of rows of ``n`` logits against one class per row; the softmax is never stored.

Counts rows. A target equal to ``ignored`` gives loss 0 and gradient 0. Any other target outside
``[0, n)`` is reported through ``bad[0]`` and read from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.reduction import extreme_of
from coredispatch_cpu_numba.loops.softmax import store_exp_of, sum_exp_of
from coredispatch_cpu_numba.spans import fill, row_of

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


LOOPS: dict[str, Loop] = {
    "fold": Loop("ainna", _fold),
    "cross_entropy": Loop("ainnai", _cross_entropy),
    "cross_entropy_backward": Loop("aainnai", _cross_entropy_backward),
}
