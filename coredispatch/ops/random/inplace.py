"""Tensors filled with random numbers in place, and samplers for single distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.random.factories import (
    randint_like,
    random_normal,
    random_uniform,
    uniform,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Generator, Scalar, Tensor
from coredispatch.ops.support.inspection import all_true, any_true, greatest
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import same, same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, int64
from coredispatch.registry.model.errors import ArgumentError
from coredispatch.registry.model.scalars import check_interval
from coredispatch.registry.model.value import dtype_of

__all__ = [
    "bernoulli_",
    "binomial",
    "cauchy_",
    "exponential",
    "exponential_",
    "geometric_",
    "log_normal_",
    "normal_",
    "open_uniform",
    "poisson",
    "random_",
    "uniform_",
]


def _wide(x: Any) -> Any:
    return widest(x) if x.dtype.itemsize >= 8 else float32


def open_uniform(x: Any, generator: Any) -> Any:
    """Uniform numbers in (0, 1] in the shape of ``x``, fit for logarithms."""
    drawn = random_uniform(tuple(x.shape), dtype=_wide(x), device=x.device, generator=generator)
    return 1.0 - drawn


def _targets(make: Any) -> Iterator[Sample]:
    for size in ((), (0,), (17,), (3, 5)):
        yield Sample(make(size))


_IN_PLACE: dict[str, Any] = {
    "out": same_shape,
    "dtype": same,
    "dtypes": "float",
    "mutates": ("self",),
    "random": True,
    "namespace": (),
}


# ---- in place -----------------------------------------------------------------------------------


@composite(takes="float+complex", samples=_targets, **_IN_PLACE)
def uniform_(
    self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill ``self`` with numbers uniform in [low, high), in both parts of complex ones."""
    if low > high:
        raise ArgumentError(
            f"uniform_ needs low <= high, got {low} and {high}", fix="swap the bounds"
        )
    return lazy.copy_(
        self,
        uniform(
            tuple(self.shape),
            low,
            high,
            dtype=self.dtype,
            device=self.device,
            generator=generator,
        ),
    )


@composite(takes="float+complex", samples=_targets, **_IN_PLACE)
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill ``self`` with numbers of the normal distribution."""
    if std < 0:
        raise ArgumentError(f"std must not be negative, got {std}", fix="use a std of at least 0")
    return lazy.copy_(
        self,
        random_normal(
            tuple(self.shape),
            mean,
            std,
            dtype=self.dtype,
            device=self.device,
            generator=generator,
        ),
    )


@composite(samples=_targets, **_IN_PLACE)
def bernoulli_(
    self: Tensor, p: Tensor | Scalar = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill ``self`` with 1 (with probability ``p``, a number or a tensor) and 0."""
    if not hasattr(p, "shape") and not 0 <= p <= 1:
        raise ArgumentError(
            f"bernoulli_ needs a probability between 0 and 1, got {p}",
            fix="use a probability from 0 to 1",
        )
    drawn = random_uniform(
        tuple(self.shape), dtype=float32, device=self.device, generator=generator
    )
    return lazy.copy_(self, lazy.lt(drawn, p))


@composite(samples=_targets, **_IN_PLACE)
def random_(self: Tensor, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill ``self`` with integers in [0, high); ``random_(low, high)`` starts at ``low``.

    Without bounds the range of an integer dtype above zero, of a floating one up to
    2**mantissa bits. Raises :class:`NumberRangeError` for bounds that the dtype does not hold.
    """
    return _fill_integers(self, 0, _top(self) if high is None else high, generator)


@random_.overload
def _(self: Tensor, low: int, high: int | None, *, generator: Generator | None = None) -> Tensor:
    return _fill_integers(self, low, _top(self) if high is None else high, generator)


@random_.overload
def _(self: Tensor, *, low: int, generator: Generator | None = None) -> Tensor:
    return _fill_integers(self, low, _top(self), generator)


_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _top(x: Any) -> int:
    if x.dtype.name in _MANTISSA:
        return 2 ** _MANTISSA[x.dtype.name] + 1
    if x.dtype.kind == "b":
        return 2
    return 2 ** (8 * x.dtype.itemsize - (x.dtype.kind == "i"))


def _fill_integers(x: Any, low: int, high: int, generator: Any) -> Any:
    if not (high == 1 << 64 and dtype_of(x).itemsize == 8 and not dtype_of(x).is_signed):
        check_interval(low, high, dtype_of(x))
    # Of the tensor rather than of its shape: what wraps it draws for itself.
    return lazy.copy_(x, randint_like(x, low, min(high, 1 << 63), dtype=int64, generator=generator))


@composite(takes="float", samples=_targets, **_IN_PLACE)
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill ``self`` with numbers of the exponential distribution of rate ``lambd``."""
    if not lambd > 0:
        raise ArgumentError(f"lambd must be positive, got {lambd}", fix="use a rate above 0")
    return lazy.copy_(self, exponential(self.detach(), lambd, generator=generator))


@composite(
    takes="real",
    samples=lambda make: (Sample(*x.args, 0.3) for x in _targets(make)),
    **_IN_PLACE,
)
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill ``self`` with the numbers of trials up to the first success of probability ``p``."""
    if not 0 < p < 1:
        raise ArgumentError(
            f"geometric_ needs 0 < p < 1, got {p}", fix="use a probability above 0 and below 1"
        )
    trials = lazy.ceil(lazy.log(open_uniform(self, generator)) / math.log1p(-p))
    return lazy.copy_(self, lazy.clamp(trials, 1.0))


@composite(takes="float", samples=_targets, **_IN_PLACE)
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill ``self`` with numbers of the Cauchy distribution."""
    if not sigma > 0:
        raise ArgumentError(f"sigma must be positive, got {sigma}", fix="use a sigma above 0")
    angle = (open_uniform(self, generator) - 0.5) * math.pi
    return lazy.copy_(self, lazy.tan(angle) * sigma + median)


@composite(takes="float", samples=_targets, **_IN_PLACE)
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill ``self`` with numbers whose logarithm has the normal distribution."""
    if not std > 0:
        raise ArgumentError(f"std must be positive, got {std}", fix="use a std above 0")
    drawn = random_normal(
        tuple(self.shape), mean, std, dtype=_wide(self), device=self.device, generator=generator
    )
    return lazy.copy_(self, lazy.exp(drawn))


# ---- samplers -----------------------------------------------------------------------------------


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (Sample(make(s)) for s in ((), (0,), (17,), (3, 5))),
    dtypes="float",
    differentiable=False,
    random=True,
    namespace=(),
    method=False,
)
def exponential(self: Tensor, rate: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of the exponential distribution in the shape and dtype of ``self``, above zero."""
    if rate <= 0:
        raise ArgumentError(f"the rate must be positive, got {rate}", fix="use a rate above 0")
    drawn = -lazy.log(open_uniform(self, generator))
    return lazy.clamp(drawn / rate, 1e-38).to_dtype(self.dtype)


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (Sample(make.positive(s)) for s in ((), (17,), (3, 5))),
    takes="float",
    random=True,
    method=False,
)
def poisson(self: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the Poisson distribution, one for each rate in ``self``.

    The definition counts the arrivals of a process within one unit of time (Knuth); backends
    have faster kernels. Raises :class:`ArgumentError` for a negative rate.
    """
    if self.numel() and not all_true(lazy.ge(self, 0)):
        raise ArgumentError(
            "poisson needs rates that are not negative", fix="use rates of at least 0"
        )
    rate = self.to_dtype(widest(self))
    count, time = lazy.zeros_like(rate), exponential(rate, generator=generator)
    while any_true(lazy.lt(time, rate)):
        count = count + lazy.lt(time, rate)
        time = time + exponential(rate, generator=generator)
    return count.to_dtype(self.dtype)


poisson.vjp(self=lambda grad: lazy.zeros_like(grad))


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (
        Sample(np.round(make(s, low=1.0, high=9.0)), make(s, low=0.1, high=0.9))
        for s in ((17,), (3, 5), (0,))
    ),
    differentiable=False,
    random=True,
    method=False,
    dtypes="float",
)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of successes in ``count`` trials of probability ``prob``, in the dtype of count."""
    if count.numel() == 0:
        return count.clone()
    trials = int(greatest(count))
    number = lazy.arange(trials, device=count.device)
    drawn = random_uniform(
        (*count.shape, trials), dtype=widest(count), device=count.device, generator=generator
    )
    success = lazy.lt(drawn, prob.unsqueeze(-1)) & lazy.lt(number, count.unsqueeze(-1))
    return lazy.sum(success, -1).to_dtype(count.dtype)
