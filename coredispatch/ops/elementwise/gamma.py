"""The gamma function's family: its logarithm, its derivatives, and the Hurwitz zeta function.

Computed in float64 whatever the input, and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coredispatch.ops.elementwise import comparison, exponential, magnitude, rounding, trigonometric
from coredispatch.ops.elementwise.approximation import (
    in_float64,
    polynomial,
    special_metadata,
)
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div, reciprocal
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import (
    REAL_NUMBER,
    broadcast,
    conditioned,
    promote_float,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import Sample, pairs
from coredispatch.registry import Value, composite
from coredispatch.registry.model.errors import ArgumentError

# Bernoulli numbers B2, B4, ..., B24
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip


# ---- lgamma -----------------------------------------------------------------------------------
# Rational approximations of J. Maddock's lgamma_small (Boost.Math), with exact zeros at 1 and 2.
# They take w = x - 1, which is exact where x itself had to be shifted up by 1.


def _lgamma_2_to_3(w: Any) -> Any:
    z = sub(w, 1)
    p = polynomial(
        z, -0.180355685678449379109e-1, 0.25126649619989678683e-1, 0.494103151567532234274e-1,
        0.172491608709613993966e-1, -0.259453563205438108893e-3, -0.541009869215204396339e-3,
        -0.324588649825948492091e-4,
    )  # fmt: skip
    q = polynomial(
        z, 1.0, 0.196202987197795200688e1, 0.148019669424231326694e1, 0.541391432071720958364,
        0.988504251128010129477e-1, 0.82130967464889339326e-2, 0.224936291922115757597e-3,
        -0.223352763208617092964e-6,
    )  # fmt: skip
    return mul(mul(z, add(w, 2)), add(div(p, q), 0.158963680267333984375))


def _lgamma_1_to_1_5(w: Any) -> Any:
    z = w
    p = polynomial(
        z, 0.490622454069039543534e-1, -0.969117530159521214579e-1, -0.414983358359495381969,
        -0.406567124211938417342, -0.158413586390692192217, -0.240149820648571559892e-1,
        -0.100346687696279557415e-2,
    )  # fmt: skip
    q = polynomial(
        z, 1.0, 0.302349829846463038743e1, 0.348739585360723852576e1, 0.191415588274426679201e1,
        0.507137738614363510846, 0.577039722690451849648e-1, 0.195768102601107189171e-2,
    )  # fmt: skip
    return mul(mul(z, sub(w, 1)), add(div(p, q), 0.52815341949462890625))


def _lgamma_1_5_to_2(w: Any) -> Any:
    z = sub(1, w)
    p = polynomial(
        z, -0.292329721830270012337e-1, 0.144216267757192309184, -0.142440390738631274135,
        0.542809694055053558157e-1, -0.850535976868336437746e-2, 0.431171342679297331241e-3,
    )  # fmt: skip
    q = polynomial(
        z, 1.0, -0.150169356054485044494e1, 0.846973248876495016101, -0.220095151814995745555,
        0.25582797155975869989e-1, -0.100666795539143372762e-2, -0.827193521891290553639e-6,
    )  # fmt: skip
    return mul(mul(z, neg(w)), add(div(p, q), 0.452017307281494140625))


def _stirling(x: Any) -> Any:
    """Stirling's series for ``x >= 10``, NIST Digital Library of Mathematical Functions 5.11.1."""
    inverse = reciprocal(x)
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:9], 1)]
    series = mul(inverse, polynomial(mul(inverse, inverse), *terms))
    main = mul(sub(x, 0.5), sub(exponential.log(x), 1))
    return add(main, add(series, 0.5 * math.log(2 * math.pi) - 0.5))


def _lgamma_positive(x: Any) -> Any:
    large = comparison.ge(x, 10.0)
    product, reduced = lazy.ones_like(x), comparison.where(large, 2.5, x)
    for _ in range(8):  # bring [3, 10) down to [2, 3)
        above = comparison.ge(reduced, 3.0)
        reduced = comparison.where(above, sub(reduced, 1), reduced)
        product = comparison.where(above, mul(product, reduced), product)
    below = comparison.lt(reduced, 1.0)
    w = comparison.where(below, reduced, sub(reduced, 1))
    divisor = comparison.where(below, magnitude.abs(reduced), 1.0)
    small = comparison.where(comparison.lt(w, 0.5), _lgamma_1_to_1_5(w), _lgamma_1_5_to_2(w))
    small = comparison.where(comparison.ge(w, 1.0), _lgamma_2_to_3(w), small)
    # Two logarithms: a quotient near 1 would lose the digits that count.
    small = add(small, sub(exponential.log(product), exponential.log(divisor)))
    return comparison.where(large, _stirling(magnitude.clamp(x, 10.0, None)), small)


def _lgamma64(x: Any) -> Any:
    infinite = comparison.isinf(x)
    x = comparison.where(infinite, 1.0, x)
    negative = comparison.lt(x, 0)
    out = _lgamma_positive(comparison.where(negative, sub(1, x), x))
    sine = magnitude.abs(trigonometric.sin_pi(x))
    reflected = sub(math.log(math.pi) - 0.0, add(exponential.log(sine), out))
    out = comparison.where(negative, reflected, out)
    return comparison.where(infinite, float("inf"), out)


# Below 0 there are zeros between the whole numbers, where the reflection cancels.
@composite(**special_metadata(None, 6, values=(0.2, 4.0), namespace="", tolerance=conditioned))
def lgamma(self: Tensor) -> Tensor:
    """Elementwise logarithm of the absolute value of the gamma function."""
    return in_float64(_lgamma64, self)


@lgamma.vjp
def _(grad, self):
    return mul(grad, digamma(self))


@composite(
    **special_metadata(None, 6, values=(0.2, 4.0), namespace="special", tolerance=conditioned),
    method=False,
)
def gammaln(self: Tensor) -> Tensor:
    """:func:`lgamma` under its name in ``special``."""
    return lgamma(self)


@composite(
    out=same_shape,
    dtype=promote_float,
    samples=lambda make: (Sample(make(s, low=2.5, high=4.0), 2) for s in ((), (3,), (2, 3))),
    takes=REAL_NUMBER,
    dtypes="float",
    values=(2.5, 4.0),
    tolerance=ulp(16),
    alias=("mvlgamma",),
    inplace=True,
    namespace=("", "special"),
)
def multigammaln(self: Tensor, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension ``p``; needs elements above
    ``(p - 1) / 2``.
    """
    if p < 1:
        raise ArgumentError(f"p must be at least 1, got {p}", fix="use p >= 1")
    out = lgamma(self)
    for j in range(1, p):
        out = add(out, lgamma(sub(self, j / 2)))
    return add(out, p * (p - 1) / 4 * math.log(math.pi))


@multigammaln.vjp
def _(grad, self, p):
    slope = digamma(self)
    for j in range(1, p):
        slope = add(slope, digamma(sub(self, j / 2)))
    return mul(grad, slope)


# ---- digamma, polygamma, zeta -----------------------------------------------------------------


# Between 1 and 2, where recurrence and series cancel, digamma is its distance from the root, given
# in three parts, times a rational function of x - 1 (John Maddock, Boost.Math, digamma_imp_1_2).
_ROOT = (1569415565 / 2**30, 381566830 / 2**60, 9.016312093258695918615325e-20)
_SLOPE = 0.99558162689208984
_NUMERATOR = (
    0.25479851061131551,
    -0.32555031186804491,
    -0.65031853770896507,
    -0.28919126444774784,
    -0.045251321448739056,
    -0.0020713321167745952,
)
_DENOMINATOR = (
    1.0,
    2.0767117023730469,
    1.4606242909763515,
    0.43593529692665969,
    0.054151797245674225,
    0.0021284987017821144,
    -0.55789841321675513e-6,
)


def _digamma_positive(x: Any) -> Any:
    near = comparison.logical_and(comparison.ge(x, 1), comparison.le(x, 2))
    inside = comparison.where(near, x, 1.5)
    distance = inside
    for part in _ROOT:
        distance = sub(distance, part)
    beyond = sub(inside, 1)
    ratio = div(polynomial(beyond, *_NUMERATOR), polynomial(beyond, *_DENOMINATOR))
    by_root = add(mul(distance, _SLOPE), mul(distance, ratio))
    return comparison.where(near, by_root, _digamma_series(x))


def _digamma_series(x: Any) -> Any:
    shift = lazy.zeros_like(x)
    for _ in range(10):  # psi(x) == psi(x + 1) - 1 / x
        small = comparison.lt(x, 10.0)
        shift = sub(shift, comparison.where(small, reciprocal(x), 0))
        x = comparison.where(small, add(x, 1), x)
    inverse = reciprocal(mul(x, x))
    terms = [b / (2 * k) for k, b in enumerate(_BERNOULLI[:8], 1)]
    series = mul(inverse, polynomial(inverse, *terms))
    main = sub(exponential.log(x), add(mul(reciprocal(x), 0.5), series))
    return add(shift, main)


def _digamma64(x: Any) -> Any:
    negative = comparison.lt(x, 0)
    out = _digamma_positive(comparison.where(negative, sub(1, x), x))
    pole = comparison.logical_and(negative, comparison.eq(x, rounding.floor(x)))
    offset = mul(sub(x, rounding.round(x)), math.pi)
    cotangent = div(math.pi, trigonometric.tan(comparison.where(pole, 1.0, offset)))
    reflected = comparison.where(pole, math.nan, sub(out, cotangent))
    out = comparison.where(negative, reflected, out)
    # The limit from the side that the sign of zero names.
    return comparison.where(comparison.eq(x, 0), neg(reciprocal(x)), out)


@composite(**special_metadata(None, 32, values=(0.2, 4.0), tolerance=conditioned), alias=("psi",))
def digamma(self: Tensor) -> Tensor:
    """Elementwise derivative of :func:`lgamma`; NaN at the negative integers.

    Recurrence and asymptotic series, NIST Digital Library of Mathematical Functions 5.5.2 and
    5.11.2, and a rational function around the root; reflection for negative elements.
    """
    return in_float64(_digamma64, self)


@digamma.vjp
def _(grad, self):
    return mul(grad, polygamma(self, 1))


def _order_samples(make: Any) -> Iterator[Sample]:
    for shape in ((), (3,), (2, 3)):
        yield Sample(make(shape, low=0.5, high=4.0), 2)


@composite(**special_metadata(None, 32, values=(0.5, 4.0), samples=_order_samples))
def polygamma(self: Tensor, n: int) -> Tensor:
    """The ``n``-th derivative of :func:`digamma`, for positive elements when ``n >= 1``.

    ``cd.polygamma(n, x)`` takes its arguments in this order, as in PyTorch.
    """
    if n < 0:
        raise ArgumentError(f"polygamma needs n >= 0, got {n}", fix="use n >= 0")
    if n == 0:
        return digamma(self)
    scale = float(math.factorial(n) * (1 if n % 2 else -1))

    def compute(x: Any) -> Any:
        return mul(_hurwitz(lazy.full_like(x, n + 1.0), x), scale)

    return in_float64(compute, self)


@polygamma.vjp
def _(grad, self, n):
    return mul(grad, polygamma(self, n + 1))


@polygamma.overload
def _(n: int, self: Tensor) -> Tensor:
    return polygamma(self, n)


def _hurwitz(s: Any, q: Any) -> Any:
    """Sum of ``(q + k)**-s`` over k >= 0 by the Euler-Maclaurin formula (DLMF 25.11.7)."""
    terms = 12
    total = exponential.pow(q, neg(s))
    for k in range(1, terms):
        total = add(total, exponential.pow(add(q, k), neg(s)))
    end = add(q, terms)
    last = exponential.pow(end, neg(s))
    total = add(total, add(div(mul(last, end), sub(s, 1)), mul(last, 0.5)))
    factor = div(mul(last, s), end)
    for k, b in enumerate(_BERNOULLI, 1):
        total = add(total, mul(factor, b / math.factorial(2 * k)))
        rising = mul(add(s, 2 * k - 1), add(s, 2 * k))
        factor = div(mul(factor, rising), mul(end, end))
    return total


def _zeta_samples(make: Any) -> Iterator[Sample]:
    for sample in pairs(make):
        if not isinstance(sample.args[1], int):
            a, b = (x.shape for x in sample.args)
            yield Sample(make(a, low=2.0, high=4.0), make(b, low=1.0, high=4.0))


@composite(
    out=broadcast,
    dtype=promote_float,
    samples=_zeta_samples,
    dtypes="float",
    values=(1.5, 4.0),
    tolerance=ulp(16),
    differentiable=False,
    namespace="special",
    method=False,
)
def zeta(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Hurwitz zeta function: sum of ``(k + other)**-self`` over k >= 0, for ``self > 1``.

    Shapes broadcast. Infinite for ``self = 1`` and at the poles, where ``other`` is 0 or a
    negative integer; NaN for ``self < 1`` and between the poles.
    """
    common(promote_float, self, other)  # refuses what is neither tensor nor number
    dtype = promote_float(self, other)
    s, q = (lazy.to_dtype(x, widest(x)) if isinstance(x, Value) else x for x in (self, other))
    q = q if isinstance(q, Value) else add(lazy.zeros_like(s), q)
    s = add(lazy.zeros_like(q), s)
    pole = comparison.logical_and(comparison.le(q, 0), comparison.eq(q, rounding.floor(q)))
    out = comparison.where(comparison.le(q, 0), math.nan, _hurwitz(s, q))
    out = comparison.where(comparison.logical_or(comparison.eq(s, 1), pole), float("inf"), out)
    out = comparison.where(comparison.lt(s, 1), math.nan, out)
    return lazy.to_dtype(out, dtype)
