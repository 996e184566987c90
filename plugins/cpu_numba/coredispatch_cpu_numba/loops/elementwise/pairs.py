"""Loops over two arrays: ``(x, y, width, step, out)``, which count stretches.

Stretch ``r`` is ``x[r * width : (r + 1) * width]``, beside it lies ``y[r * step :]``. So one loop
serves two arrays (a step as large as the width), a row for each row of the first (a step of 0), and
a number: a stretch of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import (
    choose,
    copysign,
    fabs,
    floor,
    full_vectors,
    fused,
    neighbour,
)
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

Scalar = Callable[[SimpleNamespace], Callable[..., Any]]

_fmod_of_library = types.ExternalFunction("fmod", types.float64(types.float64, types.float64))


def _pairs(scalar: Scalar, dtypes: str = "fd") -> Loop:
    def build(char: str) -> Callable[..., None]:
        f = inlined(scalar(elementary[char]))

        def loop(x, y, width, step, out, lo, hi):
            full_vectors()
            for r in range(lo, hi):
                stop = min((r + 1) * width, x.size)
                a, o = part(x, r * width, stop), part(out, r * width, stop)
                b = part(y, r * step, r * step + a.size)
                for i in range(a.size):
                    put(o, i, f(item(a, i), item(b, i)))

        return loop

    return Loop("aanna", build, dtypes=dtypes)


# ---- what is left of a quotient ---------------------------------------------------------------


def _rests(scalar: Callable[..., Callable[..., Any]]) -> Loop:
    """``scalar(rest, T)`` of two numbers, where ``rest`` is C's ``fmod``.

    With ``q`` the quotient rounded down, ``x - q y`` is a number of the dtype, and a fused
    multiply-add finds it, as long as ``q`` is whole to the last digit. A rounded quotient may be
    the next whole number, which shows in the sign. Stretches with larger quotients are left to C.
    """

    def build(char: str) -> Callable[..., None]:
        T = np.float32 if char == "f" else np.float64
        most, zero = T(2.0 ** (23 if char == "f" else 52)), T(0.0)

        @inlined
        def near(x, y):
            a, b = fabs(x), fabs(y)
            rest = fused(-floor(a / b), b, a)
            rest = choose(rest < zero, rest + b, rest)
            return copysign(choose(a < b, a, rest), x)

        @inlined
        def any_size(x, y):
            return T(_fmod_of_library(np.float64(x), np.float64(y)))

        of_near, of_any = inlined(scalar(near, T)), inlined(scalar(any_size, T))

        @compiled(fastmath={"contract"})
        def each(x, y, out):
            for i in range(x.size):
                put(out, i, of_any(item(x, i), item(y, i)))

        @inlined
        def beyond(x, y):
            found = np.int32(0)
            for i in range(x.size):
                found |= np.int32(fabs(item(x, i)) > most * fabs(item(y, i)))
            return found != 0

        def loop(x, y, width, step, out, lo, hi):
            full_vectors()
            for r in range(lo, hi):
                stop = min((r + 1) * width, x.size)
                a, o = part(x, r * width, stop), part(out, r * width, stop)
                b = part(y, r * step, r * step + a.size)
                if beyond(a, b):
                    each(a, b, o)
                else:
                    for i in range(a.size):
                        put(o, i, of_near(item(a, i), item(b, i)))

        return loop

    return Loop("aanna", build)


def _fmod(rest: Any, T: Any) -> Callable[..., Any]:
    return lambda x, y: rest(x, y)


def _remainder(rest: Any, T: Any) -> Callable[..., Any]:
    zero = T(0.0)

    def remainder(x, y):
        left = rest(x, y)
        moved = choose((y < zero) != (left < zero), left + y, left)
        return choose(left == zero, choose(y == zero, left, copysign(zero, y)), moved)

    return remainder


def _floor_divide(rest: Any, T: Any) -> Callable[..., Any]:
    zero, half, one = T(0.0), T(0.5), T(1.0)

    def floor_divide(x, y):
        left = rest(x, y)
        quotient = (x - left) / y
        other_side = (left != zero) & ((y < zero) != (left < zero))
        quotient = choose(other_side, quotient - one, quotient)
        below = floor(quotient)
        below = choose(quotient - below > half, below + one, below)
        divided = x / y
        whole = choose(quotient == zero, copysign(zero, divided), below)
        return choose(y == zero, divided, whole)

    return floor_divide


# ---- others -----------------------------------------------------------------------------------


def _logaddexp(base: float) -> Scalar:
    """``log(base^x + base^y)`` to that base.

    The logarithm of ``1 + e`` rounded, and what was rounded off by its derivative.
    """

    def scalar(e: SimpleNamespace) -> Callable[..., Any]:
        exp, log, one = e.exp, e.log, e.T(1.0)
        unit, inverse = e.T(math.log(base)), e.T(1.0 / math.log(base))
        same = e.T(math.log(2.0) / math.log(base))

        def logaddexp(x, y):
            high = choose(x > y, x, y)
            power = exp(-fabs(x - y) * unit)
            total = one + power
            rest = log(total) + (power - (total - one)) / total
            return choose(x == y, x + same, high + rest * inverse)

        return logaddexp

    return scalar


def _xlogy(e: SimpleNamespace) -> Callable[..., Any]:
    log, zero = e.log, e.T(0.0)

    def xlogy(x, y):
        value = choose(x == zero, zero, x * log(y))
        return choose(y == y, value, y)

    return xlogy


def _hypot(e: SimpleNamespace) -> Callable[..., Any]:
    """float32 in float64; of float64 the squares are kept in range by a power of two."""
    if e.T is np.float32:

        def single(x, y):
            a, b = np.float64(x), np.float64(y)
            infinite = (fabs(x) == np.float32(np.inf)) | (fabs(y) == np.float32(np.inf))
            return choose(infinite, np.float32(np.inf), np.float32(math.sqrt(a * a + b * b)))

        return single

    def hypot(x, y):
        a, b = fabs(x), fabs(y)
        large = choose(a > b, a, b)
        up = choose(large < 2.0**-450, 2.0**600, 1.0)
        factor = choose(large > 2.0**500, 2.0**-600, up)
        a, b = a * factor, b * factor
        size = math.sqrt(a * a + b * b) / factor
        return choose((fabs(x) == np.inf) | (fabs(y) == np.inf), np.inf, size)

    return hypot


LOOPS: dict[str, Loop] = {
    "copysign": _pairs(lambda e: lambda x, y: copysign(x, y)),
    "floor_divide": _rests(_floor_divide),
    "fmod": _rests(_fmod),
    "hypot": _pairs(_hypot),
    "logaddexp": _pairs(_logaddexp(math.e)),
    "logaddexp2": _pairs(_logaddexp(2.0)),
    "nextafter": _pairs(lambda e: lambda x, y: neighbour(x, y)),
    "remainder": _rests(_remainder),
    "xlogy": _pairs(_xlogy),
}
