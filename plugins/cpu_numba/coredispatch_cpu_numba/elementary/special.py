"""Special functions of one float64, branch-free as in ``float64``; ``erfinv`` of float32, too.

float32 numbers are computed here as well and rounded once, as the operators' definitions do:
vectors of half as many numbers, but formulas that need no care for what cancels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..building import compiled
from ..intrinsics import (
    choose,
    copysign,
    fabs,
    floor,
    fma,
    ldexp_downward,
    ldexp_shifted,
    polynomial,
    rint,
    rint_shift,
)
from . import float32, float64
from .derived import elementary

__all__ = [
    "digamma",
    "digamma_positive",
    "erfc",
    "erfc_single",
    "erfcx",
    "erfinv",
    "erfinv_single",
    "lgamma",
    "lgamma_positive",
    "log1p",
    "ndtr",
    "ndtr_single",
    "sinc",
    "tanhshrink",
    "trigamma",
    "trigamma_positive",
]

# Products and sums are fused where this says so, and nowhere else: the vectors of a loop, its last
# elements and a block that another loop computes then give the same digits. A sum with a product
# that is chosen has a factor chosen instead: LLVM fuses such sums by itself, in vectors only.
_uncontracted = compiled(forceinline=True)

log = _uncontracted(float64.log.py_func)
_sin, _cos, _tanh = elementary["d"].sin, elementary["d"].cos, elementary["d"].tanh
_INF = np.inf
_PI = math.pi

# ---- error functions --------------------------------------------------------------------------

_LOG2E = 1.4426950408889634
_LN2_HI, _LN2_LO = float64._LN2_HI, float64._LN2_LO
_exp_tail, _mills = float64._exp_tail, float64._mills
_ROOT_TWO = math.sqrt(2.0)


@_uncontracted
def _bell(t, scale):
    """``(m, k)`` with ``exp(-scale t^2) = m 2^k`` for a power of two ``scale``, ``k`` shifted."""
    s = t * t
    rounded_off = fma(t, t, -s)
    shifted, n = rint_shift(s, -scale * _LOG2E)
    r = fma(-n, _LN2_LO, fma(-n, _LN2_HI, -scale * s))
    r = fma(rounded_off, -scale, r)
    return 1.0 + fma(r * r, _exp_tail(r), r), shifted


@_uncontracted
def _mills_ratio(u):
    """As in ``float64``, but ``(u - 5) / (u + 5)`` is found where rounding does least near 0."""
    inverse = 1.0 / (u + 5.0)
    return _mills(fma(u + u, inverse, -1.0)) * inverse


@_uncontracted
def erfc(x):
    """``1 - erf(x)`` by Mills' ratio, which keeps the digits of the upper tail."""
    t = fabs(x)
    near = 27.5 if t > 27.5 else t  # erfc rounds to 0 beyond it
    m, shifted = _bell(near, 1.0)
    tail = ldexp_downward(2.0 * _mills_ratio(near * _ROOT_TWO) * m, shifted)
    return choose(x < 0.0, 2.0 - tail, tail) if x == x else x


@_uncontracted
def ndtr(x):
    """The distribution function of a standard normal variable."""
    u = fabs(x)
    near = 39.0 if u > 39.0 else u
    m, shifted = _bell(near, 0.5)
    tail = ldexp_downward(_mills_ratio(near) * m, shifted)
    return choose(x < 0.0, tail, 1.0 - tail) if x == x else x


# The same for results of float32, where the polynomials may be shorter: that of Mills' ratio times
# u + 3 is one in u / (u + 3) - 3/8, for u < 14.5.
_short_mills = polynomial(
    0.8714839078108102, -1.2648404046138086, 1.0421264547278317, -0.26312068712776693,
    -0.28366456430215625, 0.1389535820934661, 0.1456499414118375, -0.04477408066870305,
    -0.09905181269513139, -0.0025002923287284493, 0.05576195821504215,
)  # fmt: skip
_short_exp_tail = polynomial(
    0.5000000067851272, 0.16666665866848754, 0.04166629434296074, 0.008333497389712717,
    0.0013944704663123833, 0.00019790269454084255,
)  # fmt: skip


@_uncontracted
def _short_tail(u, square):
    """``P(N <= -u) = _mills_ratio(u) exp(-square)`` for ``square = u^2 / 2`` and ``u <= 14.5``."""
    shifted, n = rint_shift(square, -_LOG2E)
    r = fma(-n, _LN2_HI, -square)
    bell = ldexp_downward(1.0 + fma(r * r, _short_exp_tail(r), r), shifted)
    inverse = 1.0 / (u + 3.0)
    return _short_mills(fma(u, inverse, -0.375)) * inverse * bell


@_uncontracted
def erfc_single(x):
    """:func:`erfc` of float32."""
    wide = np.float64(x)
    t = fabs(wide)
    near = 10.2 if t > 10.2 else t
    tail = 2.0 * _short_tail(near * _ROOT_TWO, near * near)
    return np.float32(choose(wide < 0.0, 2.0 - tail, tail) if wide == wide else wide)


@_uncontracted
def ndtr_single(x):
    """:func:`ndtr` of float32."""
    wide = np.float64(x)
    u = fabs(wide)
    near = 14.5 if u > 14.5 else u
    tail = _short_tail(near, 0.5 * near * near)
    return np.float32(choose(wide < 0.0, tail, 1.0 - tail) if wide == wide else wide)


# 1 - z + 3 z^2 - 15 z^3 ... of z = 1 / (2 x^2) (NIST Digital Library of Mathematical Functions,
# 7.12.1)
_erfcx_series = polynomial(1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_ROOT_PI = math.sqrt(math.pi)


@_uncontracted
def erfcx(x):
    """``exp(x^2) erfc(x)``"""
    t = fabs(x)
    far = t > 27.0
    near = choose(far, 27.0, t)
    m, shifted = _bell(near, -1.0)
    body = 2.0 * _mills_ratio(near * _ROOT_TWO)
    inverse = 1.0 / choose(far, t, 1.0)
    tail = inverse * _erfcx_series(0.5 * inverse * inverse) / _ROOT_PI
    body = choose(far, tail, body)
    mirrored = 2.0 * ldexp_shifted(m, shifted) - body
    return choose(x < 0.0, choose(far, _INF, mirrored), body) if x == x else x


_ROOT_HALF = math.sqrt(0.5)


def _scaled(*coefficients: float) -> Any:
    """A polynomial times the root of 1/2, which leads from a quantile to erfinv."""
    return polynomial(*(c * _ROOT_HALF for c in coefficients))


# M. J. Wichura, Algorithm AS 241: The Percentage Points of the Normal Distribution, Applied
# Statistics 37 (1988), routine PPND16.
_central_above = _scaled(
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip
_central_below = polynomial(
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
    5.2264952788528545610e3,
)  # fmt: skip
_near_above = _scaled(
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4,
)  # fmt: skip
_near_below = polynomial(
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)  # fmt: skip
_far_above = _scaled(
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7,
)  # fmt: skip
_far_below = polynomial(
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)  # fmt: skip


@_uncontracted
def erfinv(x):
    """The inverse of erf: infinite at -1 and 1, NaN beyond."""
    a = fabs(x)
    q = 0.5 * a
    central = q <= 0.425
    z = fma(-q, q, 0.180625)
    tail = (1.0 - a) * 0.5
    r = math.sqrt(-log(tail))
    near = r <= 5.0
    s, f = r - 1.6, r - 5.0
    above = choose(near, _near_above(s), _far_above(f))
    below = choose(near, _near_below(s), _far_below(f))
    above = choose(central, q * _central_above(z), above)
    below = choose(central, _central_below(z), below)
    size = above / below
    return copysign(choose(a == 1.0, _INF, size), x)


_f = np.float32
# erfinv(x) / x in w = -log(1 - x^2): in w - 2.5 below 5, in sqrt(w) - 3 above
_inverse_near = polynomial(
    1.5014094114303589, 0.24664027988910675, -0.004177386872470379, -0.0012527419021353126,
    0.0002183444594265893, -4.963341780239716e-06, -3.4627107652340783e-06,
    4.6616889903816627e-07, 2.323310432927883e-08, -8.790904892919116e-09,
)  # fmt: skip
_inverse_far = polynomial(
    2.832976818084717, 1.001675009727478, 0.009445328265428543, -0.007637453731149435,
    0.005686595104634762, -0.0035966222640126944, 0.001486119581386447, -5.82601351197809e-05,
    -0.0003104180213995278, 0.00011670991079881787,
)  # fmt: skip
_log_single = float32.log


@_uncontracted
def erfinv_single(x):
    """:func:`erfinv` of float32 (the form is Giles's, GPU Computing Gems 2, 2011)."""
    a = fabs(x)
    w = -_log_single((_f(1.0) - a) * (_f(1.0) + a))
    near = _inverse_near(w - _f(2.5))
    far = _inverse_far(math.sqrt(w) - _f(3.0))
    size = a * choose(w < _f(5.0), near, far)
    return copysign(choose(a == _f(1.0), _f(np.inf), size), x)


# ---- the gamma function -----------------------------------------------------------------------

# lgamma(x) / ((x - 1) (x - 2)) in x - 3/2, between 1 and 2
_lgamma_middle = polynomial(
    0.4831289505409809, -0.14595989591430594, 0.06291140107456435, -0.031308487501054263,
    0.01679709863127961, -0.009425622444760124, 0.005446457838847148, -0.003212074222831532,
    0.0019229163200585326, -0.0011644113386464652, 0.0007115189586346974,
    -0.00043803555444480325, 0.00027131473195484963, -0.00016856937236675156,
    0.00010534951557764276, -6.794620049718278e-05, 4.3046821258537285e-05,
    -2.146993637619186e-05, 1.3149867445498004e-05, -1.854278711423662e-05,
    1.2169023519738266e-05,
)  # fmt: skip
# what Stirling's formula leaves, times x, in 1 / x^2, from 3 on
_stirling_rest = polynomial(
    0.08333333333333331, -0.0027777777777312444, 0.0007936507757465639, -0.0005952353891996774,
    0.0008415382512518481, -0.0019075573080631334, 0.0061071548514110615,
    -0.023209432939617018, 0.08274609770574089, -0.2130588252245944, 0.2725005527283875,
)  # fmt: skip
_STIRLING = 0.5 * math.log(2.0 * math.pi) - 0.5
_LOG_PI = math.log(math.pi)


@_uncontracted
def lgamma_positive(x):
    """``log(gamma(x))`` for ``x >= 0``, or NaN.

    The zeros at 1 and 2 are factors of what is between them, and one step of the recurrence leads
    there from up to 3: ``x - 1`` and the logarithm near 1 lose nothing.
    """
    large = x >= 3.0
    below = x < 1.0
    above = x > 2.0
    moved = choose(below, x, x - 1.0)  # what lies between 1 and 2, less 1
    moved = choose(above, x - 2.0, moved)
    argument = choose(below, x, choose(above, x - 1.0, 1.0))
    logarithm = log(choose(large, x, argument))
    zeros = moved * (moved - 1.0)
    middle = fma(zeros, _lgamma_middle(moved - 0.5), choose(below, -logarithm, logarithm))
    inverse = 1.0 / choose(large, x, 3.0)
    rest = fma(inverse, _stirling_rest(inverse * inverse), _STIRLING)
    stirling = fma(x - 0.5, logarithm - 1.0, rest)
    return choose(large, stirling, middle) if x == x else x


@_uncontracted
def _half_turns(x):
    """``(sine, cosine)`` of ``pi x``, both but for the sign that they have in common."""
    angle = (x - rint(x)) * _PI
    return _sin(angle), _cos(angle)


@_uncontracted
def lgamma(x):
    """``log(|gamma(x)|)``, below 0 by reflection."""
    negative = x < 0.0
    out = lgamma_positive(choose(negative, 1.0 - x, x))
    sine, _ = _half_turns(choose(negative, x, 0.5))
    reflected = _LOG_PI - (log(fabs(sine)) + out)
    reflected = choose(x == -_INF, _INF, reflected)
    return choose(negative, reflected, out)


# ---- its derivatives --------------------------------------------------------------------------

# Between 1 and 2 digamma is its distance from the root, given in three parts, times a rational
# function of x - 1 (John Maddock, Boost.Math, digamma_imp_1_2).
_ROOT_0, _ROOT_1, _ROOT_2 = 1569415565 / 2**30, 381566830 / 2**60, 9.016312093258695918615325e-20
_SLOPE = 0.99558162689208984
_root_above = polynomial(
    0.25479851061131551, -0.32555031186804491, -0.65031853770896507, -0.28919126444774784,
    -0.045251321448739056, -0.0020713321167745952,
)  # fmt: skip
_root_below = polynomial(
    1.0, 2.0767117023730469, 1.4606242909763515, 0.43593529692665969, 0.054151797245674225,
    0.0021284987017821144, -0.55789841321675513e-6,
)  # fmt: skip
# B_2k / 2k (NIST Digital Library of Mathematical Functions, 5.11.2)
_digamma_series = polynomial(
    1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160,
)  # fmt: skip
# The sum of 1 / (x + k) for k below 10, in pairs from both ends: (2 x + 9) times a quotient of
# polynomials in x (x + 9), whose lower one is (t + 0) (t + 8) (t + 14) (t + 18) (t + 20).
_steps_above = polynomial(40320.0, 24352.0, 3924.0, 240.0, 5.0)
_steps_below = polynomial(0.0, 40320.0, 12176.0, 1308.0, 60.0, 1.0)


@_uncontracted
def digamma_positive(x):
    """The derivative of the logarithm of gamma for ``x > 0``, or NaN."""
    below, above, middle = x < 1.0, x > 2.0, x <= 3.0
    inside = choose(middle, choose(below, x + 1.0, choose(above, x - 1.0, x)), 1.5)
    few = x < 10.0
    given = choose(few, x, 1.0)
    t = given * (given + 9.0)
    steps = _steps_above(t) / _steps_below(t)
    y = choose(few, x + 10.0, x)
    inverse = 1.0 / choose(middle, choose(below, x, inside), y)
    square = inverse * inverse
    series = log(y) - fma(inverse, 0.5, square * _digamma_series(square))
    out = fma(choose(few, fma(-2.0, given, -9.0), 0.0), steps, series)
    # up to 3 one step of the recurrence leads to what lies between 1 and 2
    distance = ((inside - _ROOT_0) - _ROOT_1) - _ROOT_2
    beyond = inside - 1.0
    ratio = _root_above(beyond) / _root_below(beyond)
    step = choose(below, -inverse, choose(above, inverse, 0.0))
    return choose(middle, fma(distance, _SLOPE, fma(distance, ratio, step)), out)


@_uncontracted
def digamma(x):
    """The derivative of the logarithm of gamma; at 0 infinite on the side of its sign."""
    negative = x < 0.0
    out = digamma_positive(choose(negative, 1.0 - x, x))
    sine, cosine = _half_turns(choose(negative, x, 0.5))
    reflected = choose(sine == 0.0, np.nan, fma(-_PI, cosine / sine, out))
    return choose(x == 0.0, -1.0 / x, choose(negative, reflected, out))


# B_2k (5.15.8, and the series that its derivative has)
_trigamma_series = polynomial(
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
)  # fmt: skip


@_uncontracted
def trigamma_positive(x):
    """The derivative of digamma for ``x >= 0``, or NaN."""
    few = x < 9.0
    first = 1.0 / choose(few, x, 1.0)
    given = choose(few, x, 1.0) + 1.0
    # 1 / (x + k)^2 for k from 1 to 8 in pairs: with d = (x + k) (x + 9 - k) and s = 2 x + 9, each
    # is (s^2 / d - 2) / d; one division for two of them
    s = fma(2.0, given, 7.0)
    t = given * (given + 7.0)
    s2 = s * s
    d0, d1, d2, d3 = t, t + 6.0, t + 10.0, t + 12.0
    low, high = 1.0 / (d0 * d1), 1.0 / (d2 * d3)
    r0, r1, r2, r3 = d1 * low, d0 * low, d3 * high, d2 * high
    steps = fma(fma(s2, r0, -2.0), r0, fma(s2, r1, -2.0) * r1)
    steps = fma(fma(s2, r2, -2.0), r2, fma(fma(s2, r3, -2.0), r3, steps))
    y = choose(few, x + 9.0, x)
    inverse = 1.0 / y
    square = inverse * inverse
    series = fma(inverse * square, _trigamma_series(square), fma(square, 0.5, inverse))
    return series + choose(few, fma(first, first, steps), 0.0)


@_uncontracted
def trigamma(x):
    """The derivative of digamma, below 0 by reflection; infinite at the poles."""
    negative = x < 0.0
    out = trigamma_positive(choose(negative, 1.0 - x, x))
    sine, _ = _half_turns(choose(negative, x, 0.5))
    quotient = _PI / sine
    return choose(negative, fma(quotient, quotient, -out), out)


@_uncontracted
def sinc(x):
    """``sin(pi x) / (pi x)``: 1 at 0, 0 at the other whole numbers."""
    whole = rint(x)
    sine = _sin((x - whole) * _PI)
    odd = whole - 2.0 * floor(whole * 0.5)
    value = sine * (1.0 - 2.0 * odd) / (x * _PI)
    return choose(x == 0.0, 1.0, value)


@_uncontracted
def tanhshrink(x):
    """``x - tanh(x)``"""
    return x - _tanh(x)


def log1p(T: type[np.floating]) -> Any:
    """``log(1 + x)`` in either precision: what ``1 + x`` rounds off is added by the derivative."""
    log, one = elementary[np.dtype(T).char].log, T(1.0)

    @_uncontracted
    def of(x):
        total = one + x
        value = log(total) + (x - (total - one)) / total
        plain = (total == one) | (x == T(np.inf))  # whose rest would be no number, or have no sign
        return choose(plain, x, choose(x == -one, -T(np.inf), value))

    return of
