"""softmax, log_softmax and their gradients along the middle dimension of ``(outer, n, inner)``.

*Rows* have ``inner == 1`` and count rows. *Columns* count tiles of ``COLUMNS`` columns, ``tiles``
of them for each of the ``outer`` matrices, and vectorize across the tile.

The maximum is subtracted first, so no exponential overflows; a row whose maximum is infinite or
NaN gives NaN throughout, as the definition does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

import numpy as np

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.layout import BLOCK, COLUMNS
from coredispatch_cpu_numba.loops.reduction.sums import total_of
from coredispatch_cpu_numba.spans import fill, part, row_of
from coredispatch_cpu_numba.tails import CHAINS, fold_of, larger, tail_of, vectorwise_of

__all__ = [
    "LOOPS",
    "columns_of",
    "dot_of",
    "exponential_strips_of",
    "rows_of",
    "store_exp_of",
    "strip_of",
    "sum_exp_of",
]

_reducing = compiled(fastmath=set(REDUCTION), forceinline=True)


@memoized
def _exponentials_of(char: str, stored: bool) -> Callable[..., Any]:
    """A compiled ``exponentials(row, shift, out)``: the float64 sum of ``exp(row - shift)``.

    ``out`` gets the exponentials where they are to be ``stored``. Several vectors of sums are
    carried along, and added up at the end of a block.
    """
    e = elementary[char]
    exp, zero, nothing = e.exp, e.T(0.0), e.T(-np.inf)
    many, sums_room, *_ = tail_of(char, CHAINS)
    few, room, bring, put_back = tail_of(char, CHAINS // 2)

    @inlined
    def vectors(block, shift, out, sums):
        for i in range(block.size):
            value = exp(block[i] - shift)
            if stored:
                out[i] = value
            sums[i] += value

    @_reducing
    def across(sums):
        total = zero
        for i in range(many):
            total += sums[i]
        return np.float64(total)

    @inlined
    def exponentials(row, shift, out):
        n = row.size
        whole, result = n - n % many, 0.0
        sums = sums_room()
        fill(sums, zero)
        for start in range(0, whole, many):
            stop = start + many
            vectors(part(row, start, start + many), shift, part(out, start, start + many), sums)
            if stop % BLOCK == 0:
                result += across(sums)
                fill(sums, zero)
        if n - whole >= few:
            start, stop = whole, whole + few
            vectors(part(row, start, start + few), shift, part(out, start, start + few), sums)
            whole = stop
        if n > whole:
            tail, values = room(), room()
            bring(tail, row, whole, nothing)
            vectors(tail, shift, values, sums)
            if stored:
                put_back(out, whole, values)
        return result + across(sums)

    return exponentials


@memoized
def sum_exp_of(char: str) -> Callable[..., Any]:
    """A compiled ``sum_exp(row, shift)``: the float64 sum of ``exp(row - shift)``."""
    exponentials = _exponentials_of(char, False)

    @inlined
    def sum_exp(row, shift):
        return exponentials(row, shift, row)

    return sum_exp


def store_exp_of(char: str) -> Callable[..., Any]:
    """A compiled ``store_exp(row, shift, out)``: ``out = exp(row - shift)``, returns its sum."""
    return _exponentials_of(char, True)


#: rows that go through each step together, so that none waits for the one before, and how many
#: elements they may have
_GROUP, _NEAR = 16, 8192


def rows_of(log: bool) -> Callable[[str], Callable[..., None]]:
    """``rows(x, n, out, lo, hi)``: softmax, or its ``log``, of rows of ``n`` elements."""

    def build(char: str) -> Callable[..., None]:
        e, dtype = elementary[char], np.dtype(char).type
        ln, T, one = e.log, e.T, e.T(1.0)
        top_of, sums = fold_of(char, "top"), _exponentials_of(char, not log)
        reserve = stack_words(_GROUP)

        def loop(x, n, out, lo, hi):
            full_vectors()
            tops, totals = array_at(reserve(), _GROUP, dtype), array_at(reserve(), _GROUP, dtype)
            fill(totals, one)
            group = max(1, min(_GROUP, _NEAR // n))
            for first in range(lo, hi, group):
                count = min(group, hi - first)
                for r in range(count):
                    tops[r] = top_of(row_of(x, first + r, n))
                for r in range(count):
                    row, result = row_of(x, first + r, n), row_of(out, first + r, n)
                    totals[r] = T(sums(row, tops[r], result))
                for r in range(_GROUP):
                    totals[r] = ln(totals[r]) if log else one / totals[r]
                for r in range(count):
                    row, result = row_of(x, first + r, n), row_of(out, first + r, n)
                    top, total = tops[r], totals[r]
                    if log:
                        for i in range(n):
                            result[i] = (row[i] - top) - total
                    else:
                        for i in range(n):
                            result[i] *= total

        return loop

    return build


@memoized
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


def strip_of(char: str, step_of: Callable[[int], Any], writes: bool) -> Callable[..., Any]:
    """A compiled function that goes along the rows of a tile, some vectors at a time.

    ``strip(x, y, out, base, inner, first, last, width, top, total)`` goes through rows ``[first,
    last)`` of the tile of ``width`` columns that begins at ``base``. ``step_of(vectors)`` is the
    function of so many of them; it takes what lies side by side in these arrays. ``top`` and
    ``total`` have ``COLUMNS`` elements, the same for all rows. ``writes`` says whether it writes
    to ``out``.
    """
    nothing = elementary[char].T(-np.inf)
    long_step, short_step = step_of(CHAINS), step_of(CHAINS // 2)
    many = tail_of(char, CHAINS).lanes
    few, room, bring, put_back = tail_of(char, CHAINS // 2)

    @inlined
    def strip(x, y, out, base, inner, first, last, width, top, total):
        whole, paired = width - width % many, width - width % few
        one, other, result = room(), room(), room()
        for i in range(first, last):
            at = base + i * inner
            for c in range(0, whole, many):
                start, stop = at + c, at + c + many
                long_step(
                    part(x, start, stop), part(y, start, stop), part(out, start, stop),
                    part(top, c, c + many), part(total, c, c + many),
                )  # fmt: skip
            for c in range(whole, paired, few):
                start, stop = at + c, at + c + few
                short_step(
                    part(x, start, stop), part(y, start, stop), part(out, start, stop),
                    part(top, c, c + few), part(total, c, c + few),
                )  # fmt: skip
            if paired < width:
                bring(one, part(x, at, at + width), paired, nothing)
                bring(other, part(y, at, at + width), paired, nothing)
                short_step(
                    one, other, result,
                    part(top, paired, paired + few), part(total, paired, paired + few),
                )  # fmt: skip
                if writes:
                    put_back(part(out, at, at + width), paired, result)

    return strip


@memoized
def exponential_strips_of(char: str, stored: bool) -> Callable[..., Any]:
    """A compiled ``sums(x, out, base, inner, n, width, top, total, wide)`` of a tile.

    The largest element of each column goes to ``top``, the sum of ``exp(element - largest)`` to
    ``total``, carried in the float64 of ``wide`` from 128 rows to the next; the exponentials
    themselves to ``out`` where they are to be ``stored``.
    """
    e = elementary[char]
    exp, zero, nothing = e.exp, e.T(0.0), e.T(-np.inf)

    def rising_by(vectors: int) -> Any:
        raised = vectorwise_of(char, vectors, 2, larger)

        @inlined
        def rise(given, _, result, top, total):
            raised(top, top, given)  # NaN is passed over: the sum has it

        return rise

    @inlined
    def add(given, _, result, top, total):
        for j in range(given.size):
            value = exp(given[j] - top[j])
            if stored:
                result[j] = value
            total[j] += value

    rising, adding = strip_of(char, rising_by, False), strip_of(char, lambda _: add, stored)

    @compiled(fastmath={"contract"})
    def sums(x, out, base, inner, n, width, top, total, wide):
        full_vectors()
        fill(top, nothing)
        rising(x, x, out, base, inner, 0, n, width, top, total)
        fill(wide, 0.0)
        for first in range(0, n, 128):
            fill(total, zero)
            adding(x, x, out, base, inner, first, min(n, first + 128), width, top, total)
            for j in range(width):
                wide[j] += total[j]
        for j in range(width):
            total[j] = wide[j]

    return sums


def columns_of(log: bool) -> Callable[[str], Callable[..., None]]:
    """``columns(x, n, inner, tiles, out, lo, hi)``: softmax, or its ``log``, of columns."""

    def build(char: str) -> Callable[..., None]:
        e, dtype = elementary[char], np.dtype(char).type
        ln, one = e.log, e.T(1.0)
        sums, reserve = exponential_strips_of(char, not log), stack_words(COLUMNS)

        def finishing_by(vectors: int) -> Any:
            shifted = vectorwise_of(
                char, vectors, 3, lambda b, x, top, total: b.fsub(b.fsub(x, top), total)
            )
            scaled = vectorwise_of(char, vectors, 2, lambda b, x, total: b.fmul(x, total))

            @inlined
            def finish(given, _, result, top, total):
                if log:
                    shifted(result, given, top, total)
                else:
                    scaled(result, given, total)

            return finish

        finishing = strip_of(char, finishing_by, True)

        def loop(x, n, inner, tiles, out, lo, hi):
            full_vectors()
            top, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
            wide = array_at(reserve(), COLUMNS, np.float64)
            for unit in range(lo, hi):
                left = unit % tiles * COLUMNS
                width = min(COLUMNS, inner - left)
                base = unit // tiles * n * inner + left
                sums(x, out, base, inner, n, width, top, total, wide)
                for j in range(width):
                    total[j] = ln(total[j]) if log else one / total[j]
                given = x if log else out
                finishing(given, given, out, base, inner, 0, n, width, top, total)

        return loop

    return build


def _columns_backward(log: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        e, dtype = elementary[char], np.dtype(char).type
        exp, zero, reserve = e.exp, e.T(0.0), stack_words(COLUMNS)

        def adding_by(vectors: int) -> Any:
            added = vectorwise_of(char, vectors, 2, lambda b, total, grad: b.fadd(total, grad))
            product_added = vectorwise_of(
                char, vectors, 3, lambda b, total, grad, out: b.fadd(total, b.fmul(grad, out))
            )

            @inlined
            def add(grad, out, result, block, total):
                if log:
                    added(block, block, grad)
                else:
                    product_added(block, block, grad, out)

            return add

        def finishing_by(vectors: int) -> Any:
            scaled = vectorwise_of(
                char, vectors, 3, lambda b, out, grad, total: b.fmul(out, b.fsub(grad, total))
            )

            @inlined
            def finish(grad, out, result, block, total):
                if log:
                    for j in range(grad.size):
                        result[j] = grad[j] - exp(out[j]) * total[j]
                else:
                    scaled(result, out, grad, total)

            return finish

        adding = strip_of(char, adding_by, False)
        finishing = strip_of(char, finishing_by, True)

        def loop(grad, out, n, inner, tiles, result, lo, hi):
            full_vectors()
            block, total = array_at(reserve(), COLUMNS, dtype), array_at(reserve(), COLUMNS, dtype)
            # Sums of blocks of rows are added up: the errors of one long sum would be, too.
            wide = array_at(reserve(), COLUMNS, np.float64)
            for unit in range(lo, hi):
                left = unit % tiles * COLUMNS
                width = min(COLUMNS, inner - left)
                base = unit // tiles * n * inner + left
                fill(wide, 0.0)
                for first in range(0, n, 128):
                    fill(block, zero)
                    last = min(n, first + 128)
                    adding(grad, out, result, base, inner, first, last, width, block, total)
                    for j in range(width):
                        wide[j] += block[j]
                for j in range(width):
                    total[j] = wide[j]
                finishing(grad, out, result, base, inner, 0, n, width, block, total)

        return loop

    return build


LOOPS: dict[str, Loop] = {
    "softmax_rows": Loop("ana", rows_of(False)),
    "log_softmax_rows": Loop("ana", rows_of(True)),
    "softmax_backward_rows": Loop("aana", _softmax_backward_rows),
    "log_softmax_backward_rows": Loop("aana", _log_softmax_backward_rows),
    "softmax_columns": Loop("annna", columns_of(False)),
    "log_softmax_columns": Loop("annna", columns_of(True)),
    "softmax_backward_columns": Loop("aannna", _columns_backward(False)),
    "log_softmax_backward_columns": Loop("aannna", _columns_backward(True)),
}
