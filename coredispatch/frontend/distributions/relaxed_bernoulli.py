"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.logits import BinaryParameter
from coredispatch.frontend.distributions.transformed_distribution import TransformedDistribution
from coredispatch.frontend.distributions.transforms import SigmoidTransform
from coredispatch.frontend.distributions.utils import broadcast_all, clamp_probs, standard_uniform
from coredispatch.frontend.tensor import Tensor

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryParameter):
    """The logit of a :class:`RelaxedBernoulli` variable."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True
    _constants: ClassVar[tuple[str, ...]] = ("_by_logits", "temperature")

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        parameter = self._set_parameter(probs, logits)
        super().__init__(parameter.size(), validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(standard_uniform(shape, probs))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        diff = logits - value.mul(self.temperature)
        return cd.as_tensor(self.temperature).log() + diff - 2 * diff.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A Bernoulli variable relaxed to (0, 1), the closer to 0 and 1 the lower ``temperature`` is.

    Maddison, Mnih and Teh, "The concrete distribution", 2017; Jang, Gu and Poole, 2017.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    base_dist: LogitRelaxedBernoulli

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
