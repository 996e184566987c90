"""The regularized incomplete gamma functions, one element at a time, in float64.

The same ways and the same boundaries between them as the operator's own definition, with as many
terms as each element needs: series and continued fraction of NIST's Digital Library of Mathematical
Functions (8.11.4, 8.7.3, 8.9.2) and Temme's uniform expansion (8.12.3), whose table is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import types

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop

__all__ = ["LOOPS"]

#: that of the C library: Numba's own loses four digits between 1 and 3
_lgamma = types.ExternalFunction("lgamma", types.float64(types.float64))
_scalar = compiled()
#: where a sum ends: of results in float64, and of those that are rounded to float32 or less
_EPSILON, _EPSILON_ROUNDED = 2.0**-53, 2.0**-32
_MOST_TERMS = 2000
_BIG = 2.0**52
_TERMS, _POWERS = 10, 22


@_scalar
def _log_below(a, x):
    """``log(1 + mu) - mu`` of ``mu = x / a - 1``"""
    mu = (x - a) / a
    if abs(mu) >= 0.3:
        return math.log(x / a) - mu
    s = mu / (2 + mu)
    square = s * s
    series = 0.0
    for k in range(13, -1, -1):
        series = series * square + 2.0 / (2 * k + 3)
    return s * square * series - mu * s


@_scalar
def _stirling(inverse):
    """``log(gamma(a + 1)) - (a + 1/2) log(a) + a - log(2 pi) / 2`` of ``inverse = 1 / a``"""
    square = inverse * inverse
    series = 1 / 1188 + square * (-691 / 360360 + square / 156)
    series = 1 / 1260 + square * (-1 / 1680 + square * series)
    return inverse * (1 / 12 + square * (-1 / 360 + square * series))


@_scalar
def _factor(a, x, epsilon):
    """``x**a exp(-x) / gamma(a + 1)``

    A power is taken where it can be: the rounding of an exponent of hundreds is an error of as
    many units in the result.
    """
    if a < 10 and 1e-300 < x < 600:
        # gamma(z + 1) of z = a + 8 by Stirling's series, and down from there by its recurrence
        z = a + 8
        inverse = 1 / z
        # pairs side by side: one after the other, eight factors take as long as the exponential
        first, second = (a + 1) * (a + 2), (a + 3) * (a + 4)
        third, fourth = (a + 5) * (a + 6), (a + 7) * (a + 8)
        square = inverse * inverse
        product = (first * square) * (second * square) * ((third * square) * (fourth * square))
        rest = z - x - _stirling(inverse)
        if epsilon > _EPSILON:  # an exponent is exact enough, and a power costs more
            power = math.exp(a * math.log(x * inverse) + rest)
        else:
            power = (x * inverse) ** a * math.exp(rest)
        return power * product / math.sqrt(2 * math.pi * z)
    if a < 10:
        return math.exp(a * math.log(x) - x - _lgamma(a + 1))
    stirling = _stirling(1 / a)
    if a < 200 and abs(x - a) >= 0.3 * a:
        below = x / a
        power = (below * math.exp(1 - below)) ** a * math.exp(-stirling)
    else:
        power = math.exp(a * _log_below(a, x) - stirling)
    return power / math.sqrt(2 * math.pi * a)


@_scalar
def _lower_series(a, x, epsilon):
    term = total = 1.0
    r = a
    if a > _BIG:  # whose squares may overflow
        for _ in range(_MOST_TERMS):
            r += 1
            term *= x / r
            total += term
            if term <= total * epsilon:
                break
        return total * _factor(a, x, epsilon)
    square = x * x
    for _ in range(_MOST_TERMS // 2):  # two terms for each division
        inverse = 1 / ((r + 1) * (r + 2))
        total += term * (inverse * (x * (r + 2) + square))
        term *= inverse * square
        r += 2
        if term <= total * epsilon:
            break
    return total * _factor(a, x, epsilon)


@_scalar
def _upper_series(a, x, epsilon):
    power, total = 1.0, 0.0
    for n in range(1, _MOST_TERMS):
        power *= -x / n
        term = power / (a + n)
        total += term
        if abs(term) <= abs(total) * epsilon:
            break
    scaled = a * math.log(x)
    first = -math.expm1(scaled - _lgamma(a + 1))
    return first - math.exp(scaled - _lgamma(a)) * total


@_scalar
def _upper_fraction(a, x, epsilon):
    y, z = 1 - a, x + (1 - a) + 1
    p_before, q_before, p, q = 1.0, x, x + 1, z * x
    out = p / q
    for n in range(1, _MOST_TERMS):
        y, z = y + 1, z + 2
        p_next = p * z - p_before * (y * n)
        q_next = q * z - q_before * (y * n)
        changed = p_next / q_next
        change = abs(out - changed)
        out = changed
        p_before, p, q_before, q = p, p_next, q, q_next
        if abs(p) > _BIG:
            p_before, p, q_before, q = p_before / _BIG, p / _BIG, q_before / _BIG, q / _BIG
        if change <= abs(out) * epsilon:
            break
    return out * a * _factor(a, x, epsilon)


@_scalar
def _uniform(a, x, sign, table):
    square = -2 * _log_below(a, x)
    eta = math.copysign(math.sqrt(max(square, 0.0)), x - a)
    total = 0.0
    for k in range(_TERMS - 1, -1, -1):
        row = 0.0
        for n in range(_POWERS - 1, -1, -1):
            row = row * eta + table[k * _POWERS + n]
        total = total / a + row
    tail = math.exp(-0.5 * a * square) * total / math.sqrt(2 * math.pi * a)
    return 0.5 * math.erfc(sign * eta * math.sqrt(a / 2)) + sign * tail


@_scalar
def _edge(a, x, upper):
    """The value at the edges of the domain; NaN outside of it."""
    if not (a >= 0 and x >= 0) or (a == 0 and x == 0) or (np.isinf(a) and np.isinf(x)):
        return np.nan
    one = 1.0 if upper else 0.0
    if np.isinf(a):
        return one
    return 1 - one if np.isinf(x) or x > 0 else one


@_scalar
def _regularized(a, x, upper, epsilon, table):
    if not (0 < a < np.inf and 0 < x < np.inf):
        return _edge(a, x, upper)
    limit = 4.5 / math.sqrt(a) if a > 200 else (0.3 if a > 20 else 0.0)
    if abs(x - a) / a < limit:
        return _uniform(a, x, 1.0 if upper else -1.0, table)
    if epsilon > _EPSILON and a >= 0.5 and x < a + 2:
        # Neither half is below 1/40: what one less the other loses is rounded away.
        p = _lower_series(a, x, epsilon)
        return 1 - p if upper else p
    if x > 1.1 and x >= a:
        q = _upper_fraction(a, x, epsilon)
        return q if upper else 1 - q
    if x > 1.1:
        lower = True
    else:
        lower = -0.4 / math.log(x) < a if x <= 0.5 else 1.1 * x < a
    if lower:
        p = _lower_series(a, x, epsilon)
        return 1 - p if upper else p
    q = _upper_series(a, x, epsilon)
    return q if upper else 1 - q


def _igamma(char: str) -> Callable[..., None]:
    def loop(a, x, table, upper, rounded, out, lo, hi):
        epsilon = _EPSILON_ROUNDED if rounded else _EPSILON
        for i in range(lo, hi):
            out[i] = _regularized(a[i], x[i], upper != 0, epsilon, table)

    return loop


LOOPS: dict[str, Loop] = {"igamma": Loop("aadnna", _igamma)}
