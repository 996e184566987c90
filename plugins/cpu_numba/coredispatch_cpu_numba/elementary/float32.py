"""Elementary functions in float32; see the package for the accuracy promised."""

from __future__ import annotations

import numpy as np

from ..intrinsics import (
    choose,
    copysign,
    fabs,
    fma,
    frexp,
    ldexp_downward,
    ldexp_shifted,
    polynomial,
    rint_shift,
)
from .inlined import inlined

__all__ = [
    "FAR",
    "QUARTERS",
    "TURN",
    "cosine_tail",
    "erf",
    "exp",
    "gelu",
    "gelu_slope",
    "log",
    "sine_tail",
    "tanh",
]

_f = np.float32

_LOG2E = _f(1.4426950408889634)
# log(2) in two parts (Cephes): the first has 9 bits, so its product with n is exact.
_LN2_HI = _f(0.693359375)
_LN2_LO = _f(-2.12194440e-4)
_EXP_LOW = _f(-104.0)  # below log of half the smallest subnormal
_EXP_HIGH = _f(89.0)  # above log of the largest number

_exp_tail = polynomial(
    0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514,
    0.001381453825160861,
)  # fmt: skip


@inlined
def exp(x):
    """``e**x``: overflow gives inf, underflow goes through the subnormals to 0."""
    low = x < _EXP_LOW
    x = choose(low, _f(0.0), x)  # processors are slow where a result is rounded to 0
    x = _EXP_HIGH if x > _EXP_HIGH else x
    shifted, n = rint_shift(x, _LOG2E)
    r = fma(-n, _LN2_LO, fma(-n, _LN2_HI, x))
    y = ldexp_shifted(_f(1.0) + fma(r * r, _exp_tail(r), r), shifted)
    return choose(low, _f(0.0), y)


_log_tail = polynomial(
    0.3333331048488617, -0.24999986588954926, 0.20002241432666779, -0.16669271886348724,
    0.1421833485364914, -0.12383779883384705, 0.11874998360872269, -0.11794175952672958,
    0.06915854662656784,
)  # fmt: skip


@inlined
def log(x):
    """Natural logarithm: -inf at 0 (either sign), NaN below, inf at inf."""
    m, e = frexp(x)
    f = m - _f(1.0)
    f2 = f * f
    tail = fma(f2 * f, _log_tail(f), e * _LN2_LO)
    y = fma(e, _LN2_HI, fma(f2, _f(-0.5), tail) + f)
    y = y if x < _f(np.inf) else x  # inf and NaN
    y = _f(np.nan) if x < _f(0.0) else y
    return _f(-np.inf) if x == _f(0.0) else y


_tanh_tail = polynomial(
    -0.3333328366279602, 0.133314847946167, -0.05374293774366379, 0.02064865455031395,
    -0.005714780651032925,
)  # fmt: skip


@inlined
def tanh(x):
    """``tanh``: a polynomial below 0.625, ``1 - 2 / (e**2x + 1)`` above."""
    t = fabs(x)
    s = x * x
    small = fma(t * s, _tanh_tail(s), t)
    large = _f(1.0) - _f(2.0) / (exp(t + t) + _f(1.0))
    return copysign(small if t < _f(0.625) else large, x)


_erf_small = polynomial(
    0.12837915122509003, -0.37612494826316833, 0.11281802505254745, -0.026765568181872368,
    0.004990980960428715, -0.0005976895918138325,
)  # fmt: skip
_erfc_log = polynomial(
    0.1285107582807541, 0.6357309818267822, 0.10524462908506393, -0.022878585383296013,
    0.0032113094348460436, -0.00021353185002226382,
)  # fmt: skip


@inlined
def erf(x):
    """The error function: ``x + x q(x^2)`` below 0.92, ``1 - exp(-(x + x p(x)))`` above."""
    t = fabs(x)
    small = fma(t, _erf_small(x * x), t)
    t = _f(4.0) if t > _f(4.0) else t  # erf(4) rounds to 1
    large = _f(1.0) - exp(-fma(t, _erfc_log(t), t))
    return copysign(small if t < _f(0.92) else large, x)


QUARTERS = _f(0.6366197723675814)  # in a radian: 2 / pi
# pi / 2 in four parts (Cody and Waite 1980): the first two have 11 bits, so that their products
# with n, and the differences, are exact up to ``FAR``; none is negative, so that -0.0 stays.
TURN = (
    _f(1.5703125),
    _f(0.0004837512969970703),
    _f(7.549789415861596e-08),
    _f(5.390302529957765e-15),
)
FAR = _f(12800.0)

sine_tail = polynomial(
    -0.16666655242443085, 0.008332177065312862, -0.00019517137843649834,
)  # fmt: skip
cosine_tail = polynomial(
    0.04166664555668831, -0.0013887366512790322, 2.4438271793769673e-05,
)  # fmt: skip


# Mills' ratio: normal_cdf(-u) exp(u^2/2) (u + 4) as a polynomial in (u-4) / (u+4), u < 15.
_mills = polynomial(
    0.7552851438522339, -0.6078965663909912, 0.38713690638542175, -0.1865236610174179,
    0.0604034885764122, -0.007524004206061363, -0.0035102106630802155, 0.0015684084501117468,
    0.0001746589259710163, -0.0001341965835308656,
)  # fmt: skip
_FAR = _f(14.5)  # normal_cdf(-u) rounds to 0 beyond it
_INV_SQRT_2PI = _f(0.3989422804014327)


@inlined
def _bell(u):
    """``(m, k)`` with ``exp(-u^2 / 2) = m 2^k`` for ``0 <= u <= 14.5``, ``k`` shifted.

    The exponential amplifies the rounding of ``u^2`` by ``u^2`` itself; fma recovers what was
    rounded off.
    """
    s = u * u
    rounded_off = fma(u, u, -s)
    shifted, n = rint_shift(s, _f(-0.5) * _LOG2E)
    r = fma(-n, _LN2_LO, fma(-n, _LN2_HI, _f(-0.5) * s))
    r = fma(rounded_off, _f(-0.5), r)
    return _f(1.0) + fma(r * r, _exp_tail(r), r), shifted


@inlined
def _mills_ratio(u):
    """``normal_cdf(-u) exp(u^2 / 2)``"""
    inverse = _f(1.0) / (u + _f(4.0))
    return _mills((u - _f(4.0)) * inverse) * inverse


@inlined
def gelu(x):
    """``x P(N <= x)`` for a standard normal ``N`` (Hendrycks and Gimpel 2016).

    That is ``max(x, 0) - u P(N <= -u)`` with ``u = |x|``: both tails keep their digits, where
    ``(1 + erf(x / sqrt 2)) / 2`` has none left in the lower one.
    """
    u = fabs(x)
    near = _FAR if u > _FAR else u
    m, shifted = _bell(near)
    tail = ldexp_downward(near * _mills_ratio(near) * m, shifted)
    # 0 beyond _FAR; the product is NaN at -inf, as that of the definition is
    return fma(x, _f(0.0) if x < _f(0.0) else _f(1.0), -tail)


@inlined
def gelu_slope(x):
    """The derivative of :func:`gelu`: ``P(N <= x) + x p(x)`` with ``p`` the density of ``N``."""
    u = fabs(x)
    near = _FAR if u > _FAR else u
    m, shifted = _bell(near)
    density = near * _INV_SQRT_2PI
    tail = _mills_ratio(near)
    # below 0: tail - u p(u); above: 1 - (tail - u p(u))
    part = ldexp_downward((tail - density) * m, shifted)
    slope = part if x < _f(0.0) else _f(1.0) - part
    return slope if u <= _FAR else x * _f(0.0) + (_f(0.0) if x < _f(0.0) else _f(1.0))
