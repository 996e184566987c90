"""The regularized incomplete gamma functions P (lower) and Q (upper).

NIST Digital Library of Mathematical Functions, chapter 8; Temme, "The asymptotic expansion of the
incomplete gamma functions" (1979); Gil, Segura and Temme, "Efficient and accurate algorithms for
the computation and inversion of the incomplete gamma function ratios" (2012). Computed in float64
and rounded once. Only the derivative with respect to the second argument is there, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coredispatch.ops.elementwise import comparison, error_functions, exponential, magnitude
from coredispatch.ops.elementwise.approximation import in_float64, polynomial
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.elementwise.gamma import lgamma
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import no_gradient
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.constants import TEMME
from coredispatch.ops.support.rules import broadcast, promote_float, ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite

_NAN = float("nan")
_EPSILON = 2.0**-53
_MOST_TERMS = 2000
_BIG = 2.0**52


def _log_below(a: Any, x: Any) -> Any:
    """``log(1 + mu) - mu`` of ``mu = x / a - 1``: near zero 2 atanh(s) - mu, s = mu / (2 + mu)."""
    mu = div(sub(x, a), a)
    near = comparison.lt(magnitude.abs(mu), 0.3)
    inside = comparison.where(near, mu, 0.0)
    s = div(inside, add(inside, 2))
    square = mul(s, s)
    series = polynomial(square, *[2.0 / (2 * k + 3) for k in range(14)])
    close = sub(mul(mul(s, square), series), mul(inside, s))
    return comparison.where(near, close, sub(exponential.log(div(x, a)), mu))


def _factor(a: Any, x: Any) -> Any:
    """``x**a exp(-x) / gamma(a + 1)``: by Stirling's series where ``a`` is large.

    A power is taken where it can be: the rounding of an exponent of hundreds is an error of as
    many units in the result.
    """
    large = comparison.ge(a, 10.0)
    b = comparison.where(large, a, 10.0)
    inverse = div(1.0, b)
    terms = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    stirling = mul(inverse, polynomial(mul(inverse, inverse), *terms))
    distant = comparison.ge(magnitude.abs(sub(x, b)), mul(b, 0.3))
    distant = comparison.logical_and(distant, comparison.lt(b, 200.0))
    below = comparison.where(distant, div(x, b), 1.0)
    power = exponential.pow(mul(below, exponential.exp(sub(1, below))), b)
    exponent = comparison.where(distant, 0.0, mul(b, _log_below(b, x)))
    far = mul(power, exponential.exp(sub(exponent, stirling)))
    far = div(far, exponential.sqrt(mul(b, 2 * math.pi)))
    c = comparison.where(large, 1.0, a)
    small = comparison.lt(x, 600.0)
    power = exponential.pow(comparison.where(small, x, 1.0), c)
    logarithm = comparison.where(small, 0.0, mul(c, exponential.log(x)))
    near = mul(power, exponential.exp(sub(sub(logarithm, x), lgamma(add(c, 1)))))
    return comparison.where(large, far, near)


def _settled(n: int, change: Any, total: Any) -> bool:
    """Whether the last term changed nothing anywhere; asked after every eighth."""
    if n % 8 != 7:
        return False
    small = comparison.le(magnitude.abs(change), mul(magnitude.abs(total), _EPSILON))
    return bool(lazy.all(comparison.logical_or(small, comparison.isnan(total))))


def _lower_series(a: Any, x: Any) -> Any:
    """P by DLMF 8.11.4, for ``x`` below about ``a``."""
    term = lazy.ones_like(x)
    total = term
    r = a
    for n in range(_MOST_TERMS):
        r = add(r, 1)
        term = mul(term, div(x, r))
        total = add(total, term)
        if _settled(n, term, total):
            break
    return mul(total, _factor(a, x))


def _upper_series(a: Any, x: Any) -> Any:
    """Q by DLMF 8.7.3, for small ``a`` and ``x``."""
    power = lazy.ones_like(x)
    total = lazy.zeros_like(x)
    for n in range(1, _MOST_TERMS):
        power = mul(power, div(neg(x), float(n)))
        term = div(power, add(a, float(n)))
        total = add(total, term)
        if _settled(n, term, total):
            break
    logarithm = exponential.log(x)
    scaled = mul(a, logarithm)
    first = neg(exponential.expm1(sub(scaled, lgamma(add(a, 1)))))
    return sub(first, mul(exponential.exp(sub(scaled, lgamma(a))), total))


def _upper_fraction(a: Any, x: Any) -> Any:
    """Q by the continued fraction DLMF 8.9.2, for ``x`` beyond ``a`` and 1.

    An element that has converged stays as it is: further steps would only add rounding.
    """
    y = sub(1, a)
    z = add(add(x, y), 1)
    p_before, q_before = lazy.ones_like(x), x
    p, q = add(x, 1), mul(z, x)
    out = div(p, q)
    done = comparison.isnan(out)
    for n in range(1, _MOST_TERMS):
        y, z = add(y, 1), add(z, 2)
        yc = mul(y, float(n))
        p_next = sub(mul(p, z), mul(p_before, yc))
        q_next = sub(mul(q, z), mul(q_before, yc))
        changed = div(p_next, q_next)
        out, before = comparison.where(done, out, changed), out
        change = magnitude.abs(sub(changed, before))
        close = comparison.le(change, mul(magnitude.abs(out), _EPSILON))
        done = comparison.logical_or(done, comparison.logical_or(close, comparison.isnan(out)))
        p_before, p, q_before, q = p, p_next, q, q_next
        scale = comparison.where(comparison.gt(magnitude.abs(p), _BIG), 1 / _BIG, 1.0)
        p_before, p = mul(p_before, scale), mul(p, scale)
        q_before, q = mul(q_before, scale), mul(q, scale)
        if n % 8 == 7 and bool(lazy.all(done)):
            break
    return mul(mul(out, a), _factor(a, x))


def _uniform(a: Any, x: Any, sign: float) -> Any:
    """Q (sign 1) or P (-1) where ``a`` is large and ``x`` near it: DLMF 8.12.3 and 8.12.4."""
    square = mul(_log_below(a, x), -2)
    root = exponential.sqrt(magnitude.clamp(square, 0.0))
    eta = mul(root, magnitude.sign(sub(x, a)))
    total: Any = 0.0
    inverse = div(1.0, a)
    for row in reversed(TEMME):
        total = add(mul(total, inverse), polynomial(eta, *row))
    tail = exponential.exp(mul(mul(a, square), -0.5))
    tail = div(mul(tail, total), exponential.sqrt(mul(a, 2 * math.pi)))
    scaled = mul(mul(eta, exponential.sqrt(mul(a, 0.5))), sign)
    return add(mul(error_functions.erfc(scaled), 0.5), mul(tail, sign))


def _both(a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q, each without cancellation; the edges of the domain are handled by the caller."""
    a, x = lazy.broadcast_tensors([a, x])
    distance = div(magnitude.abs(sub(x, a)), a)
    limit = comparison.where(
        comparison.gt(a, 200.0), div(4.5, exponential.sqrt(a)), comparison.where(a > 20.0, 0.3, 0.0)
    )
    near = comparison.lt(distance, limit)
    fraction = comparison.logical_and(comparison.gt(x, 1.1), comparison.ge(x, a))
    small = comparison.le(x, 1.1)
    log_bound = div(-0.4, exponential.log(magnitude.clamp(x, None, 0.5)))
    lower_here = comparison.where(
        comparison.le(x, 0.5), comparison.lt(log_bound, a), comparison.lt(mul(x, 1.1), a)
    )
    upper_small = comparison.logical_and(small, comparison.logical_not(lower_here))
    lower = comparison.logical_not(comparison.logical_or(fraction, upper_small))

    def chosen(where: Any, function: Any, safe_a: float, safe_x: float) -> Any:
        where = comparison.logical_and(where, comparison.logical_not(near))
        if not bool(lazy.any(where)):
            return lazy.zeros_like(x)
        inside = function(comparison.where(where, a, safe_a), comparison.where(where, x, safe_x))
        return comparison.where(where, inside, 0.0)

    p = chosen(lower, _lower_series, 2.0, 1.0)
    q = add(
        chosen(fraction, _upper_fraction, 1.0, 2.0), chosen(upper_small, _upper_series, 0.1, 0.1)
    )
    p, q = comparison.where(lower, p, sub(1, q)), comparison.where(lower, sub(1, p), q)
    if bool(lazy.any(near)):
        inner_a, inner_x = comparison.where(near, a, 100.0), comparison.where(near, x, 100.0)
        p = comparison.where(near, _uniform(inner_a, inner_x, -1.0), p)
        q = comparison.where(near, _uniform(inner_a, inner_x, 1.0), q)
    return p, q


def _regularized(a: Any, x: Any, upper: bool) -> Any:
    a, x = lazy.broadcast_tensors([a, x])
    a_ends, x_ends = comparison.isinf(a), comparison.isinf(x)
    usual = comparison.logical_and(comparison.gt(a, 0), comparison.gt(x, 0))
    usual = comparison.logical_and(
        usual, comparison.logical_not(comparison.logical_or(a_ends, x_ends))
    )
    p, q = _both(comparison.where(usual, a, 1.0), comparison.where(usual, x, 1.0))
    one = 1.0 if upper else 0.0  # the value at x = 0
    edge = comparison.where(comparison.eq(a, 0), 1 - one, one)
    edge = comparison.where(comparison.gt(x, 0), edge, one)
    edge = comparison.where(x_ends, 1 - one, edge)
    edge = comparison.where(a_ends, one, edge)
    both_zero = comparison.logical_and(comparison.eq(a, 0), comparison.eq(x, 0))
    both_infinite = comparison.logical_and(a_ends, x_ends)
    edge = comparison.where(comparison.logical_or(both_zero, both_infinite), _NAN, edge)
    outside = comparison.logical_or(comparison.lt(a, 0), comparison.lt(x, 0))
    unknown = comparison.logical_or(comparison.isnan(a), comparison.isnan(x))
    edge = comparison.where(comparison.logical_or(outside, unknown), _NAN, edge)
    return comparison.where(usual, q if upper else p, edge)


def _samples(make: Any) -> Iterator[Sample]:
    for first, second in (((5,), (5,)), ((), (2, 3)), ((3, 1), (1, 4)), ((0,), (1,))):
        yield Sample(make.positive(first), make.positive(second))


_METADATA: dict[str, Any] = {
    "out": broadcast,
    "dtype": promote_float,
    "samples": _samples,
    "takes": "real",
    "dtypes": "float",
    "values": (0.2, 4.0),
    # An exponent of up to 745 is rounded before the exponential is taken of it; in float64 that of
    # the reference is, too.
    "tolerance": ulp(1024),
    "cast": "float32_accelerated",
    "unbroadcast": True,
}


def _density(grad: Any, a: Any, x: Any) -> Any:
    """The gradient of P with respect to ``x``: ``x**(a - 1) exp(-x) / gamma(a)``."""
    logarithm = sub(mul(sub(a, 1), exponential.log(x)), add(x, lgamma(a)))
    return mul(grad, exponential.exp(logarithm))


@composite(**_METADATA, inplace=True)
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """The regularized lower incomplete gamma function ``P(self, other)``; shapes broadcast.

    NaN where an argument is negative. The derivative with respect to ``self`` is not there.
    """
    return in_float64(lambda a, x: _regularized(a, x, False), self, other)


@composite(**_METADATA, inplace=True)
def igammac(self: Tensor, other: Tensor) -> Tensor:
    """The regularized upper incomplete gamma function ``Q(self, other) = 1 - P(self, other)``."""
    return in_float64(lambda a, x: _regularized(a, x, True), self, other)


igamma.vjp(
    self=no_gradient("igamma", "self"),
    other=lambda grad, self, other: _density(grad, self, other),
)
igammac.vjp(
    self=no_gradient("igammac", "self"),
    other=lambda grad, self, other: neg(_density(grad, self, other)),
)


@composite(**_METADATA, namespace="special", method=False)
def gammainc(input: Tensor, other: Tensor) -> Tensor:
    """:func:`igamma` under its name in ``special``."""
    return igamma(input, other)


@composite(**_METADATA, namespace="special", method=False)
def gammaincc(input: Tensor, other: Tensor) -> Tensor:
    """:func:`igammac` under its name in ``special``."""
    return igammac(input, other)
