"""Optimizer steps: one pass over the parameter, its gradient and its state, in place.

Without a penalty nothing is added: 0 times an infinite weight is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import part

__all__ = ["LOOPS"]


def _adam(char: str) -> Callable[..., None]:
    """Kingma and Ba 2015, algorithm 1; ``shrink`` is AdamW's decay, ``penalty`` the L2 one.

    ``rest1`` and ``rest2`` are 1 minus the betas: of 0.999 in float32 that is off by 1e-5.
    """
    zero = elementary[char].T(0.0)

    def loop(
        param,
        grad,
        mean,
        square,
        sign,
        penalty,
        shrink,
        rest1,
        beta2,
        rest2,
        correction,
        eps,
        rate,
        lo,
        hi,
    ):
        full_vectors()
        p, g, m, v = (
            part(param, lo, hi),
            part(grad, lo, hi),
            part(mean, lo, hi),
            part(square, lo, hi),
        )
        for i in range(p.size):
            weight = p[i] * shrink
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            first = m[i] + rest1 * (d - m[i])
            second = beta2 * v[i] + rest2 * (d * d)
            m[i] = first
            v[i] = second
            p[i] = weight - rate * (first / (math.sqrt(second) * correction + eps))

    return loop


def _sgd(char: str) -> Callable[..., None]:
    """Without momentum."""
    zero = elementary[char].T(0.0)

    def loop(param, grad, sign, penalty, rate, lo, hi):
        full_vectors()
        p, g = part(param, lo, hi), part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i]
            decay = penalty * weight if penalty != zero else zero
            p[i] = weight - rate * (sign * g[i] + decay)

    return loop


def _sgd_momentum(nesterov: bool) -> Callable[[str], Callable[..., None]]:
    """Sutskever et al. 2013; on the first step ``momentum`` is 0 and ``fresh`` 1."""

    def build(char: str) -> Callable[..., None]:
        zero = elementary[char].T(0.0)

        def loop(param, grad, buffer, sign, penalty, momentum, fresh, ahead, rate, lo, hi):
            full_vectors()
            p, g, b = part(param, lo, hi), part(grad, lo, hi), part(buffer, lo, hi)
            for i in range(p.size):
                weight = p[i]
                d = sign * g[i] + (penalty * weight if penalty != zero else zero)
                velocity = momentum * b[i] + fresh * d
                b[i] = velocity
                p[i] = weight - rate * (d + ahead * velocity if nesterov else velocity)

        return loop

    return build


LOOPS: dict[str, Loop] = {
    "adam": Loop("aaaasssssssss", _adam),
    "sgd": Loop("aasss", _sgd),
    "sgd_momentum": Loop("aaassssss", _sgd_momentum(False)),
    "sgd_nesterov": Loop("aaassssss", _sgd_momentum(True)),
}
