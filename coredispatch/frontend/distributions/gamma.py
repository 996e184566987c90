"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.exp_family import ParametricFamily
from coredispatch.frontend.tensor import Tensor

__all__ = ["Gamma"]


class Gamma(ParametricFamily):
    """The gamma distribution of shape ``concentration`` and inverse scale ``rate``.

    Samples have gradients for both parameters, through implicit reparameterization.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._set_parameters(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = cd._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        # A sample that rounds to 0 would be outside of what follows; this is not recorded.
        with cd.no_grad():
            value.clamp_(min=cd.finfo(value.dtype).tiny)
        return value

    def log_prob(self, value: Any) -> Tensor:
        value = cd.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        return (
            cd.xlogy(self.concentration, self.rate)
            + cd.xlogy(self.concentration - 1, value)
            - self.rate * value
            - cd.lgamma(self.concentration)
        )

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - cd.log(self.rate) + cd.lgamma(a) + (1.0 - a) * cd.digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration - 1, -self.rate)

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        return cd.lgamma(x + 1) + (x + 1) * cd.log(-y.reciprocal())

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return cd.special.gammainc(self.concentration, self.rate * value)
