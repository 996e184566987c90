"""Modified Bessel functions of the first kind, orders 0 and 1, plain and scaled.

Computed in float64, whatever the dtype, and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.approximation import (
    chebyshev,
    in_float64,
    polynomial,
    special_metadata,
)
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import spacing_at_one
from coredispatch.registry import composite

#: Chebyshev coefficients of ``exp(-x) * I(x) * sqrt(x)`` in ``16 / x - 1``, by order, from 60
#: digits; the terms left out are below 2**-56 of the sum
_FAR = {
    0: (
        0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05,
        2.8913705208347567e-06, 2.0489185894690638e-07, 2.266668990498178e-08,
        3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11,
        -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
        7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
        -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15,
        1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
        3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18,
        -7.233180487874754e-18,
    ),
    1: (
        0.38928811750914005, -0.009761097491361469, -0.00011058893876262371,
        -3.882564808877691e-06, -2.512236237870209e-07, -2.6314688468895196e-08,
        -3.835380385964237e-09, -5.589743462196584e-10, -1.8974958123505413e-11,
        3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
        -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14,
        4.272440016711951e-14, 1.0420276984128802e-14, -3.8144030724370075e-15,
        -1.8803547755107825e-15, 3.3082023109209285e-16, 2.96262899764595e-16,
        -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
        7.517296310842105e-18,
    ),
}  # fmt: skip


def _bessel(x: Any, order: int) -> Any:
    """``exp(-abs(x)) * I(x)`` of order 0 or 1.

    The power series (NIST Digital Library of Mathematical Functions 10.25.2) up to 8, where all
    its terms are positive and few of them count; beyond, a Chebyshev expansion in ``1 / x``.
    """
    a = magnitude.abs(x)
    inner = magnitude.clamp(a, None, 8.0)
    quarter = mul(mul(inner, inner), 0.25)
    terms = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(32)]
    series = mul(polynomial(quarter, *terms), exponential.exp(neg(inner)))
    if order:
        series = mul(series, mul(inner, 0.5))
    outer = magnitude.clamp(a, 8.0, None)
    expansion = chebyshev(sub(div(16.0, outer), 1), *_FAR[order])
    expansion = div(expansion, exponential.sqrt(outer))
    out = comparison.where(comparison.lt(a, 8.0), series, expansion)
    return mul(out, magnitude.sign(x)) if order else out


@composite(**special_metadata(None, 8) | {"reference": np.i0})
def i0(self: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
    return in_float64(lambda x: mul(_bessel(x, 0), exponential.exp(magnitude.abs(x))), self)


@i0.vjp
def _(grad, self):
    return mul(grad, i1(self))


@composite(**special_metadata(None, 8, namespace="special"), method=False)
def i0e(self: Tensor) -> Tensor:
    """``exp(-abs(self)) * i0(self)``."""
    return in_float64(lambda x: _bessel(x, 0), self)


@i0e.vjp
def _(grad, self, out):
    return mul(grad, sub(i1e(self), mul(magnitude.sign(self), out)))


@composite(**special_metadata(None, 8, namespace="special"), method=False)
def i1(self: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
    return in_float64(lambda x: mul(_bessel(x, 1), exponential.exp(magnitude.abs(x))), self)


def _tiny(x: Any) -> Any:
    """Where ``I1(x) / x`` is 1/2: the quotient of what is rounded to few bits is not."""
    return comparison.le(magnitude.abs(x), spacing_at_one(x))


@i1.vjp
def _(grad, self, out):
    zero = _tiny(self)
    ratio = div(out, comparison.where(zero, 1, self))
    return mul(grad, comparison.where(zero, 0.5, sub(i0(self), ratio)))


@composite(**special_metadata(None, 8, namespace="special"), method=False)
def i1e(self: Tensor) -> Tensor:
    """``exp(-abs(self)) * i1(self)``."""
    return in_float64(lambda x: _bessel(x, 1), self)


@i1e.vjp
def _(grad, self, out):
    zero = _tiny(self)
    ratio = div(out, comparison.where(zero, 1, self))
    slope = sub(i0e(self), add(ratio, mul(magnitude.sign(self), out)))
    return mul(grad, comparison.where(zero, 0.5, slope))
