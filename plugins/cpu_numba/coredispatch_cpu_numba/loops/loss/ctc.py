"""Connectionist temporal classification: the forward and backward variables of each sample.

Graves et al., 2006, in logarithms. Counts samples. A label's position ``s`` is odd in the sequence
with blanks around every label; ``first`` says where a sample's scratch begins, ``alpha[t, s]`` is
the log probability of all paths to ``s`` at step ``t``. A label outside ``[0, classes)`` is
reported through ``bad[0]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors

__all__ = ["LOOPS"]


def _sum3_of(char: str) -> Any:
    T, exp, log = elementary[char].T, elementary[char].exp, elementary[char].log
    nothing = T(-np.inf)

    @inlined
    def sum3(a, b, c):
        """``log(exp a + exp b + exp c)``"""
        if a != a or b != b or c != c:
            return T(np.nan)
        top = max(a, b, c)
        if top == nothing:
            return nothing
        return log(exp(a - top) + exp(b - top) + exp(c - top)) + top

    return sum3


@inlined
def _label(targets, row, s, blank):
    return targets[row + (s >> 1)] if s & 1 else blank


@inlined
def _skips(targets, row, s, blank):
    """Whether a path may come to ``s`` from the last label but one."""
    if not s & 1 or s < 2:
        return False
    own = targets[row + (s >> 1)]
    return own != blank and own != targets[row + (s >> 1) - 1]


def _alphas_of(char: str) -> Any:
    """``alphas(...)``: fills ``alpha`` row by row, or two rows in turn; gives the loss."""
    T = elementary[char].T
    sum3 = _sum3_of(char)
    nothing = T(-np.inf)

    @inlined
    def alphas(
        x, targets, n, batch, classes, row, steps, length, blank, alpha, first, width, keep
    ):  # fmt: skip
        count = 2 * length + 1
        for t in range(steps):
            own = first + (t if keep else t & 1) * width
            before = first + (t - 1 if keep else (t - 1) & 1) * width
            at = (t * batch + n) * classes
            for s in range(count):
                emitted = x[at + _label(targets, row, s, blank)]
                if t == 0:
                    alpha[own + s] = emitted if s < 2 else nothing
                    continue
                stay = alpha[before + s]
                one = alpha[before + s - 1] if s else nothing
                two = alpha[before + s - 2] if _skips(targets, row, s, blank) else nothing
                alpha[own + s] = sum3(stay, one, two) + emitted
        if steps == 0:
            return T(0) if length == 0 else T(np.inf)
        last = first + (steps - 1 if keep else (steps - 1) & 1) * width + count - 1
        return -sum3(alpha[last], alpha[last - 1] if length else nothing, nothing)

    return alphas


@inlined
def _known(targets, row, length, classes):
    for i in range(length):
        if targets[row + i] < 0 or targets[row + i] >= classes:
            return False
    return True


def _ctc(char: str) -> Callable[..., None]:
    alphas = _alphas_of(char)

    def loop(
        x, targets, input_lengths, target_lengths, batch, classes, most, blank, alpha, width, out,
        bad, lo, hi,
    ):  # fmt: skip
        full_vectors()
        for n in range(lo, hi):
            steps, length, row = input_lengths[n], target_lengths[n], n * most
            if not _known(targets, row, length, classes):
                bad[0] = 1
                continue
            out[n] = alphas(
                x, targets, n, batch, classes, row, steps, length, blank, alpha, 2 * n * width,
                width, 0,
            )  # fmt: skip

    return loop


def _ctc_backward(char: str) -> Callable[..., None]:
    T, exp = elementary[char].T, elementary[char].exp
    alphas, sum3 = _alphas_of(char), _sum3_of(char)
    zero, nothing = T(0), T(-np.inf)

    def loop(
        grad, x, targets, input_lengths, target_lengths, batch, classes, most, blank, alpha, total,
        beta, width, out, bad, lo, hi,
    ):  # fmt: skip
        full_vectors()
        for n in range(lo, hi):
            steps, length, row = input_lengths[n], target_lengths[n], n * most
            if not _known(targets, row, length, classes):
                bad[0] = 1
                continue
            scale = grad[n]
            if scale == zero:
                continue
            first = n * total * width
            loss = alphas(
                x, targets, n, batch, classes, row, steps, length, blank, alpha, first, width, 1
            )
            count = 2 * length + 1
            for t in range(steps - 1, -1, -1):
                at = (t * batch + n) * classes
                following = at + batch * classes
                own, after = (2 * n + (t & 1)) * width, (2 * n + ((t + 1) & 1)) * width
                for c in range(classes):
                    out[at + c] = exp(x[at + c])
                for s in range(count):
                    if t == steps - 1:
                        value = zero if s >= count - 2 else nothing
                    else:
                        label = _label(targets, row, s, blank)
                        stay = beta[after + s] + x[following + label]
                        one, two = nothing, nothing
                        if s + 1 < count:
                            label = _label(targets, row, s + 1, blank)
                            one = beta[after + s + 1] + x[following + label]
                        if s + 2 < count and _skips(targets, row, s + 2, blank):
                            label = _label(targets, row, s + 2, blank)
                            two = beta[after + s + 2] + x[following + label]
                        value = sum3(stay, one, two)
                    beta[own + s] = value
                    place = at + _label(targets, row, s, blank)
                    out[place] -= exp(alpha[first + t * width + s] + value + loss)
                for c in range(classes):
                    out[at + c] *= scale

    return loop


LOOPS: dict[str, Loop] = {
    "ctc": Loop("aiiinnnnanai", _ctc),
    "ctc_backward": Loop("aaiiinnnnananai", _ctc_backward),
}
