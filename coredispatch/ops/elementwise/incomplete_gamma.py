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
from coredispatch.ops.support.rules import broadcast, promote_float, ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite

_NAN = float("nan")
_EPSILON = 2.0**-53
_MOST_TERMS = 2000
_BIG = 2.0**52
#: coefficients of eta**n in the k-th term of the uniform expansion (DLMF 8.12.3, 8.12.10)
_TEMME = (
    (-0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
     0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05,
     -2.1854485106799924e-06, -1.85406221071516e-06, 8.296711340953087e-07,
     -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
     -4.382036018453353e-09, 9.14769958223679e-10, -2.551419399494625e-11,
     -5.830772132550426e-11, 2.4361948020667415e-11, -5.0276692801141755e-12,
     1.1004392031956135e-13, 3.3717632624009856e-13, -1.392388722418162e-13,),
    (-0.001851851851851852, -0.003472222222222222, 0.0026455026455026454,
     -0.0009902263374485596, 0.00020576131687242798, -4.018775720164609e-07,
     -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06,
     4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
     1.1951628599778148e-08, -1.7543241719747647e-11, -1.0091543710600413e-09,
     4.162792991842583e-10, -8.56390702649298e-11, 6.067215101604758e-14,
     7.1624989648114856e-12, -2.933186643771437e-12, 5.996696365683689e-13,
     -2.1671786527323313e-16,),
    (0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049,
     2.0093878600823047e-06, -0.00010736653226365161, 5.2923448829120125e-05,
     -1.2760635188618728e-05, 3.423578734096138e-08, 1.3721957309062932e-06,
     -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
     -1.409252991086752e-08, 6.228974084922022e-09, -1.3670488396617112e-09,
     9.428356159014678e-13, 1.2872252400089318e-10, -5.5645956134363323e-11,
     1.197593554636698e-11, -4.1689782251838634e-15, -1.0940640427884595e-12,
     4.662239946390136e-13,),
    (0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557,
     0.00026772063206283885, -7.561801671883977e-05, -2.396505113867297e-07,
     1.1082654115347302e-05, -5.6749528269915965e-06, 1.4230900732435883e-06,
     -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
     -1.9111168485973655e-08, 2.3928620439808118e-12, 2.0620131815488797e-09,
     -9.460496661855133e-10, 2.1541049775774907e-10, -1.388823336813903e-14,
     -2.1894761681963938e-11, 9.790998951171684e-12, -2.178219188018096e-12,
     6.208819573407901e-17,),
    (-0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902,
     -1.4638452578843418e-06, 6.641498215465122e-05, -3.968365047179435e-05,
     1.1375726970678419e-05, 2.507497226237533e-10, -1.6954149536558305e-06,
     8.907507532205309e-07, -2.292934834000805e-07, 2.956794137544049e-11,
     2.8865829742708783e-08, -1.4189739437803219e-08, 3.4463580499464896e-09,
     -2.3024517174528067e-13, -3.9409233028046403e-10, 1.86023389685045e-10,
     -4.356323005056618e-11, 1.278600101629623e-15, 4.67927502665792e-12,
     -2.149246470613483e-12,),
    (-0.00033679855336635813, -6.972813758365858e-05, 0.0002772753244959392,
     -0.00019932570516188847, 6.797780477937208e-05, 1.419062920643967e-07,
     -1.3594048189768693e-05, 8.018470256334202e-06, -2.291481176508095e-06,
     -3.252473551298454e-10, 3.4652846491085265e-07, -1.8447187191171344e-07,
     4.8240967037894184e-08, -1.7989466721743514e-14, -6.306194500013523e-09,
     3.162417628774568e-09, -7.840924253697429e-10, 5.192679165254041e-15,
     9.358944242306784e-11, -4.513426216163278e-11, 1.0799129993116828e-11,
     -3.661886712685252e-17,),
    (0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045,
     7.902353232660328e-07, -8.153969367561969e-05, 5.61168275310625e-05,
     -1.8329116582843375e-05, -3.0796134506033047e-09, 3.465155368803609e-06,
     -2.0291327396058603e-06, 5.788792863149004e-07, 2.338630673826657e-13,
     -8.828600746330484e-08, 4.7435958880408125e-08, -1.2545415020710382e-08,
     8.649648858010293e-14, 1.6846058979264062e-09, -8.575492823577594e-10,
     2.1598224929232125e-10, -7.613230520476153e-16, -2.6639822008536144e-11,
     1.3065700536611057e-11,),
    (0.00034436760689237765, 5.171790908260592e-05, -0.00033493161081142234,
     0.0002812695154763237, -0.00010976582244684731, -1.2741009095484485e-07,
     2.7744451511563645e-05, -1.8263488805711332e-05, 5.7876949497350525e-06,
     4.93875893393627e-10, -1.0595367014026043e-06, 6.166714376110408e-07,
     -1.7562973359060463e-07, -1.297447328701544e-12, 2.695423606288966e-08,
     -1.4578352908731272e-08, 3.887645959386175e-09, -3.881002251019412e-17,
     -5.327994173877286e-10, 2.7437977643314844e-10, -6.995796092070568e-11,
     2.589986387486848e-17,),
    (-0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721,
     -6.969091458420552e-07, 0.00016644846642067547, -0.00012783517679769218,
     4.629953263691304e-05, 4.557909867922708e-09, -1.0595271125805195e-05,
     6.783342904865167e-06, -2.1075476666258803e-06, -1.7213731432817144e-11,
     3.773587741611098e-07, -2.1867506700122867e-07, 6.220228804018927e-08, 6.597703826733e-16,
     -9.590386497425686e-09, 5.213214492280807e-09, -1.3991589583935709e-09,
     5.382058999060575e-16, 1.9484714275467745e-10, -1.0127287556389682e-10,),
    (-0.0005967612901927463, -7.204895416020011e-05, 0.0006782308837667328,
     -0.0006401475260262758, 0.00027750107634328704, 1.819700838046515e-07,
     -8.479507117068503e-05, 6.105192082501531e-05, -2.1073920183404862e-05,
     -8.858589014125599e-10, 4.5284535953805374e-06, -2.8427815022504407e-06,
     8.708234177864641e-07, 3.6886101871706966e-12, -1.534469519070206e-07,
     8.862466778790695e-08, -2.5184812301826817e-08, -1.0225912098215092e-14,
     3.896947075815478e-09, -2.1267304792235634e-09, 5.737013552805138e-10,
     -1.887749850169741e-19,),
)  # fmt: skip


def _log_below(mu: Any) -> Any:
    """``log(1 + mu) - mu``, without cancellation near zero: 2 atanh(s) - mu, s = mu / (2 + mu)."""
    near = comparison.lt(magnitude.abs(mu), 0.3)
    inside = comparison.where(near, mu, 0.0)
    s = div(inside, add(inside, 2))
    square = mul(s, s)
    series = polynomial(square, *[2.0 / (2 * k + 3) for k in range(14)])
    close = sub(mul(mul(s, square), series), mul(inside, s))
    return comparison.where(near, close, sub(exponential.log1p(mu), mu))


def _factor(a: Any, x: Any) -> Any:
    """``x**a exp(-x) / gamma(a + 1)``: by Stirling's series where ``a`` is large."""
    large = comparison.ge(a, 10.0)
    b = comparison.where(large, a, 10.0)
    inverse = div(1.0, b)
    terms = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    stirling = mul(inverse, polynomial(mul(inverse, inverse), *terms))
    exponent = sub(mul(b, _log_below(div(sub(x, b), b))), stirling)
    far = div(exponential.exp(exponent), exponential.sqrt(mul(b, 2 * math.pi)))
    c = comparison.where(large, 1.0, a)
    near = exponential.exp(sub(sub(mul(c, exponential.log(x)), x), lgamma(add(c, 1))))
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
    """Q by the continued fraction DLMF 8.9.2, for ``x`` beyond ``a`` and 1."""
    y = sub(1, a)
    z = add(add(x, y), 1)
    p_before, q_before = lazy.ones_like(x), x
    p, q = add(x, 1), mul(z, x)
    out = div(p, q)
    for n in range(1, _MOST_TERMS):
        y, z = add(y, 1), add(z, 2)
        yc = mul(y, float(n))
        p_next = sub(mul(p, z), mul(p_before, yc))
        q_next = sub(mul(q, z), mul(q_before, yc))
        changed = div(p_next, q_next)
        change = sub(out, changed)
        out = changed
        p_before, p, q_before, q = p, p_next, q, q_next
        scale = comparison.where(comparison.gt(magnitude.abs(p), _BIG), 1 / _BIG, 1.0)
        p_before, p = mul(p_before, scale), mul(p, scale)
        q_before, q = mul(q_before, scale), mul(q, scale)
        if _settled(n, change, out):
            break
    return mul(mul(out, a), _factor(a, x))


def _uniform(a: Any, x: Any, sign: float) -> Any:
    """Q (sign 1) or P (-1) where ``a`` is large and ``x`` near it: DLMF 8.12.3 and 8.12.4."""
    square = mul(_log_below(div(sub(x, a), a)), -2)
    root = exponential.sqrt(magnitude.clamp(square, 0.0))
    eta = mul(root, magnitude.sign(sub(x, a)))
    total: Any = 0.0
    inverse = div(1.0, a)
    for row in reversed(_TEMME):
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


_FACTS: dict[str, Any] = {
    "out": broadcast,
    "dtype": promote_float,
    "samples": _samples,
    "dtypes": "float",
    "values": (0.2, 4.0),
    "tolerance": ulp(64),
    "cast": "float32_accelerated",
    "unbroadcast": True,
}


def _density(grad: Any, a: Any, x: Any) -> Any:
    """The gradient of P with respect to ``x``: ``x**(a - 1) exp(-x) / gamma(a)``."""
    logarithm = sub(mul(sub(a, 1), exponential.log(x)), add(x, lgamma(a)))
    return mul(grad, exponential.exp(logarithm))


@composite(**_FACTS, inplace=True)
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """The regularized lower incomplete gamma function ``P(self, other)``; shapes broadcast.

    NaN where an argument is negative. The derivative with respect to ``self`` is not there.
    """
    return in_float64(lambda a, x: _regularized(a, x, False), self, other)


@composite(**_FACTS, inplace=True)
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


@composite(**_FACTS, namespace="special", method=False)
def gammainc(input: Tensor, other: Tensor) -> Tensor:
    """:func:`igamma` under its name in ``special``."""
    return igamma(input, other)


@composite(**_FACTS, namespace="special", method=False)
def gammaincc(input: Tensor, other: Tensor) -> Tensor:
    """:func:`igammac` under its name in ``special``."""
    return igammac(input, other)
