"""Special functions: error functions, the normal distribution and entropy.

Decompositions are approximations by polynomials and series with their sources; half-precision
inputs are computed in float32 and float32 ones in float64 where a difference would cancel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.approximation import (
    elementwise,
    in_float64,
    polynomial,
    special_metadata,
)
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import spacing_at_one
from coredispatch.registry import composite

_ROOT_HALF = math.sqrt(0.5)


# ---- error functions --------------------------------------------------------------------------
# Approximations of fdlibm's s_erf.c (Sun Microsystems, 1993), below 2 units in the last place.


def _erf_near(x: Any) -> Any:
    """``erf(x)`` for ``abs(x) < 0.84375``."""
    z = mul(x, x)
    p = polynomial(
        z, 1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
        -5.77027029648944159157e-03, -2.37630166566501626084e-05,
    )  # fmt: skip
    q = polynomial(
        z, 1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02,
        5.08130628187576562776e-03, 1.32494738004321644526e-04, -3.96022827877536812320e-06,
    )  # fmt: skip
    return add(x, mul(x, div(p, q)))


_ERF_1 = 8.45062911510467529297e-01  # erf(1), rounded to float32


def _erf_middle(a: Any) -> Any:
    """``erf(a) - _ERF_1`` for ``0.84375 <= a < 1.25``."""
    s = sub(a, 1)
    p = polynomial(
        s, -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
        3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
        -2.16637559486879084300e-03,
    )  # fmt: skip
    q = polynomial(
        s, 1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01,
        7.18286544141962662868e-02, 1.26171219808761642112e-01, 1.36370839120290507362e-02,
        1.19844998467991074170e-02,
    )  # fmt: skip
    return div(p, q)


def _erfc_far(a: Any) -> Any:
    """``log(erfc(a) * a) + a**2 + 0.5625`` for ``a >= 1.25``."""
    s = div(1, mul(a, a))
    p_near = polynomial(
        s, -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
        -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
        -8.12874355063065934246e+01, -9.81432934416914548592e+00,
    )  # fmt: skip
    q_near = polynomial(
        s, 1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02,
        4.34565877475229228821e+02, 6.45387271733267880336e+02, 4.29008140027567833386e+02,
        1.08635005541779435134e+02, 6.57024977031928170135e+00, -6.04244152148580987438e-02,
    )  # fmt: skip
    p_far = polynomial(
        s, -9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
        -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
        -4.83519191608651397019e+02,
    )  # fmt: skip
    q_far = polynomial(
        s, 1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02,
        1.53672958608443695994e+03, 3.19985821950859553908e+03, 2.55305040643316442583e+03,
        4.74528541206955367215e+02, -2.24409524465858183362e+01,
    )  # fmt: skip
    near = comparison.lt(a, 1 / 0.35)
    return comparison.where(near, div(p_near, q_near), div(p_far, q_far))


def _square(a: Any) -> Any:
    """``a**2`` in two parts: the exact square of a number near ``a``, and the rest."""
    high = div(lazy.floor(mul(a, 65536.0)), 65536.0)  # with few bits
    return mul(high, high), mul(sub(a, high), add(high, a))


def _erfc_of_large(a: Any) -> Any:
    """``erfc(a)`` for ``a >= 1.25``."""
    a = magnitude.clamp(a, 1.25, 30.0)
    square, rest = _square(a)
    scale = exponential.exp(sub(-0.5625, square))
    return div(mul(scale, exponential.exp(sub(_erfc_far(a), rest))), a)


def _erf64(x: Any) -> Any:
    a = magnitude.abs(x)
    middle = add(_erf_middle(a), _ERF_1)
    outer = comparison.where(comparison.lt(a, 1.25), middle, sub(1, _erfc_of_large(a)))
    signed = mul(outer, magnitude.sign(x))
    return comparison.where(comparison.lt(a, 0.84375), _erf_near(x), signed)


def _erfc64(x: Any) -> Any:
    a = magnitude.abs(x)
    middle = sub(1 - _ERF_1, _erf_middle(a))
    outer = comparison.where(comparison.lt(a, 1.25), middle, _erfc_of_large(a))
    outer = comparison.where(comparison.lt(x, 0), sub(2, outer), outer)
    near = comparison.where(
        comparison.lt(x, 0.25), sub(1, _erf_near(x)), sub(0.5, add(_erf_near(x), -0.5))
    )
    out = comparison.where(comparison.lt(a, 0.84375), near, outer)
    return comparison.where(comparison.isnan(x), x, out)


@composite(**special_metadata(elementwise(math.erf), 3))
def erf(self: Tensor) -> Tensor:
    """Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t**2)``."""
    return in_float64(_erf64, self)


@erf.vjp
def _(grad, self):
    return mul(grad, mul(exponential.exp(neg(mul(self, self))), 2 / math.sqrt(math.pi)))


@composite(**special_metadata(elementwise(math.erfc), 4))
def erfc(self: Tensor) -> Tensor:
    """Elementwise ``1 - erf(self)``, accurate in the tail."""
    return in_float64(_erfc64, self)


@erfc.vjp
def _(grad, self):
    return mul(grad, mul(exponential.exp(neg(mul(self, self))), -2 / math.sqrt(math.pi)))


def _erfcx64(x: Any) -> Any:
    a = magnitude.abs(x)
    near, far = magnitude.clamp(a, None, 1.25), magnitude.clamp(a, 1.25, None)
    inner = mul(exponential.exp(mul(near, near)), _erfc64(near))
    outer = div(exponential.exp(sub(_erfc_far(far), 0.5625)), far)
    out = comparison.where(comparison.lt(a, 1.25), inner, outer)
    # erfcx(-x) = 2 exp(x**2) - erfcx(x), and the exponential magnifies the rounding of the square
    square, rest = _square(magnitude.clamp(a, None, 30.0))
    power = mul(exponential.exp(square), exponential.exp(rest))
    mirrored = sub(mul(power, 2), out)
    return comparison.where(comparison.lt(x, 0), mirrored, out)


@composite(**special_metadata(None, 32, namespace="special") | {"inplace": False}, method=False)
def erfcx(self: Tensor) -> Tensor:
    """``exp(self**2) * erfc(self)`` elementwise, without overflow for large elements."""
    return in_float64(_erfcx64, self)


@erfcx.vjp
def _(grad, self, out):
    slope = sub(mul(mul(self, out), 2), 2 / math.sqrt(math.pi))
    # Far out the difference is rounding alone, and -sqrt(pi) * out**2 its leading term (DLMF
    # 7.12.1). From here on that is the closer one. PyTorch has the difference everywhere.
    far = comparison.gt(self, (4 * spacing_at_one(self)) ** -0.25)
    small = comparison.where(far, out, 0)  # below, the square may overflow
    leading = mul(mul(small, small), -math.sqrt(math.pi))
    return mul(grad, comparison.where(far, leading, slope))


def _quantile64(q: Any, tail: Any) -> Any:
    """Standard normal quantile at ``0.5 + q``, where ``tail`` is the smaller tail probability.

    M. J. Wichura, Algorithm AS 241: The Percentage Points of the Normal Distribution, Applied
    Statistics 37 (1988), routine PPND16.
    """
    r = sub(0.180625, mul(q, q))
    central = mul(q, div(
        polynomial(
            r, 3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
            1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
            3.3430575583588128105e4, 2.5090809287301226727e3,
        ),
        polynomial(
            r, 1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
            2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
            5.2264952788528545610e3,
        ),
    ))  # fmt: skip
    r = exponential.sqrt(neg(exponential.log(tail)))
    s = sub(r, 1.6)
    near = div(
        polynomial(
            s, 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
            3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
            2.27238449892691845833e-2, 7.74545014278341407640e-4,
        ),
        polynomial(
            s, 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
            6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
            5.47593808499534494600e-4, 1.05075007164441684324e-9,
        ),
    )  # fmt: skip
    s = sub(r, 5.0)
    far = div(
        polynomial(
            s, 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
            2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
            2.71155556874348757815e-5, 2.01033439929228813265e-7,
        ),
        polynomial(
            s, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
            1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
            1.42151175831644588870e-7, 2.04426310338993978564e-15,
        ),
    )  # fmt: skip
    size = comparison.where(comparison.le(r, 5.0), near, far)
    size = comparison.where(comparison.eq(tail, 0), float("inf"), size)
    outer = comparison.where(comparison.lt(q, 0), neg(size), size)
    return comparison.where(comparison.le(magnitude.abs(q), 0.425), central, outer)


def _erfinv64(x: Any) -> Any:
    tail = mul(sub(1, magnitude.abs(x)), 0.5)
    return mul(_quantile64(mul(x, 0.5), tail), _ROOT_HALF)


@composite(**special_metadata(None, 5, values=(-0.95, 0.95), cast="float32_accelerated"))
def erfinv(self: Tensor) -> Tensor:
    """Elementwise inverse of :func:`erf`: infinite at -1 and 1, NaN beyond."""
    return in_float64(_erfinv64, self)


@erfinv.vjp
def _(grad, out):
    return mul(grad, mul(exponential.exp(mul(out, out)), math.sqrt(math.pi) / 2))


def _normal_reference(v: float) -> float:
    z = -v * _ROOT_HALF
    tail = math.erfc(z)
    if 1 < z < 30:  # the rounding error of z, times the derivative of erfc
        from fractions import Fraction

        error = float(Fraction(v) ** 2 / 2 - Fraction(z) ** 2) / (2 * z)
        tail -= error * 2 / math.sqrt(math.pi) * math.exp(-z * z)
    return 0.5 * tail


def _ndtr64(x: Any) -> Any:
    # In the tail erfc would magnify the rounding error of x / sqrt(2) by the square of x.
    y = magnitude.clamp(neg(x), 1.8, 42.0)
    a = mul(y, _ROOT_HALF)
    square, rest = (mul(part, 0.5) for part in _square(y))
    scale = exponential.exp(sub(-0.5625, square))
    tail = div(mul(scale, exponential.exp(sub(_erfc_far(a), rest))), a)
    body = _erfc64(mul(x, -_ROOT_HALF))
    return mul(comparison.where(comparison.lt(x, -1.8), tail, body), 0.5)


@composite(**special_metadata(elementwise(_normal_reference), 6), method=False)
def ndtr(self: Tensor) -> Tensor:
    """Standard normal distribution function, ``erfc(-self / sqrt(2)) / 2``."""
    return in_float64(_ndtr64, self)


@ndtr.vjp
def _(grad, self):
    density = exponential.exp(mul(mul(self, self), -0.5))
    return mul(grad, mul(density, 1 / math.sqrt(2 * math.pi)))


@composite(**special_metadata(None, 4, values=(0.05, 0.95)), method=False)
def ndtri(self: Tensor) -> Tensor:
    """Standard normal quantile function, the inverse of :func:`ndtr`."""

    def quantile(p: Any) -> Any:
        return _quantile64(sub(p, 0.5), magnitude.minimum(p, sub(1, p)))

    return in_float64(quantile, self)


@ndtri.vjp
def _(grad, out):
    return mul(grad, mul(exponential.exp(mul(mul(out, out), 0.5)), math.sqrt(2 * math.pi)))


def _log_ndtr64(x: Any) -> Any:
    # In the tail the exponent of ndtr, before it underflows.
    y = magnitude.clamp(neg(x), 1.8, None)
    a = mul(y, _ROOT_HALF)
    square, rest = (mul(part, 0.5) for part in _square(y))
    exponent = sub(sub(_erfc_far(a), rest), add(square, 0.5625))
    tail = sub(exponent, add(exponential.log(a), math.log(2)))
    inner = magnitude.clamp(x, -2.0, None)
    body = exponential.log1p(neg(_ndtr64(neg(inner))))
    out = comparison.where(comparison.lt(x, -1.8), tail, body)
    return comparison.where(comparison.eq(x, -float("inf")), x, out)


@composite(**special_metadata(None, 6), method=False)
def log_ndtr(self: Tensor) -> Tensor:
    """Logarithm of the standard normal distribution function, accurate far below zero."""
    return in_float64(_log_ndtr64, self)


@log_ndtr.vjp
def _(grad, self):
    # The density over ndtr: both underflow far below zero, and their logarithms cancel there.
    return mul(grad, div(math.sqrt(2 / math.pi), lazy.erfcx(mul(self, -_ROOT_HALF))))


def _entropy_reference(self: Any) -> Any:
    x = np.asarray(self)
    return np.where(x == 0, 0, np.where(x < 0, -np.inf, -x * np.log(x)))


@composite(**special_metadata(_entropy_reference, 5, values=(0.1, 3.0)), method=False)
def entr(self: Tensor) -> Tensor:
    """Elementwise entropy ``-self * log(self)``: 0 at 0, minus infinity below."""
    zero, negative = comparison.eq(self, 0), comparison.lt(self, 0)
    safe = comparison.where(comparison.logical_or(zero, negative), 1, self)
    out = comparison.where(zero, 0, neg(mul(safe, exponential.log(safe))))
    out = comparison.where(negative, -float("inf"), out)
    return comparison.where(comparison.isnan(self), self, out)


@entr.vjp
def _(grad, self):
    return mul(grad, neg(exponential.log(self) + 1))  # infinite at 0, as the slope is
