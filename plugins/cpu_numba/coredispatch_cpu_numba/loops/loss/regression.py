"""Losses of pairs of numbers: of each pair, and their sums in blocks.

Sums are taken in the dtype within a block and carried in float64 from block to block. A block is
what is counted then.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION, Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, fabs, full_vectors
from coredispatch_cpu_numba.layout import BLOCK
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

Scalar = Callable[[SimpleNamespace], Callable[..., Any]]


def _huber(e: SimpleNamespace) -> Callable[..., Any]:
    """A parabola up to ``bend``, and a line of ``slope``; ``curve`` is that of the parabola."""

    def huber(x, y, bend, curve, slope):
        d = fabs(x - y)
        near = choose(d < bend, d, bend)
        return near * near * curve + (d - near) * slope

    return huber


def _squared(e: SimpleNamespace) -> Callable[..., Any]:
    return lambda x, y, bend, curve, slope: (x - y) * (x - y)


def _absolute(e: SimpleNamespace) -> Callable[..., Any]:
    return lambda x, y, bend, curve, slope: fabs(x - y)


def _logits(e: SimpleNamespace) -> Callable[..., Any]:
    """``(1 - y) x + log(1 + exp(-x))``, without a difference of large numbers on either side.

    Of a logit of -inf the difference is taken all the same: it says what comes out, as elsewhere.
    """
    exp, log, zero, one, least = e.exp, e.log, e.T(0.0), e.T(1.0), e.T(-np.inf)

    def logits(x, y, bend, curve, slope):
        power = exp(-fabs(x))
        total = one + power
        small = log(total) + (power - (total - one)) / total  # and what `total` rounded off
        rest = (one - y) * x
        return choose(x >= zero, rest, choose(x > least, -x * y, rest - x)) + small

    return logits


def _divergence(e: SimpleNamespace) -> Callable[..., Any]:
    log, zero = e.log, e.T(0.0)

    def divergence(x, y, bend, curve, slope):
        return choose(y == zero, zero, y * log(y)) - y * x

    return divergence


def _log_divergence(e: SimpleNamespace) -> Callable[..., Any]:
    exp = e.exp
    return lambda x, y, bend, curve, slope: exp(y) * (y - x)


def _each(scalar: Scalar) -> Loop:
    """``(x, y, bend, curve, slope, out)``"""

    def build(char: str) -> Callable[..., None]:
        f = inlined(scalar(elementary[char]))

        def loop(x, y, bend, curve, slope, out, lo, hi):
            full_vectors()
            x, y, out = part(x, lo, hi), part(y, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, f(item(x, i), item(y, i), bend, curve, slope))

        return loop

    return Loop("aasssa", build)


def _summed(scalar: Scalar) -> Loop:
    """``(x, y, bend, curve, slope, sums)``"""

    def build(char: str) -> Callable[..., None]:
        f, zero = inlined(scalar(elementary[char])), elementary[char].T(0.0)

        @compiled(fastmath=set(REDUCTION), forceinline=True)
        def block_sum(x, y, bend, curve, slope):
            total = zero
            for i in range(x.size):
                total += f(x[i], y[i], bend, curve, slope)
            return total

        def loop(x, y, bend, curve, slope, sums, lo, hi):
            full_vectors()
            for block in range(lo, hi):
                start, stop = block * BLOCK, min(x.size, block * BLOCK + BLOCK)
                pieces = part(x, start, stop), part(y, start, stop)
                sums[block] = np.float64(block_sum(*pieces, bend, curve, slope))

        return loop

    return Loop("aasssd", build)


_SCALARS: dict[str, Scalar] = {
    "absolute": _absolute,
    "divergence": _divergence,
    "huber": _huber,
    "log_divergence": _log_divergence,
    "logits": _logits,
    "squared": _squared,
}
LOOPS: dict[str, Loop] = {}
for _name, _scalar in _SCALARS.items():
    LOOPS[_name] = _each(_scalar)
    LOOPS[_name + "_sums"] = _summed(_scalar)
