"""The F-distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.tensor import Tensor

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Parametric):
    """The F-distribution: the ratio of two chi-squared variables, each over its ``df``."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._set_parameters(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        """NaN where ``df2 <= 2``."""
        df2 = cd.where(self.df2 <= 2, math.nan, self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        """NaN where ``df1 <= 2``."""
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return cd.where(self.df1 <= 2, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        """NaN where ``df2 <= 4``."""
        df2 = cd.where(self.df2 <= 4, math.nan, self.df2)
        spread = self.df1 * (df2 - 2).pow(2) * (df2 - 4)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / spread

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        tiny = cd.finfo(self.df1.dtype).tiny
        above = Gamma(self.df1 * 0.5, self.df1, validate_args=False).rsample(sample_shape)
        below = Gamma(self.df2 * 0.5, self.df2, validate_args=False).rsample(sample_shape)
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        log_beta = half1.lgamma() + half2.lgamma() - (half1 + half2).lgamma()
        power = half1 * ratio.log() + (half1 - 1) * cd.log(value)
        return power - log_beta - (half1 + half2) * cd.log1p(ratio * value)
