"""Optimizer steps: one pass over the parameter, its gradient and its state, in place.

What is written stands first, as ``lists`` has it.

Without a penalty nothing is added: 0 times an infinite weight is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import part

__all__ = ["LOOPS"]


def _adam(char: str) -> Callable[..., None]:
    """Kingma and Ba 2015, algorithm 1; ``shrink`` is AdamW's decay, ``penalty`` the L2 one.

    ``rest1`` and ``rest2`` are 1 minus the betas: of 0.999 in float32 that is off by 1e-5.
    """
    zero = elementary[char].T(0.0)

    def loop(
        param,
        mean,
        square,
        grad,
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
        p, m, v = part(param, lo, hi), part(mean, lo, hi), part(square, lo, hi)
        g = part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i] * shrink
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            first = m[i] + rest1 * (d - m[i])
            second = beta2 * v[i] + rest2 * (d * d)
            m[i] = first
            v[i] = second
            p[i] = weight - rate * (first / (math.sqrt(second) * correction + eps))

    return loop


def _amsgrad(char: str) -> Callable[..., None]:
    """Adam by the largest square so far. Reddi, Kale and Kumar, 2018."""
    zero = elementary[char].T(0.0)

    def loop(
        param,
        mean,
        square,
        largest,
        grad,
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
        p, m, v = part(param, lo, hi), part(mean, lo, hi), part(square, lo, hi)
        u, g = part(largest, lo, hi), part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i] * shrink
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            first = m[i] + rest1 * (d - m[i])
            second = beta2 * v[i] + rest2 * (d * d)
            m[i] = first
            v[i] = second
            second = choose((u[i] > second) | (u[i] != u[i]), u[i], second)
            u[i] = second
            p[i] = weight - rate * (first / (math.sqrt(second) * correction + eps))

    return loop


def _nadam(char: str) -> Callable[..., None]:
    """Adam along ``of_grad`` times the gradient and ``of_mean`` times the average.

    That is NAdam (Dozat, 2016). RAdam (Liu et al., 2020) has no share of the gradient, and while
    its variance is too large (``plain``) it does not divide.
    """
    zero, one = elementary[char].T(0.0), elementary[char].T(1.0)

    def loop(
        param,
        mean,
        square,
        grad,
        sign,
        penalty,
        shrink,
        rest1,
        beta2,
        rest2,
        correction,
        eps,
        of_grad,
        of_mean,
        plain,
        lo,
        hi,
    ):
        full_vectors()
        p, m, v = part(param, lo, hi), part(mean, lo, hi), part(square, lo, hi)
        g = part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i] * shrink
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            first = m[i] + rest1 * (d - m[i])
            second = beta2 * v[i] + rest2 * (d * d)
            m[i] = first
            v[i] = second
            ahead = of_mean * first + (of_grad * d if of_grad != zero else zero)
            below = math.sqrt(second) * correction + eps
            p[i] = weight - ahead / choose(plain != zero, one, below)

    return loop


def _adamax(char: str) -> Callable[..., None]:
    """Kingma and Ba 2015, algorithm 2."""
    zero = elementary[char].T(0.0)

    def loop(param, mean, norm, grad, sign, penalty, rest1, beta2, eps, rate, lo, hi):
        full_vectors()
        p, m, u, g = (
            part(param, lo, hi),
            part(mean, lo, hi),
            part(norm, lo, hi),
            part(grad, lo, hi),
        )
        for i in range(p.size):
            weight = p[i]
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            first = m[i] + rest1 * (d - m[i])
            decayed, size = beta2 * u[i], abs(d) + eps
            most = choose((decayed > size) | (decayed != decayed), decayed, size)
            m[i] = first
            u[i] = most
            p[i] = weight - rate * (first / most)

    return loop


def _rmsprop(momentum: bool) -> Callable[[str], Callable[..., None]]:
    """Not centered. Tieleman and Hinton, 2012."""

    def build(char: str) -> Callable[..., None]:
        zero = elementary[char].T(0.0)

        def plain(param, square, grad, sign, penalty, alpha, rest, eps, rate, lo, hi):
            full_vectors()
            p, v, g = part(param, lo, hi), part(square, lo, hi), part(grad, lo, hi)
            for i in range(p.size):
                weight = p[i]
                d = sign * g[i] + (penalty * weight if penalty != zero else zero)
                second = alpha * v[i] + rest * (d * d)
                v[i] = second
                p[i] = weight - rate * (d / (math.sqrt(second) + eps))

        def along(
            param, square, buffer, grad, sign, penalty, alpha, rest, eps, momentum, rate, lo, hi
        ):
            full_vectors()
            p, v, b, g = (
                part(param, lo, hi),
                part(square, lo, hi),
                part(buffer, lo, hi),
                part(grad, lo, hi),
            )
            for i in range(p.size):
                weight = p[i]
                d = sign * g[i] + (penalty * weight if penalty != zero else zero)
                second = alpha * v[i] + rest * (d * d)
                v[i] = second
                velocity = momentum * b[i] + d / (math.sqrt(second) + eps)
                b[i] = velocity
                p[i] = weight - rate * velocity

        return along if momentum else plain

    return build


def _adagrad(char: str) -> Callable[..., None]:
    """Duchi, Hazan and Singer, 2011."""
    zero = elementary[char].T(0.0)

    def loop(param, total, grad, sign, penalty, eps, rate, lo, hi):
        full_vectors()
        p, s, g = part(param, lo, hi), part(total, lo, hi), part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i]
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            whole = s[i] + d * d
            s[i] = whole
            p[i] = weight - rate * (d / (math.sqrt(whole) + eps))

    return loop


def _asgd(char: str) -> Callable[..., None]:
    """Polyak and Juditsky, 1992; ``mu`` of 1 is no share: the average is the parameter."""
    zero, half, one = (elementary[char].T(x) for x in (0.0, 0.5, 1.0))

    def loop(param, average, grad, sign, penalty, shrink, eta, mu, lo, hi):
        full_vectors()
        p, a, g = part(param, lo, hi), part(average, lo, hi), part(grad, lo, hi)
        for i in range(p.size):
            weight = p[i]
            d = sign * g[i] + (penalty * weight if penalty != zero else zero)
            weight = weight * shrink - eta * d
            p[i] = weight
            distance = weight - a[i]
            mixed = choose(mu < half, a[i] + mu * distance, weight - (one - mu) * distance)
            a[i] = choose(mu == one, weight, mixed)

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

        def loop(param, buffer, grad, sign, penalty, momentum, fresh, ahead, rate, lo, hi):
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


def _unscale(char: str) -> Callable[..., None]:
    """``x`` times a number; ``found[0]`` (float64) becomes 1 where an element is not finite."""
    zero = elementary[char].T(0.0)

    def loop(x, found, inverse, lo, hi):
        full_vectors()
        own, bad = part(x, lo, hi), 0
        for i in range(own.size):
            value = own[i]
            bad |= 0 if value - value == zero else 1
            own[i] = value * inverse
        if bad:
            found[0] = 1.0  # threads write nothing else there

    return loop


LOOPS: dict[str, Loop] = {
    "adagrad": Loop("aaassss", _adagrad),
    "adam": Loop("aaaasssssssss", _adam),
    "adamax": Loop("aaaassssss", _adamax),
    "amsgrad": Loop("aaaaasssssssss", _amsgrad),
    "asgd": Loop("aaasssss", _asgd),
    "nadam": Loop("aaaasssssssssss", _nadam),
    "rmsprop": Loop("aaassssss", _rmsprop(False)),
    "rmsprop_momentum": Loop("aaaasssssss", _rmsprop(True)),
    "sgd": Loop("aasss", _sgd),
    "sgd_momentum": Loop("aaassssss", _sgd_momentum(False)),
    "sgd_nesterov": Loop("aaassssss", _sgd_momentum(True)),
    "unscale": Loop("ads", _unscale),
}
