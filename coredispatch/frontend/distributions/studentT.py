"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.chi2 import Chi2
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import lazy_property, standard_normal
from coredispatch.frontend.tensor import Tensor

__all__ = ["StudentT"]


class StudentT(Parametric):
    """Student's t-distribution with ``df`` degrees of freedom, times ``scale``, plus ``loc``."""

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self._set_parameters(validate_args, df=df, loc=loc, scale=scale)

    @lazy_property
    def _chi2(self) -> Chi2:
        return Chi2(self.df)

    @property
    def mean(self) -> Tensor:
        """NaN where ``df <= 1``."""
        return cd.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite where ``1 < df <= 2``, NaN where ``df <= 1``."""
        df = cd.where(self.df > 2, self.df, 3.0)
        variance = self.scale.pow(2) * df / (df - 2)
        return cd.where(self.df > 2, variance, cd.where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = standard_normal(shape, self.df) * cd.rsqrt(
            self._chi2.rsample(sample_shape) / self.df
        )
        return self.loc + self.scale * drawn

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + cd.lgamma(0.5 * self.df)
            - cd.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * cd.log1p(z**2.0 / self.df) - normalizer

    def entropy(self) -> Tensor:
        half, next_half = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = cd.lgamma(half) + math.lgamma(0.5) - cd.lgamma(next_half)
        spread = next_half * (cd.digamma(next_half) - cd.digamma(half))
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta
