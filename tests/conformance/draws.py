"""The distributions that random operators draw from, with their probabilities.

An entry draws a tensor of any shape on a device; beside it stands the distribution function of a
continuous distribution, or the probability of each value of a discrete one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd

from .subject import numpy_dtype

__all__ = ["CONTINUOUS", "DISCRETE", "NARROW", "SELDOM", "Draw"]

#: (device, shape) -> the numbers
Draw = Callable[[str, tuple[int, ...]], Any]


def _normal_cdf(x: Any) -> Any:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in np.asarray(x).reshape(-1)])


def _log_normal(x: Any) -> Any:
    return _normal_cdf((np.log(x) - 0.5) / 0.7)


def _empty(d: str, n: tuple[int, ...], dtype: str = "float32") -> Any:
    return cd.empty(n, dtype=getattr(cd, dtype), device=d)


def _full(d: str, n: tuple[int, ...], value: float, dtype: str = "float32") -> Any:
    return cd.full(n, value, dtype=getattr(cd, dtype), device=d)


def _normal(d: str, n: tuple[int, ...]) -> Any:
    return cd.normal(_full(d, n, 2.0), _full(d, n, 3.0))


def _gamma(d: str, n: tuple[int, ...]) -> Any:
    return cd.ops._standard_gamma(_full(d, n, 2.0))


def _gumbel(d: str, n: tuple[int, ...]) -> Any:
    """The first of two classes that are alike: the logistic function of a logistic number."""
    logits = cd.zeros((*n, 2), dtype=cd.float64, device=d)
    return cd.nn.functional.gumbel_softmax(logits)[..., 0]


def _hard(d: str, n: tuple[int, ...]) -> Any:
    """Whether the second of two classes is chosen, which is three times as likely."""
    logits = cd.tensor([0.0, math.log(3.0)], device=d).expand((*n, 2))
    return cd.nn.functional.gumbel_softmax(logits, hard=True)[..., 1]


def _dirichlet(d: str, n: tuple[int, ...]) -> Any:
    """The first share of two, of weights 2 and 1: its square is uniform."""
    weights = cd.tensor([2.0, 1.0], dtype=cd.float64, device=d).expand((*n, 2))
    return cd.ops._sample_dirichlet(weights)[..., 0]


def _by_size(d: str, n: tuple[int, ...]) -> Any:
    return cd.normal(2.0, 3.0, n, device=d)


def _parts(name: str, part: int) -> Draw:
    """One of the two parts of complex uniform numbers."""

    def draw(d: str, n: tuple[int, ...]) -> Any:
        if name == "uniform_":
            drawn = _empty(d, n, "complex64").uniform_(-1.0, 3.0)
        elif name == "rand_like":
            drawn = cd.rand_like(_empty(d, n, "complex64"))
        else:
            drawn = cd.rand(n, device=d, dtype=cd.complex128)
        return cd.view_as_real(drawn)[..., part]

    return draw


def _slopes(d: str, n: tuple[int, ...]) -> Any:
    return -cd.nn.functional.rrelu(-cd.ones(n, device=d), 0.125, 0.625, True)


#: continuous distributions: name -> (draw, distribution function)
CONTINUOUS: dict[str, tuple[Draw, Callable[[Any], Any]]] = {
    "rand": (lambda d, n: cd.rand(n, device=d), lambda x: x),
    "rand-float64": (lambda d, n: cd.rand(n, device=d, dtype=cd.float64), lambda x: x),
    "rand_like": (lambda d, n: cd.rand_like(_empty(d, n)), lambda x: x),
    "uniform_": (lambda d, n: _empty(d, n).uniform_(-1.0, 3.0), lambda x: (x + 1) / 4),
    "uniform_-float64": (
        lambda d, n: _empty(d, n, "float64").uniform_(-1.0, 3.0),
        lambda x: (x + 1) / 4,
    ),
    "randn": (lambda d, n: cd.randn(n, device=d), _normal_cdf),
    "randn-float64": (lambda d, n: cd.randn(n, device=d, dtype=cd.float64), _normal_cdf),
    "randn_like": (lambda d, n: cd.randn_like(_empty(d, n)), _normal_cdf),
    "normal": (_normal, lambda x: _normal_cdf((x - 2) / 3)),
    "normal_": (lambda d, n: _empty(d, n).normal_(2.0, 3.0), lambda x: _normal_cdf((x - 2) / 3)),
    "exponential_": (lambda d, n: _empty(d, n).exponential_(2.0), lambda x: 1 - np.exp(-2 * x)),
    "log_normal_": (lambda d, n: _empty(d, n).log_normal_(0.5, 0.7), _log_normal),
    "cauchy_": (
        lambda d, n: _empty(d, n).cauchy_(1.0, 2.0),
        lambda x: 0.5 + np.arctan((x - 1) / 2) / math.pi,
    ),
    "_standard_gamma": (_gamma, lambda x: 1 - (1 + x) * np.exp(-x)),
    "exponential_-slow": (
        lambda d, n: _empty(d, n).exponential_(0.25),
        lambda x: 1 - np.exp(-x / 4),
    ),
    "_standard_gamma-small": (  # a half: the square of a normal number
        lambda d, n: cd.ops._standard_gamma(_full(d, n, 0.5, "float64")),
        lambda x: np.array([math.erf(math.sqrt(v)) for v in np.asarray(x).reshape(-1)]),
    ),
    "normal_-float64": (
        lambda d, n: _empty(d, n, "float64").normal_(-1.0, 0.5),
        lambda x: _normal_cdf((x + 1) * 2),
    ),
    "randn-complex64": (
        lambda d, n: cd.view_as_real(cd.randn(n, device=d, dtype=cd.complex64))[..., 1],
        lambda x: _normal_cdf(x * math.sqrt(2.0)),
    ),
    "randn-complex128": (
        lambda d, n: cd.view_as_real(cd.randn(n, device=d, dtype=cd.complex128))[..., 0],
        lambda x: _normal_cdf(x * math.sqrt(2.0)),
    ),
    "rand-complex128": (_parts("rand", 1), lambda x: x),
    "rand_like-complex64": (_parts("rand_like", 1), lambda x: x),
    "uniform_-complex64": (_parts("uniform_", 1), lambda x: (x + 1) / 4),
    "normal-mean": (
        lambda d, n: cd.normal(_full(d, n, 2.0), 3.0),
        lambda x: _normal_cdf((x - 2) / 3),
    ),
    "normal-std": (
        lambda d, n: cd.normal(2.0, _full(d, n, 3.0)),
        lambda x: _normal_cdf((x - 2) / 3),
    ),
    "normal-size": (_by_size, lambda x: _normal_cdf((x - 2) / 3)),
    "exponential_-float64": (
        lambda d, n: _empty(d, n, "float64").exponential_(1.5),
        lambda x: 1 - np.exp(-1.5 * x),
    ),
    "_standard_gamma-large": (  # a sum of five exponential numbers
        lambda d, n: cd.ops._standard_gamma(_full(d, n, 5.0)),
        lambda x: 1 - np.exp(-x) * sum(x**k / math.factorial(k) for k in range(5)),
    ),
    "_sample_dirichlet": (_dirichlet, lambda x: x**2),
    "gumbel_softmax": (_gumbel, lambda x: x),
    "rrelu": (_slopes, lambda x: (x - 0.125) * 2),
    # What others are made of, where a kernel stands for itself.
    "random_uniform": (
        lambda d, n: cd.ops.random_uniform(n, -1.0, 3.0, device=d),
        lambda x: (x + 1) / 4,
    ),
    "random_normal": (
        lambda d, n: cd.ops.random_normal(n, 2.0, 3.0, device=d),
        lambda x: _normal_cdf((x - 2) / 3),
    ),
    "exponential": (
        lambda d, n: cd.ops.exponential(_empty(d, n), 3.0),
        lambda x: 1 - np.exp(-3 * x),
    ),
}


def _rounded(
    draw: Callable[[str, tuple[int, ...], str], Any], cdf: Callable[[Any], Any], dtype: str
) -> tuple[Draw, Callable[[Any], Any]]:
    """A distribution in half precision: each number stands for what is rounded to it.

    Where in its interval it lies is drawn, so that the probabilities below are uniform again
    (Rosenblatt, 1952).
    """

    def below(values: Any) -> Any:
        x = np.asarray(values).astype(numpy_dtype(dtype))
        up, down = (np.nextafter(x, x.dtype.type(end)).astype(np.float64) for end in (1e4, -1e4))
        wide = x.astype(np.float64)
        low, high = (np.clip(cdf((wide + end) / 2), 0.0, 1.0) for end in (down, up))
        return low + (high - low) * np.random.default_rng(7).random(wide.shape)

    return (lambda d, n: draw(d, n, dtype)), below


_HALF: dict[str, tuple[Callable[[str, tuple[int, ...], str], Any], Callable[[Any], Any]]] = {
    "randn": (lambda d, n, t: cd.randn(n, device=d, dtype=getattr(cd, t)), _normal_cdf),
    "randn_like": (lambda d, n, t: cd.randn_like(_empty(d, n, t)), _normal_cdf),
    "normal_": (
        lambda d, n, t: _empty(d, n, t).normal_(2.0, 3.0),
        lambda x: _normal_cdf((x - 2) / 3),
    ),
    "normal": (
        lambda d, n, t: cd.normal(_full(d, n, 0.0, t), _full(d, n, 0.5, t)),
        lambda x: _normal_cdf(x * 2),
    ),
    "exponential_": (
        lambda d, n, t: _empty(d, n, t).exponential_(2.0),
        lambda x: 1 - np.exp(-2 * np.maximum(x, 0)),
    ),
}
#: the same in half precision, where a number stands for an interval
NARROW: dict[str, tuple[Draw, Callable[[Any], Any]]] = {
    f"{name}-{dtype}": _rounded(draw, cdf, dtype)
    for name, (draw, cdf) in _HALF.items()
    for dtype in ("float16", "bfloat16")
}


def _share(p: float, dtype: str) -> Draw:
    return lambda d, n: cd.bernoulli(_full(d, n, p, dtype))


def _binomial(n: int, p: float, most: int | None = None) -> dict[int, float]:
    """The probabilities, up to ``most`` where what lies beyond is below all that counts."""
    counts = range((n if most is None else most) + 1)
    return {k: math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in counts}


def _poisson(rate: float, most: int) -> dict[int, float]:
    found = {k: math.exp(-rate) * rate**k / math.factorial(k) for k in range(most)}
    return {**found, most: 1 - sum(found.values())}


def _kept(dtype: str) -> Draw:
    """What dropout keeps of ones."""

    def draw(d: str, n: tuple[int, ...]) -> Any:
        return (cd.nn.functional.dropout(_full(d, n, 1.0, dtype), 0.3, True) != 0).float()

    return draw


def _scaled(d: str, n: tuple[int, ...]) -> Any:
    """What dropout makes of ones where most are dropped: 4 times them."""
    return cd.nn.functional.dropout(_full(d, n, 1.0), 0.75, True)


def _masked(d: str, n: tuple[int, ...]) -> Any:
    """Dropout of ones, and 2 more where its mask keeps the element: never 1, never 2."""
    kept, mask = cd.ops.native_dropout(_full(d, n, 1.0), 0.4)
    return (kept != 0).float() + 2 * mask.float()


def _channels(drop: str, spatial: int) -> Draw:
    """What dropout of whole channels makes of ones: 0 or 2, the same in all of a channel."""

    def draw(d: str, n: tuple[int, ...]) -> Any:
        images = cd.ones((math.prod(n[:-1]), n[-1], *(2,) * spatial), device=d)
        made = getattr(cd.nn.functional, drop)(images, 0.5, True)
        flat = made.reshape((*n, 2**spatial))
        alike = (flat == flat[..., :1]).all(-1)
        return cd.where(alike, flat[..., 0], 9.0)

    return draw


def _alpha(drop: str) -> Draw:
    """Whether alpha dropout keeps ones: with p = 0.3, 1.3150 where it does, else -1.0595."""

    def draw(d: str, n: tuple[int, ...]) -> Any:
        ones = cd.ones((math.prod(n[:-1]), n[-1]), device=d)
        made = getattr(cd.nn.functional, drop)(ones, 0.3, True).reshape(n)
        kept, dropped = ((made - value).abs() < 1e-3 for value in (1.31499, -1.05949))
        return cd.where(kept, 1.0, cd.where(dropped, 0.0, 9.0))

    return draw


def _pairs(d: str, n: tuple[int, ...]) -> Any:
    """Two of three without replacement, as the first times 3 and the second."""
    weights = cd.tensor([1.0, 2.0, 5.0], device=d).expand((math.prod(n), 3))
    pair = cd.multinomial(weights, 2)
    return (pair[:, 0] * 3 + pair[:, 1]).reshape(n)


def _triples(d: str, n: tuple[int, ...]) -> Any:
    """Three of four without replacement, as digits to the base of 4."""
    weights = cd.tensor([1.0, 2.0, 5.0, 3.0], device=d).expand((math.prod(n), 4))
    drawn = cd.multinomial(weights, 3)
    return (drawn[:, 0] * 16 + drawn[:, 1] * 4 + drawn[:, 2]).reshape(n)


def _three_successively(weights: list[float]) -> dict[int, float]:
    """The probabilities of three that are drawn one after the other."""
    total = sum(weights)
    return {
        i * 16 + j * 4 + k: weights[i]
        / total
        * (weights[j] / (total - weights[i]))
        * (weights[k] / (total - weights[i] - weights[j]))
        for i, j, k in itertools.permutations(range(len(weights)), 3)
    }


def _successively(weights: list[float]) -> dict[int, float]:
    """The probabilities of ordered pairs that are drawn one after the other."""
    total, count = sum(weights), len(weights)
    return {
        i * count + j: a / total * b / (total - a)
        for i, a in enumerate(weights)
        for j, b in enumerate(weights)
        if i != j
    }


def _within(shares: dict[int, float], low: int, high: int) -> dict[int, float]:
    """The probabilities between two values, which take what lies beyond them."""
    found = {k: shares[k] for k in range(low, high + 1)}
    found[low] = sum(p for k, p in shares.items() if k <= low)
    found[high] = 1 - sum(p for k, p in shares.items() if k < high)
    return found


def _multinomial(d: str, n: tuple[int, ...]) -> Any:
    """A row of weights for each of the last dimension's rows."""
    weights = cd.tensor([1.0, 2.0, 0.0, 5.0], device=d)
    if len(n) == 1:
        return cd.multinomial(weights, n[0], True)
    rows = weights.expand((math.prod(n[:-1]), 4))
    return cd.multinomial(rows, n[-1], True).reshape(n)


#: discrete distributions: name -> (draw, probability of each value)
DISCRETE: dict[str, tuple[Draw, dict[int, float]]] = {
    "randint": (
        lambda d, n: cd.randint(-3, 8, n, device=d),
        dict.fromkeys(range(-3, 8), 1 / 11),
    ),
    "random_integers": (
        lambda d, n: cd.ops.random_integers(n, -3, 8, device=d),
        dict.fromkeys(range(-3, 8), 1 / 11),
    ),
    "randint-int8": (
        lambda d, n: cd.randint(-128, 128, n, device=d, dtype=cd.int8),
        dict.fromkeys(range(-128, 128), 1 / 256),
    ),
    "random_": (
        lambda d, n: _empty(d, n, "int64").random_(2, 13),
        dict.fromkeys(range(2, 13), 1 / 11),
    ),
    "randint_like": (
        lambda d, n: cd.randint_like(_empty(d, n, "int64"), 10),
        dict.fromkeys(range(10), 1 / 10),
    ),
    "bernoulli": (_share(0.3, "float32"), {0: 0.7, 1: 0.3}),
    "bernoulli-float16": (_share(0.296875, "float16"), {0: 0.703125, 1: 0.296875}),
    "bernoulli-bfloat16": (_share(0.0703125, "bfloat16"), {0: 0.9296875, 1: 0.0703125}),
    "bernoulli_": (lambda d, n: _empty(d, n).bernoulli_(0.2), {0: 0.8, 1: 0.2}),
    "dropout": (_kept("float32"), {0: 0.3, 1: 0.7}),
    "dropout-float16": (_kept("float16"), {0: 0.3, 1: 0.7}),
    "multinomial": (_multinomial, {0: 0.125, 1: 0.25, 3: 0.625}),
    "binomial": (
        lambda d, n: cd.binomial(_full(d, n, 6.0), _full(d, n, 0.3)),
        _binomial(6, 0.3),
    ),
    "poisson": (
        lambda d, n: cd.poisson(_full(d, n, 2.5)).clamp(max=9.0),
        _poisson(2.5, 9),
    ),
    "dropout-most": (_scaled, {0: 0.75, 4: 0.25}),
    "native_dropout": (_masked, {0: 0.4, 3: 0.6}),
    "binomial-many": (
        lambda d, n: cd.binomial(_full(d, n, 50.0), _full(d, n, 0.9)).clamp(38.0, 49.0),
        _within(_binomial(50, 0.9), 38, 49),
    ),
    "binomial-rare": (
        lambda d, n: cd.binomial(_full(d, n, 2000.0), _full(d, n, 0.01)).clamp(8.0, 34.0),
        _within(_binomial(2000, 0.01, 100), 8, 34),
    ),
    "poisson-large": (
        lambda d, n: cd.poisson(_full(d, n, 40.0)).clamp(26.0, 56.0),
        _within(_poisson(40.0, 80), 26, 56),
    ),
    "multinomial-without": (_pairs, _successively([1.0, 2.0, 5.0])),
    "multinomial-three": (_triples, _three_successively([1.0, 2.0, 5.0, 3.0])),
    "gumbel_softmax-hard": (_hard, {0: 0.25, 1: 0.75}),
    "dropout1d": (_channels("dropout1d", 1), {0: 0.5, 2: 0.5}),
    "dropout2d": (_channels("dropout2d", 2), {0: 0.5, 2: 0.5}),
    "dropout3d": (_channels("dropout3d", 3), {0: 0.5, 2: 0.5}),
    "alpha_dropout": (_alpha("alpha_dropout"), {0: 0.3, 1: 0.7}),
    "feature_alpha_dropout": (_alpha("feature_alpha_dropout"), {0: 0.3, 1: 0.7}),
    "dropout-bfloat16": (_kept("bfloat16"), {0: 0.3, 1: 0.7}),
    "bernoulli-float64": (_share(0.3, "float64"), {0: 0.7, 1: 0.3}),
    "bernoulli_-int32": (
        lambda d, n: _empty(d, n, "int32").bernoulli_(0.2),
        {0: 0.8, 1: 0.2},
    ),
    "bernoulli_-tensor": (
        lambda d, n: _empty(d, n).bernoulli_(_full(d, n, 0.9)),
        {0: 0.1, 1: 0.9},
    ),
    "randint-uint8": (
        lambda d, n: cd.randint(0, 256, n, device=d, dtype=cd.uint8),
        dict.fromkeys(range(256), 1 / 256),
    ),
    "randint-int16": (
        lambda d, n: cd.randint(-5, 6, n, device=d, dtype=cd.int16),
        dict.fromkeys(range(-5, 6), 1 / 11),
    ),
    "randint-int32": (
        lambda d, n: cd.randint(-3, 8, n, device=d, dtype=cd.int32),
        dict.fromkeys(range(-3, 8), 1 / 11),
    ),
    "randint-float16": (
        lambda d, n: cd.randint(0, 11, n, device=d, dtype=cd.float16),
        dict.fromkeys(range(11), 1 / 11),
    ),
    "random_-int8": (
        lambda d, n: _empty(d, n, "int8").random_(),
        dict.fromkeys(range(128), 1 / 128),
    ),
    "random_-uint8": (
        lambda d, n: _empty(d, n, "uint8").random_(),
        dict.fromkeys(range(256), 1 / 256),
    ),
    "random_-bool": (lambda d, n: _empty(d, n, "bool").random_(), {0: 0.5, 1: 0.5}),
    "random_-bfloat16": (
        lambda d, n: _empty(d, n, "bfloat16").random_(),
        dict.fromkeys(range(257), 1 / 257),
    ),
    "random_-float16": (
        lambda d, n: _empty(d, n, "float16").random_(-2, 9),
        dict.fromkeys(range(-2, 9), 1 / 11),
    ),
    "binomial-float64": (
        lambda d, n: cd.binomial(_full(d, n, 9.0, "float64"), _full(d, n, 0.1, "float64")),
        _binomial(9, 0.1),
    ),
    "poisson-float16": (
        lambda d, n: cd.poisson(_full(d, n, 2.5, "float16")).clamp(max=9.0),
        _poisson(2.5, 9),
    ),
    "poisson-middle": (
        lambda d, n: cd.poisson(_full(d, n, 12.0)).clamp(4.0, 21.0),
        _within(_poisson(12.0, 60), 4, 21),
    ),
    "geometric_-int64": (
        lambda d, n: _empty(d, n, "int64").geometric_(0.6).clamp(max=6),
        {**{k: 0.6 * 0.4 ** (k - 1) for k in range(1, 6)}, 6: 0.4**5},
    ),
    "geometric_": (
        lambda d, n: _empty(d, n).geometric_(0.3).clamp(max=12.0),
        {**{k: 0.3 * 0.7 ** (k - 1) for k in range(1, 12)}, 12: 0.7**11},
    ),
}


def _dropped(p: float) -> Draw:
    return lambda d, n: (cd.nn.functional.dropout(_full(d, n, 1.0), p, True) != 0).float()


def _unmasked(p: float) -> Draw:
    return lambda d, n: cd.ops.native_dropout(_full(d, n, 1.0), p)[1].float()


def _seldom(draw: Draw, p: float) -> tuple[Draw, dict[int, float]]:
    return draw, {0: 1 - p, 1: p}


#: probabilities beside 0 and 1, below what 8 bits can say, and amounts near an end that nothing
#: passes: where an approximation leaves the range. They are counted, and not held place by place.
SELDOM: dict[str, tuple[Draw, dict[int, float]]] = {
    "dropout-seldom": _seldom(_dropped(0.998), 0.002),
    "dropout-mostly": _seldom(_dropped(0.0015), 0.9985),
    "native_dropout-seldom": _seldom(_unmasked(0.998), 0.002),
    "native_dropout-mostly": _seldom(_unmasked(0.0015), 0.9985),
    "bernoulli-seldom": _seldom(_share(0.0015, "float32"), 0.0015),
    "bernoulli-mostly": _seldom(_share(0.998, "float64"), 0.998),
    "bernoulli_-seldom": _seldom(lambda d, n: _empty(d, n).bernoulli_(0.0015), 0.0015),
    "binomial-seldom": _seldom(
        lambda d, n: cd.binomial(_full(d, n, 1.0), _full(d, n, 0.0015)), 0.0015
    ),
    "multinomial-seldom": _seldom(
        lambda d, n: cd.multinomial(cd.tensor([0.9985, 0.0015], device=d), math.prod(n), True),
        0.0015,
    ),
    "dropout2d-mostly": _seldom(
        lambda d, n: (
            (
                cd.nn.functional.dropout2d(cd.ones((1, math.prod(n), 1, 1), device=d), 0.0015, True)
                != 0
            )
            .float()
            .reshape(n)
        ),
        0.9985,
    ),
    "alpha_dropout-mostly": _seldom(
        lambda d, n: (cd.nn.functional.alpha_dropout(_full(d, n, 1.0), 0.0015, True) > 0).float(),
        0.9985,
    ),
    "binomial-nearly-all": (
        lambda d, n: cd.binomial(_full(d, n, 1000.0), _full(d, n, 0.999)).clamp(min=995.0),
        _within(_binomial(1000, 0.999), 995, 1000),
    ),
    "binomial-nearly-none": (
        lambda d, n: cd.binomial(_full(d, n, 700.0), _full(d, n, 0.002)).clamp(max=6.0),
        _within(_binomial(700, 0.002), 0, 6),
    ),
    "poisson-nearly-none": (
        lambda d, n: cd.poisson(_full(d, n, 0.004)).clamp(max=1.0),
        {0: math.exp(-0.004), 1: 1 - math.exp(-0.004)},
    ),
    "geometric_-nearly-sure": (
        lambda d, n: _empty(d, n).geometric_(0.9985).clamp(max=2.0),
        {1: 0.9985, 2: 0.0015},
    ),
}
