"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.distributions.logits import BinaryParameter
from coredispatch.frontend.distributions.utils import broadcast_all, lazy_property
from coredispatch.frontend.tensor import Tensor

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryParameter):
    """Successes of probability ``probs`` before ``total_count`` failures, a real number above 0."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        count, parameter = broadcast_all(total_count, self._given(probs, logits))
        self._keep(parameter)
        self.total_count = count.type_as(parameter)
        super().__init__(parameter.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * cd.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / cd.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        # the rate of a Poisson distribution of which this one is a mixture
        rate = cd.exp(-self.logits)
        return Gamma(concentration=self.total_count, rate=rate, validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with cd.no_grad():
            return cd.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_sigmoid = cd.nn.functional.logsigmoid
        unnormalized = self.total_count * log_sigmoid(-self.logits)
        unnormalized = unnormalized + value * log_sigmoid(self.logits)
        normalization = (
            -cd.lgamma(self.total_count + value)
            + cd.lgamma(1.0 + value)
            + cd.lgamma(self.total_count)
        )
        # no failure to wait for: 0 is sure
        sure = (self.total_count + value) == 0.0
        return unnormalized - cd.where(sure, 0.0, normalization)
