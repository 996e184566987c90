"""Elementary functions in float64; see the package for the accuracy promised."""

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

_LOG2E = 1.4426950408889634
# log(2) in two parts (fdlibm): the first has 33 bits, so its product with n is exact.
_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
_EXP_LOW = -746.0
_EXP_HIGH = 710.0

_exp_tail = polynomial(
    0.5, 0.16666666666666682, 0.041666666666666095, 0.008333333333316982,
    0.0013888888889116344, 0.00019841269896515783, 2.4801586925749855e-05,
    2.7557234727240723e-06, 2.7557582257241483e-07, 2.51120846874863e-08,
    2.0826589630851403e-09,
)  # fmt: skip


@inlined
def exp(x):
    """``e**x``: overflow gives inf, underflow goes through the subnormals to 0."""
    low = x < _EXP_LOW
    x = choose(low, 0.0, x)  # processors are slow where a result is rounded to 0
    x = _EXP_HIGH if x > _EXP_HIGH else x
    shifted, n = rint_shift(x, _LOG2E)
    r = fma(-n, _LN2_LO, fma(-n, _LN2_HI, x))
    y = ldexp_shifted(1.0 + fma(r * r, _exp_tail(r), r), shifted)
    return choose(low, 0.0, y)


_log_tail = polynomial(
    0.6666666666666735, 0.3999999999941313, 0.2857142874276582, 0.22222198531164306,
    0.18183566667436674, 0.15313986819174266, 0.14796624058164984,
)  # fmt: skip


@inlined
def log(x):
    """Natural logarithm: -inf at 0 (either sign), NaN below, inf at inf.

    With ``s = f / (2 + f)``, ``log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2)))`` (fdlibm's e_log.c).
    """
    m, e = frexp(x)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    half_f2 = 0.5 * f * f
    tail = fma(s, fma(z, _log_tail(z), half_f2), e * _LN2_LO)
    y = fma(e, _LN2_HI, f - (half_f2 - tail))
    y = y if x < np.inf else x
    y = np.nan if x < 0.0 else y
    return -np.inf if x == 0.0 else y


_tanh_tail = polynomial(
    -0.33333333333332876, 0.13333333333264313, -0.053968253932202004, 0.021869487595534618,
    -0.008863221234946341, 0.0035919908900195418, -0.0014549669775192498,
    0.0005863410078085071, -0.00022860998471659928, 7.719265767786252e-05,
    -1.6094531486614297e-05,
)  # fmt: skip


@inlined
def tanh(x):
    """``tanh``: a polynomial below 0.625, ``1 - 2 / (e**2x + 1)`` above."""
    t = fabs(x)
    s = x * x
    small = fma(t * s, _tanh_tail(s), t)
    large = 1.0 - 2.0 / (exp(t + t) + 1.0)
    return copysign(small if t < 0.625 else large, x)


_erf_small = polynomial(
    0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787,
    0.005223977624828387, -0.0008548326981423505, 0.00012055331132896537,
    -1.492559577107028e-05, 1.6461008464357767e-06, -1.6350396120600667e-07,
    1.466032827083064e-08, -1.1374954785620422e-09, 5.960684910085315e-11,
)  # fmt: skip
_erfc_log = polynomial(
    0.12837920105982403, 0.6366193647262128, 0.10277490036055979, -0.019136531546084214,
    -0.00018925564909991153, 0.001659569691322695, -0.0005380994908071006,
    -3.253242988387676e-05, 0.00011702493631638193, -6.774742784155239e-05,
    2.54330540979347e-05, -7.141685135429266e-06, 1.558017906136983e-06,
    -2.652580623004431e-07, 3.47397246705083e-08, -3.3879983622968783e-09,
    2.3194208220583974e-10, -9.946575034197444e-12, 2.0098444905866656e-13,
)  # fmt: skip


@inlined
def erf(x):
    """The error function: ``x + x q(x^2)`` below 1, ``1 - exp(-(x + x p(x)))`` above."""
    t = fabs(x)
    small = fma(t, _erf_small(x * x), t)
    t = 6.0 if t > 6.0 else t  # erf(6) rounds to 1
    large = 1.0 - exp(-fma(t, _erfc_log(t), t))
    return copysign(small if t < 1.0 else large, x)


QUARTERS = 0.6366197723675814  # in a radian: 2 / pi
# pi / 2 in four parts (Cody and Waite 1980): the first two have 26 bits, so that their products
# with n, and the differences, are exact up to ``FAR``; none is negative, so that -0.0 stays.
TURN = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736765e-17, 1.0828566739219139e-32)
FAR = 1e8

sine_tail = polynomial(
    -0.16666666666666632, 0.008333333333322398, -0.000198412698297941,
    2.7557313686955763e-06, -2.5050757308172936e-08, 1.5896747232329487e-10,
)  # fmt: skip
cosine_tail = polynomial(
    0.041666666666666616, -0.0013888888888876148, 2.4801587290571496e-05,
    -2.7557314630520376e-07, 2.0875757317663012e-09, -1.1361256653655935e-11,
)  # fmt: skip


# Mills' ratio: normal_cdf(-u) exp(u^2/2) (u + 5) as a polynomial in (u-5) / (u+5), u < 40.
_mills = polynomial(
    0.769193049750063, -0.6653825028900567, 0.49530561596997746, -0.3135331566712959,
    0.16502036617032986, -0.06911863870658173, 0.020795066800996694, -0.002993376766495188,
    -0.0007978694096941731, 0.0005448990312484097, -5.937566467381587e-05,
    -4.9762641656990584e-05, 1.6681004978642825e-05, 3.980333351117017e-06,
    -2.768875376076866e-06, -3.354123893239463e-07, 4.3279474109008676e-07,
    4.0696149936889875e-08, -6.597455253664737e-08, -8.143820189476422e-09,
    7.964548737007062e-09, 1.379431528784158e-09, -3.234539333958149e-10,
)  # fmt: skip
_FAR = 39.0  # normal_cdf(-u) rounds to 0 beyond it
_INV_SQRT_2PI = 0.3989422804014327


@inlined
def _bell(u):
    """``(m, k)`` with ``exp(-u^2 / 2) = m 2^k`` for ``0 <= u <= 39.0``, ``k`` shifted.

    The exponential amplifies the rounding of ``u^2`` by ``u^2`` itself; fma recovers what was
    rounded off.
    """
    s = u * u
    rounded_off = fma(u, u, -s)
    shifted, n = rint_shift(s, -0.5 * _LOG2E)
    r = fma(-n, _LN2_LO, fma(-n, _LN2_HI, -0.5 * s))
    r = fma(rounded_off, -0.5, r)
    return 1.0 + fma(r * r, _exp_tail(r), r), shifted


@inlined
def _mills_ratio(u):
    """``normal_cdf(-u) exp(u^2 / 2)``"""
    inverse = 1.0 / (u + 5.0)
    return _mills((u - 5.0) * inverse) * inverse


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
    return fma(x, 0.0 if x < 0.0 else 1.0, -tail)


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
    slope = part if x < 0.0 else 1.0 - part
    return slope if u <= _FAR else x * 0.0 + (0.0 if x < 0.0 else 1.0)
