"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import coredispatch as cd
from coredispatch.frontend.compiling.settings import is_compiling
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.exp_family import ExponentialFamily
from coredispatch.frontend.distributions.logits import BinaryParameter
from coredispatch.frontend.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    standard_uniform,
)
from coredispatch.frontend.tensor import Tensor

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryParameter, ExponentialFamily):
    """A density on [0, 1] proportional to ``probs**x * (1 - probs)**(1 - x)``.

    Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019. Between the ``lims`` around 1/2,
    where the formulas are 0/0, their Taylor series stand in.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _constants: ClassVar[tuple[str, ...]] = ("_by_logits", "_lims")

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        parameter = self._set_parameter(probs, logits)
        if not self._by_logits:
            # before it is clamped, after which it always is valid
            if validate_args is not None and not is_compiling():
                if not bool(self.arg_constraints["probs"].check(parameter).all()):
                    raise ValueError("The parameter probs has invalid values")
            self._keep(clamp_probs(parameter))
        self._lims = lims
        super().__init__(parameter.size(), validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities, away from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside_unstable_region(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        return cd.where(self._outside_unstable_region(), self.probs, self._lims[0])

    def _stable(self, outside: Tensor, taylor: Tensor) -> Tensor:
        return cd.where(self._outside_unstable_region(), outside, taylor)

    def _cont_bern_log_norm(self) -> Tensor:
        cut = self._cut_probs()
        odds = cd.log(cd.abs(cd.log1p(-cut) - cd.log(cut)))
        below, above = cd.where(cut <= 0.5, cut, 0.0), cd.where(cut >= 0.5, cut, 1.0)
        centre = cd.where(cut <= 0.5, cd.log1p(-2.0 * below), cd.log(2.0 * above - 1.0))
        x = (self.probs - 0.5).square()
        return self._stable(odds - centre, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        cut = self._cut_probs()
        outside = cut / (2.0 * cut - 1.0) + 1.0 / (cd.log1p(-cut) - cd.log(cut))
        x = self.probs - 0.5
        return self._stable(outside, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        cut = self._cut_probs()
        outside = cut * (cut - 1.0) / (1.0 - 2.0 * cut).square()
        outside = outside + 1.0 / (cd.log1p(-cut) - cd.log(cut)).square()
        x = (self.probs - 0.5).square()
        return self._stable(outside, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with cd.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        cross_entropy = cd.nn.functional.binary_cross_entropy_with_logits
        return self._cont_bern_log_norm() - cross_entropy(logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        cut = self._cut_probs()
        outside = cd.pow(cut, value) * cd.pow(1.0 - cut, 1.0 - value) + cut - 1.0
        inner = self._stable(outside / (2.0 * cut - 1.0), value)
        return cd.where(value <= 0.0, 0.0, cd.where(value >= 1.0, 1.0, inner))

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._cut_probs()
        rest = cd.log1p(-cut)
        outside = cd.log1p(-cut + value * (2.0 * cut - 1.0)) - rest
        return self._stable(outside / (cd.log(cut) - rest), value)

    def entropy(self) -> Tensor:
        rest, log_probs = cd.log1p(-self.probs), cd.log(self.probs)
        return self.mean * (rest - log_probs) - self._cont_bern_log_norm() - rest

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Tensor:
        lower, upper = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= lower) | (x > upper)
        cut = cd.where(outside, x, lower)
        log_norm = cd.log(cd.abs(cd.expm1(cut))) - cd.log(cd.abs(cut))
        taylor = 0.5 * x + x.square() / 24.0 - cd.pow(x, 4) / 2880.0
        return cd.where(outside, log_norm, taylor)
