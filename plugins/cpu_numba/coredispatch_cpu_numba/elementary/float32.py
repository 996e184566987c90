"""Elementary functions in float32; see the package for the accuracy promised."""

from __future__ import annotations

import numpy as np

from ..intrinsics import (
    choose,
    copysign,
    fabs,
    fma,
    frexp,
    ldexp_shifted,
    polynomial,
    raised,
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


# Mills' ratio: normal_cdf(-u) exp(u^2/2) (u + 3) as a polynomial in u / (u+3) - 3/8, u < 14.5.
_mills = polynomial(
    0.8714839220046997, -1.2648398876190186, 1.042116641998291, -0.2631551921367645,
    -0.2832558751106262, 0.1395110934972763, 0.1398765593767166, -0.047587305307388306,
    -0.06732530146837234,
)  # fmt: skip
_MIDDLE = _f(0.375)
_FAR = _f(14.5)  # normal_cdf(-u) rounds to 0 beyond it
_INV_SQRT_2PI = _f(0.3989422804014327)
# (2^r - 1) / r for |r| < 0.5003: with what gelu loses elsewhere, a degree less than exp has will do
# and 2^64 times as much: so raised, the exponentials of all that is not _FAR are normal numbers
_RAISED, _LOWER = _f(2.0**64), _f(2.0**-64)
_exp2_tail = polynomial(
    *(
        2.0**64 * c
        for c in (
            0.6931470036506653, 0.24022240936756134, 0.055507346987724304, 0.00967157632112503,
            0.0013264642329886556,
        )
    )
)  # fmt: skip
# -1 / (2 log 2) in two parts
_FALL_HI = _f(-0.7213475108146667)
_FALL_LO = _f(-9.629815167500055e-09)


@inlined
def _bell(u):
    """``2^64 exp(-u^2 / 2)`` for ``0 <= u <= 14.5``.

    The exponential amplifies the rounding of ``u^2`` by ``u^2`` itself; fma recovers what was
    rounded off.
    """
    s = u * u
    rounded_off = fma(u, u, -s)
    shifted, n = rint_shift(s, _FALL_HI)
    r = fma(s, _FALL_LO, fma(s, _FALL_HI, -n))
    r = fma(rounded_off, _FALL_HI, r)
    return raised(fma(r, _exp2_tail(r), _RAISED), shifted)


@inlined
def gelu(x):
    """``x P(N <= x)`` for a standard normal ``N`` (Hendrycks and Gimpel 2016).

    That is ``max(x, 0) - u P(N <= -u)`` with ``u = |x|``: both tails keep their digits, where
    ``(1 + erf(x / sqrt 2)) / 2`` has none left in the lower one.
    """
    u = fabs(x)
    near = _FAR if u > _FAR else u
    share = near / (near + _f(3.0))
    tail = share * _mills(share - _MIDDLE) * _bell(near)
    # -0.0 below 0, but NaN at -inf, as the product of the definition is
    return fma(tail, -_LOWER, choose(x < _f(0.0), x * _f(0.0), x))


@inlined
def gelu_slope(x):
    """The derivative of :func:`gelu`: ``P(N <= x) + x p(x)`` with ``p`` the density of ``N``."""
    u = fabs(x)
    near = _FAR if u > _FAR else u
    density = near * _INV_SQRT_2PI
    inverse = _f(1.0) / (near + _f(3.0))
    tail = _mills(fma(near, inverse, -_MIDDLE)) * inverse
    # below 0: tail - u p(u); above: 1 - (tail - u p(u))
    part = (tail - density) * _bell(near) * _LOWER
    slope = part if x < _f(0.0) else _f(1.0) - part
    return slope if u <= _FAR else x * _f(0.0) + (_f(0.0) if x < _f(0.0) else _f(1.0))
