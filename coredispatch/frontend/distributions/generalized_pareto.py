"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import standard_uniform
from coredispatch.frontend.tensor import Tensor

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Parametric):
    """Tails from ``loc``: a power law (``concentration`` > 0), exponential (0) or bounded (< 0)."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self._set_parameters(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        bounded = self.concentration < 0
        safe = cd.where(bounded, self.concentration, -1.0)
        upper = cd.where(bounded, self.loc - self.scale / safe, math.inf)
        return constraints.interval(self.loc, upper)

    def _shape_parameter(self) -> tuple[Tensor, Tensor]:
        """Where the concentration counts as 0, and one that may be divided by."""
        zero = cd.isclose(self.concentration, cd.zeros_like(self.concentration))
        return zero, cd.where(zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, safe = self._shape_parameter()
        power = 1 / safe + cd.ones_like(z)
        tail = cd.where(power == 0, power, power * cd.log1p(safe * z))
        return -self.scale.log() - cd.where(zero, z, tail)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a sample above ``value``."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, safe = self._shape_parameter()
        return cd.where(zero, -z, -cd.log1p(safe * z) / safe)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of :meth:`cdf`."""
        return cd.log1p(-cd.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return cd.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        zero, safe = self._shape_parameter()
        log_rest = cd.log1p(-value)
        curved = self.loc + self.scale / safe * cd.expm1(-safe * log_rest)
        return cd.where(zero, self.loc - self.scale * log_rest, curved)

    @property
    def mean(self) -> Tensor:
        """NaN where the concentration is 1 or more."""
        valid = self.concentration < 1
        safe = cd.where(valid, self.concentration, 0.5)
        return cd.where(valid, self.loc + self.scale / (1 - safe), math.nan)

    @property
    def variance(self) -> Tensor:
        """NaN where the concentration is 1/2 or more."""
        valid = self.concentration < 0.5
        safe = cd.where(valid, self.concentration, 0.25)
        result = self.scale**2 / ((1 - safe) ** 2 * (1 - 2 * safe))
        return cd.where(valid, result, math.nan)

    def entropy(self) -> Tensor:
        return (cd.log(self.scale) + self.concentration + 1).expand(self._batch_shape)

    @property
    def mode(self) -> Tensor:
        return self.loc
