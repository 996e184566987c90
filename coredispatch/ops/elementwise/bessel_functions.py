"""Bessel functions of the first and second kind, modified ones of the second kind, spherical ones,
and the Airy function.

Computed in float64, whatever the dtype, and rounded once, by the approximations of :mod:`.cephes`.
Derivatives: NIST Digital Library of Mathematical Functions, 10.6.3, 10.29.3 and 10.51.2.
"""

from __future__ import annotations

import math
from typing import Any

from coredispatch.ops.elementwise import bessel, cephes, comparison, exponential, magnitude
from coredispatch.ops.elementwise import trigonometric as trig
from coredispatch.ops.elementwise.approximation import in_float64, polynomial, special_metadata
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned
from coredispatch.registry import composite

_TWO_OVER_PI = 2 / math.pi
_NAN, _INF = float("nan"), float("inf")


def _metadata(ulps: float, low: float = 0.2, high: float = 4.5, **more: Any) -> dict[str, Any]:
    metadata = special_metadata(None, ulps, values=(low, high), namespace="special", **more)
    return metadata | {"inplace": False, "method": False}


def _ratio(above: Any, below: Any, x: Any, monic: bool = False) -> Any:
    """A quotient of two polynomials; ``monic`` leaves out the leading 1 of the lower one."""
    below = (1.0, *below) if monic else below
    return div(polynomial(x, *reversed(above)), polynomial(x, *reversed(below)))


def _split(x: Any, at: float) -> tuple[Any, Any, Any]:
    """Whether ``x`` is at most ``at``, and ``x`` clamped to either side."""
    return comparison.le(x, at), magnitude.clamp(x, None, at), magnitude.clamp(x, at, None)


def _far(x: Any, order: int, second: bool) -> Any:
    """J or (``second``) Y for ``x >= 5``: amplitude and phase."""
    square = div(25.0, mul(x, x))
    pp, pq, qp, qq = (cephes.FAR_0, cephes.FAR_1)[order]
    p, q = _ratio(pp, pq, square), _ratio(qp, qq, square, monic=True)
    phase = sub(x, (2 * order + 1) * math.pi / 4)
    sine, cosine = trig.sin(phase), trig.cos(phase)
    q = mul(div(5.0, x), q)
    out = add(mul(p, sine), mul(q, cosine)) if second else sub(mul(p, cosine), mul(q, sine))
    return div(mul(out, math.sqrt(_TWO_OVER_PI)), exponential.sqrt(x))


# ---- first kind -------------------------------------------------------------------------------


def _j0(x: Any) -> Any:
    is_near, near, far = _split(magnitude.abs(x), 5.0)
    z = mul(near, near)
    zeros = mul(sub(z, 5.78318596294678452118), sub(z, 30.4712623436620863991))
    inner = mul(zeros, _ratio(*cephes.J0_NEAR, z, monic=True))
    return comparison.where(is_near, inner, _far(far, 0, False))


def _j1(x: Any) -> Any:
    is_near, near, far = _split(magnitude.abs(x), 5.0)
    z = mul(near, near)
    zeros = mul(sub(z, 14.6819706421238932572), sub(z, 49.2184563216946036703))
    inner = mul(mul(near, zeros), _ratio(*cephes.J1_NEAR, z, monic=True))
    out = comparison.where(is_near, inner, _far(far, 1, False))
    return comparison.where(comparison.lt(x, 0), neg(out), out)


@composite(**_metadata(64, -4.5) | {"tolerance": conditioned})
def bessel_j0(input: Tensor) -> Tensor:
    """Bessel function of the first kind, order 0."""
    return in_float64(_j0, input)


@bessel_j0.vjp
def _(grad, input):
    return neg(mul(grad, bessel_j1(input)))


@composite(**_metadata(64, -4.5) | {"tolerance": conditioned})
def bessel_j1(input: Tensor) -> Tensor:
    """Bessel function of the first kind, order 1."""
    return in_float64(_j1, input)


def _over(y: Any, x: Any, at_zero: float) -> Any:
    """``y / x``, with its limit at 0."""
    zero = comparison.eq(x, 0)
    return comparison.where(zero, at_zero, div(y, comparison.where(zero, 1, x)))


@bessel_j1.vjp
def _(grad, input, out):
    return mul(grad, sub(bessel_j0(input), _over(out, input, 0.5)))


# ---- second kind ------------------------------------------------------------------------------


def _y0(x: Any) -> Any:
    is_near, near, far = _split(x, 5.0)
    inner = _ratio(*cephes.Y0_NEAR, mul(near, near), monic=True)
    logarithm = mul(mul(exponential.log(near), _j0(near)), _TWO_OVER_PI)
    return _of_positive(x, comparison.where(is_near, add(inner, logarithm), _far(far, 0, True)))


def _y1(x: Any) -> Any:
    is_near, near, far = _split(x, 5.0)
    inner = mul(near, _ratio(*cephes.Y1_NEAR, mul(near, near), monic=True))
    pole = sub(mul(exponential.log(near), _j1(near)), div(1.0, near))
    inner = add(inner, mul(pole, _TWO_OVER_PI))
    return _of_positive(x, comparison.where(is_near, inner, _far(far, 1, True)))


def _of_positive(x: Any, out: Any, at_zero: float = -_INF) -> Any:
    """``out`` where ``x`` is positive, ``at_zero`` at 0, NaN below."""
    out = comparison.where(comparison.eq(x, 0), at_zero, out)
    return comparison.where(comparison.lt(x, 0), _NAN, out)


@composite(**_metadata(64) | {"tolerance": conditioned})
def bessel_y0(input: Tensor) -> Tensor:
    """Bessel function of the second kind, order 0; -inf at 0 and NaN below."""
    return in_float64(_y0, input)


@bessel_y0.vjp
def _(grad, input):
    return neg(mul(grad, bessel_y1(input)))


@composite(**_metadata(64) | {"tolerance": conditioned})
def bessel_y1(input: Tensor) -> Tensor:
    """Bessel function of the second kind, order 1; -inf at 0 and NaN below."""
    return in_float64(_y1, input)


@bessel_y1.vjp
def _(grad, input, out):
    return mul(grad, sub(bessel_y0(input), div(out, input)))


# ---- modified ---------------------------------------------------------------------------------


@composite(**_metadata(16, -4.5))
def modified_bessel_i0(input: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 0; also :func:`special.i0`."""
    return bessel.i0(input)


@composite(**_metadata(16, -4.5))
def modified_bessel_i1(input: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 1; also :func:`special.i1`."""
    return bessel.i1(input)


def _series(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Cephes's Chebyshev sum: ``x`` twice the variable, the highest order first."""
    before: Any = 0.0
    here: Any = lazy.full_like(x, coefficients[0])
    last: Any = 0.0
    for c in coefficients[1:]:
        last, before, here = before, here, add(sub(mul(x, here), before), c)
    return mul(sub(here, last), 0.5)


def _k(x: Any, order: int, scaled: bool) -> Any:
    """K of order 0 or 1, times exp(x) where ``scaled``."""
    below, beyond = (cephes.K0, cephes.K1)[order]
    is_near, near, far = _split(x, 2.0)
    inner = _series(sub(mul(near, near), 2.0), below)
    logarithm = exponential.log(mul(near, 0.5))
    if order:
        inner = add(mul(logarithm, bessel.i1(near)), div(inner, near))
    else:
        inner = sub(inner, mul(logarithm, bessel.i0(near)))
    outer = div(_series(sub(div(8.0, far), 2.0), beyond), exponential.sqrt(far))
    if scaled:
        inner = mul(inner, exponential.exp(near))
    else:
        outer = mul(outer, exponential.exp(neg(far)))
    return _of_positive(x, comparison.where(is_near, inner, outer), _INF)


@composite(**_metadata(16))
def modified_bessel_k0(input: Tensor) -> Tensor:
    """Modified Bessel function of the second kind, order 0; inf at 0 and NaN below."""
    return in_float64(lambda x: _k(x, 0, False), input)


@modified_bessel_k0.vjp
def _(grad, input):
    return neg(mul(grad, modified_bessel_k1(input)))


@composite(**_metadata(16))
def modified_bessel_k1(input: Tensor) -> Tensor:
    """Modified Bessel function of the second kind, order 1; inf at 0 and NaN below."""
    return in_float64(lambda x: _k(x, 1, False), input)


@modified_bessel_k1.vjp
def _(grad, input, out):
    return neg(mul(grad, add(modified_bessel_k0(input), div(out, input))))


@composite(**_metadata(16))
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """``exp(x) * modified_bessel_k0(x)``."""
    return in_float64(lambda x: _k(x, 0, True), x)


@scaled_modified_bessel_k0.vjp
def _(grad, x, out):
    return mul(grad, sub(out, scaled_modified_bessel_k1(x)))


@composite(**_metadata(16))
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """``exp(x) * modified_bessel_k1(x)``."""
    return in_float64(lambda x: _k(x, 1, True), x)


@scaled_modified_bessel_k1.vjp
def _(grad, x, out):
    return mul(grad, sub(sub(out, scaled_modified_bessel_k0(x)), div(out, x)))


# ---- spherical, and Airy ----------------------------------------------------------------------


def _spherical_j0(x: Any) -> Any:
    is_zero = comparison.eq(x, 0)
    out = div(trig.sin(x), comparison.where(is_zero, 1.0, x))
    out = comparison.where(is_zero, 1.0, out)
    return comparison.where(comparison.isinf(x), 0.0, out)


@composite(**_metadata(8, -4.5) | {"tolerance": conditioned})
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Spherical Bessel function of the first kind, order 0: ``sin(x) / x``."""
    return in_float64(_spherical_j0, x)


def _spherical_j0_slope(x: Any) -> Any:
    """``(cos(x) - sin(x) / x) / x``; of what cancels near 0, its series."""
    small = comparison.lt(mul(x, x), 0.04)
    inner, outer = comparison.where(small, x, 0.0), comparison.where(small, 1.0, x)
    series = polynomial(mul(inner, inner), -1 / 3, 1 / 30, -1 / 840, 1 / 45360, -1 / 3991680)
    far = div(sub(trig.cos(outer), _spherical_j0(outer)), outer)
    return comparison.where(small, mul(inner, series), far)


@spherical_bessel_j0.vjp
def _(grad, x):
    return mul(grad, in_float64(_spherical_j0_slope, x))


def _airy(x: Any) -> Any:
    an, ad, afn, afd, agn, agd = cephes.AIRY
    left = neg(magnitude.clamp(x, None, -2.09))
    zeta = div(mul(mul(left, exponential.sqrt(left)), 2.0), 3.0)
    z = div(1.0, zeta)
    square = mul(z, z)
    f = add(mul(square, _ratio(afn, afd, square, monic=True)), 1.0)
    g = mul(z, _ratio(agn, agd, square, monic=True))
    phase = add(zeta, math.pi / 4)
    waves = sub(mul(trig.sin(phase), f), mul(trig.cos(phase), g))
    amplitude = div(1 / math.sqrt(math.pi), exponential.sqrt(exponential.sqrt(left)))
    waves = mul(waves, amplitude)

    right = magnitude.clamp(x, 2.09, None)
    zeta = div(mul(mul(right, exponential.sqrt(right)), 2.0), 3.0)
    root = mul(exponential.sqrt(exponential.sqrt(right)), 2.0)
    decay = div(_ratio(an, ad, div(1.0, zeta)), mul(root, exponential.exp(zeta)))
    decay = mul(decay, 1 / math.sqrt(math.pi))

    # The Maclaurin series (DLMF 9.4.1); 24 terms of each part are below 1e-17 at 2.09.
    middle = magnitude.clamp(x, -2.09, 2.09)
    cube = mul(mul(middle, middle), middle)
    first, second = [1.0], [1.0]
    for k in range(1, 25):
        first.append(first[-1] / ((3 * k - 1) * 3 * k))
        second.append(second[-1] / (3 * k * (3 * k + 1)))
    even, odd = polynomial(cube, *first), mul(middle, polynomial(cube, *second))
    centre = sub(mul(even, 0.355028053887817239260), mul(odd, 0.258819403792806798405))

    out = comparison.where(comparison.lt(x, -2.09), waves, centre)
    out = comparison.where(comparison.ge(x, 2.09), decay, out)
    return comparison.where(comparison.isinf(x), _NAN, out)


@composite(**_metadata(256, -4.5) | {"tolerance": conditioned}, differentiable=None)
def airy_ai(x: Tensor) -> Tensor:
    """The Airy function Ai; NaN at infinity. Not differentiable, as in PyTorch."""
    return in_float64(_airy, x)
