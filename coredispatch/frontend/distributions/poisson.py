"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.exp_family import ParametricFamily
from coredispatch.frontend.distributions.utils import broadcast_all
from coredispatch.frontend.tensor import Tensor

__all__ = ["Poisson"]


class Poisson(ParametricFamily):
    """Counts of events of the given ``rate``."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._set_parameters(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with cd.no_grad():
            return cd.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return cd.xlogy(value, rate) - rate - cd.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (cd.log(self.rate),)

    def _log_normalizer(self, x: Any) -> Tensor:
        return cd.exp(x)
