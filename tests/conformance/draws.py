"""The distributions that random operators draw from, with their probabilities.

An entry draws a tensor of any shape on a device; beside it stands the distribution function of a
continuous distribution, or the probability of each value of a discrete one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd

__all__ = ["CONTINUOUS", "DISCRETE", "Draw"]

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
    "gumbel_softmax": (_gumbel, lambda x: x),
    "rrelu": (_slopes, lambda x: (x - 0.125) * 2),
}


def _share(p: float, dtype: str) -> Draw:
    return lambda d, n: cd.bernoulli(_full(d, n, p, dtype))


def _binomial(n: int, p: float) -> dict[int, float]:
    return {k: math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}


def _poisson(rate: float, most: int) -> dict[int, float]:
    found = {k: math.exp(-rate) * rate**k / math.factorial(k) for k in range(most)}
    return {**found, most: 1 - sum(found.values())}


def _kept(dtype: str) -> Draw:
    """What dropout keeps of ones."""

    def draw(d: str, n: tuple[int, ...]) -> Any:
        return (cd.nn.functional.dropout(_full(d, n, 1.0, dtype), 0.3, True) != 0).float()

    return draw


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
    "geometric_": (
        lambda d, n: _empty(d, n).geometric_(0.3).clamp(max=12.0),
        {**{k: 0.3 * 0.7 ** (k - 1) for k in range(1, 12)}, 12: 0.7**11},
    ),
}
