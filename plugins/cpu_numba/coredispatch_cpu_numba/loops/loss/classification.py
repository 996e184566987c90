"""Cross entropy of ``n`` logits against one class; the softmax is never stored.

Logits are rows, which are counted, or lie ``inner`` apart where classes are the second of more than
two dimensions: counted are then tiles of ``COLUMNS`` positions, ``tiles`` of them for each image.
Exponentials of a position are added up in their own dtype, 128 at a time, then in float64.

``weight`` has a number for each class. ``given`` of a target's share goes to its class and ``even``
to each; ``whole`` is the sum of all weights.

A target equal to ``ignored`` gives loss 0 and gradient 0. Any other target outside ``[0, n)`` is
reported through ``bad[0]`` and read from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.layout import BLOCK, COLUMNS
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


# ---- weights of classes, and shares that go to all of them ------------------------------------


def _spread_of(char: str) -> Callable[..., float]:
    """A compiled ``spread(row, shift, weight)``: the sum of ``weight (row - shift)``.

    A class without weight does not count, whatever its logit.
    """
    zero = elementary[char].T(0.0)

    @compiled(fastmath=set(REDUCTION), forceinline=True)
    def block_spread(row, shift, weight):
        total = zero
        for i in range(row.size):
            w = weight[i]
            total += choose(w == zero, zero, w * (row[i] - shift))
        return total

    @inlined
    def spread(row, shift, weight):
        n, result = row.size, 0.0
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            piece = block_spread(part(row, start, stop), shift, part(weight, start, stop))
            result += np.float64(piece)
        return result

    return spread


def _weighted(char: str) -> Callable[..., None]:
    """Of the logarithms of softmax, the own one and, for ``even`` of each weight, all of them."""
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    extreme, sum_exp, spread = fold_of(char, "top"), sum_exp_of(char), _spread_of(char)

    def loop(x, target, weight, n, ignored, given, even, whole, out, bad, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            own = target[r]
            if own == ignored:
                out[r] = zero
            elif own < 0 or own >= n:
                bad[0] = 1
            else:
                row, part_of_own = row_of(x, r, n), given * weight[own]
                shift = extreme(row)
                below = log(T(sum_exp(row, shift)))
                loss = choose(part_of_own == zero, zero, part_of_own * (below - (row[own] - shift)))
                if even != zero:
                    loss += T(even * (whole * below - spread(row, shift, weight)))
                out[r] = loss

    return loop


def _weighted_backward(char: str) -> Callable[..., None]:
    """``softmax sum(q) - q`` times ``grad``, ``q`` the shares of the classes."""
    T, zero = elementary[char].T, elementary[char].T(0.0)
    extreme, store_exp = fold_of(char, "top"), store_exp_of(char)

    def loop(grad, x, target, weight, n, ignored, given, even, whole, out, bad, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            own = target[r]
            result = row_of(out, r, n)
            if own != ignored and (own < 0 or own >= n):
                bad[0] = 1
                continue
            part_of_own = zero if own == ignored else given * weight[own]
            total = part_of_own + even * whole
            if own == ignored or total == zero:
                fill(result, zero)
                continue
            row = row_of(x, r, n)
            scale = T(grad[r] * total / store_exp(row, extreme(row), result))
            if even == zero:
                for i in range(n):
                    result[i] *= scale
            else:
                share = grad[r] * even
                for i in range(n):
                    result[i] = result[i] * scale - share * weight[i]
            result[own] -= grad[r] * part_of_own

    return loop


def _weighted_fold(char: str) -> Callable[..., None]:
    """As ``fold``; the mean is that of the ``weight`` of the targets that count."""

    def loop(losses, target, weight, ignored, mean, out, lo, hi):
        total, kept = 0.0, 0.0
        for r in range(losses.size):
            total += losses[r]
            if target[r] != ignored:
                kept += weight[target[r]]
        out[0] = total / kept if mean else total

    return loop


def _weighted_positions(char: str) -> Callable[..., None]:
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    sums, dtype, reserve = (
        exponential_strips_of(char, False),
        np.dtype(char).type,
        stack_words(COLUMNS),
    )

    def loop(x, target, weight, n, inner, tiles, ignored, given, even, whole, out, bad, lo, hi):
        full_vectors()
        shift, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
        wide = array_at(reserve(), COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            sums(x, x, base, inner, n, width, shift, total, wide)
            for j in range(width):
                total[j] = log(total[j])
            fill(wide, 0.0)
            if even != zero:
                for i in range(n):
                    w = weight[i]
                    if w != zero:
                        row = part(x, base + i * inner, base + i * inner + width)
                        for j in range(width):
                            wide[j] += w * (total[j] - (row[j] - shift[j]))
            at = image * inner + left
            own, result = part(target, at, at + width), part(out, at, at + width)
            for j in range(width):
                label = own[j]
                if label == ignored:
                    result[j] = zero
                elif label < 0 or label >= n:
                    bad[0] = 1
                else:
                    share = given * weight[label]
                    loss = total[j] - (item(x, base + label * inner + j) - shift[j])
                    loss = choose(share == zero, zero, share * loss)
                    result[j] = loss if even == zero else loss + T(even * wide[j])

    return loop


def _weighted_positions_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    sums, dtype, reserve = (
        exponential_strips_of(char, True),
        np.dtype(char).type,
        stack_words(COLUMNS),
    )

    def loop(
        grad, x, target, weight, n, inner, tiles, ignored, given, even, whole, out, bad, lo, hi
    ):
        full_vectors()
        shift, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
        wide = array_at(reserve(), COLUMNS, np.float64)
        for unit in range(lo, hi):
            image, left = unit // tiles, unit % tiles * COLUMNS
            width = min(COLUMNS, inner - left)
            base = image * n * inner + left
            sums(x, out, base, inner, n, width, shift, total, wide)
            at = image * inner + left
            own, arriving = part(target, at, at + width), part(grad, at, at + width)
            for j in range(width):
                label = own[j]
                counts = label != ignored
                if counts and (label < 0 or label >= n):
                    bad[0] = 1
                    counts = False
                share = even * whole
                if counts:
                    share += given * weight[label]
                counts = counts and share != zero
                total[j] = T(arriving[j] * share / total[j])
                shift[j] = arriving[j] * even
                wide[j] = 1.0 if counts else 0.0
            for i in range(n):
                row, w = part(out, base + i * inner, base + i * inner + width), weight[i]
                for j in range(width):
                    value = row[j] * total[j] - shift[j] * w
                    row[j] = choose(wide[j] == 0.0, zero, value)
            for j in range(width):
                if wide[j] != 0.0:
                    place = base + own[j] * inner + j
                    add_to(out, place, -(arriving[j] * (given * weight[own[j]])))

    return loop


# ---- probabilities of classes -----------------------------------------------------------------


def _shares(char: str) -> Callable[..., None]:
    """Cross entropy of rows against ``(target given + even) weight``."""
    T, zero, log = elementary[char].T, elementary[char].T(0.0), elementary[char].log
    extreme, sum_exp = fold_of(char, "top"), sum_exp_of(char)

    @compiled(fastmath=set(REDUCTION), forceinline=True)
    def block_loss(row, shift, below, share, weight, given, even):
        total = zero
        for i in range(row.size):
            q = (share[i] * given + even) * weight[i]
            total += choose(q == zero, zero, q * (below - (row[i] - shift)))
        return total

    def loop(x, target, weight, n, given, even, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, share, loss = row_of(x, r, n), row_of(target, r, n), 0.0
            shift = extreme(row)
            below = log(T(sum_exp(row, shift)))
            for start in range(0, n, BLOCK):
                stop = min(n, start + BLOCK)
                piece, shares = part(row, start, stop), part(share, start, stop)
                weights = part(weight, start, stop)
                loss += np.float64(block_loss(piece, shift, below, shares, weights, given, even))
            out[r] = T(loss)

    return loop


def _shares_backward(char: str) -> Callable[..., None]:
    T, zero = elementary[char].T, elementary[char].T(0.0)
    extreme, store_exp = fold_of(char, "top"), store_exp_of(char)

    @compiled(fastmath=set(REDUCTION), forceinline=True)
    def block_sum(share, weight, given, even):
        total = zero
        for i in range(share.size):
            total += (share[i] * given + even) * weight[i]
        return total

    def loop(grad, x, target, weight, n, given, even, out, lo, hi):
        full_vectors()
        for r in range(lo, hi):
            row, share, result = row_of(x, r, n), row_of(target, r, n), row_of(out, r, n)
            whole = 0.0
            for start in range(0, n, BLOCK):
                stop = min(n, start + BLOCK)
                weights = part(weight, start, stop)
                whole += np.float64(block_sum(part(share, start, stop), weights, given, even))
            if whole == 0.0:
                fill(result, zero)
                continue
            arriving = grad[r]
            scale = T(arriving * whole / store_exp(row, extreme(row), result))
            for i in range(n):
                q = (share[i] * given + even) * weight[i]
                result[i] = result[i] * scale - arriving * q

    return loop


# ---- logarithms that are given ----------------------------------------------------------------


def _nll(char: str) -> Callable[..., None]:
    """``-weight[target]`` times the element of the target. Counts images."""
    zero = elementary[char].T(0.0)

    def loop(x, target, weight, n, inner, ignored, out, bad, lo, hi):
        for image in range(lo, hi):
            base, first = image * n * inner, image * inner
            for j in range(inner):
                own = item(target, first + j)
                if own == ignored:
                    out[first + j] = zero
                elif own < 0 or own >= n:
                    bad[0] = 1
                else:
                    out[first + j] = -(item(x, base + own * inner + j) * item(weight, own))

    return loop


def _nll_total(char: str) -> Callable[..., None]:
    """Their sum; for a ``mean``, over the weights of the targets that count. Counts one."""

    def loop(x, target, weight, n, inner, ignored, mean, out, bad, lo, hi):
        total, kept, at = 0.0, 0.0, 0
        for image in range(target.size // inner):
            base = image * n * inner
            for j in range(inner):
                own = item(target, at)
                at += 1
                if own == ignored:
                    continue
                if own < 0 or own >= n:
                    bad[0] = 1
                else:
                    w = item(weight, own)
                    total -= item(x, base + own * inner + j) * w
                    kept += w
        out[0] = total / kept if mean else total

    return loop


def _nll_backward(char: str) -> Callable[..., None]:
    """``out`` is full of zeros. Counts images."""

    def loop(grad, target, weight, n, inner, ignored, out, bad, lo, hi):
        for image in range(lo, hi):
            base, first = image * n * inner, image * inner
            for j in range(inner):
                own = item(target, first + j)
                if own != ignored:
                    if own < 0 or own >= n:
                        bad[0] = 1
                    else:
                        given = item(grad, first + j) * item(weight, own)
                        out[base + own * inner + j] = -given

    return loop


LOOPS: dict[str, Loop] = {
    "weighted": Loop("aiannsssai", _weighted),
    "weighted_backward": Loop("aaiannsssai", _weighted_backward),
    "weighted_fold": Loop("aianna", _weighted_fold),
    "weighted_positions": Loop("aiannnnsssai", _weighted_positions),
    "weighted_positions_backward": Loop("aaiannnnsssai", _weighted_positions_backward),
    "shares": Loop("aaanssa", _shares),
    "shares_backward": Loop("aaaanssa", _shares_backward),
    "nll": Loop("aiannnai", _nll),
    "nll_total": Loop("aiannnnai", _nll_total),
    "nll_backward": Loop("aiannnai", _nll_backward),
    "positions": Loop("ainnnnai", _positions),
    "positions_backward": Loop("aainnnnai", _positions_backward),
    "fold": Loop("ainna", _fold),
    "cross_entropy": Loop("ainnai", _cross_entropy),
    "cross_entropy_backward": Loop("aainnai", _cross_entropy_backward),
}
