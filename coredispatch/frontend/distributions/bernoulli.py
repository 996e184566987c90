"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.exp_family import ExponentialFamily
from coredispatch.frontend.distributions.logits import BinaryParameter
from coredispatch.frontend.distributions.utils import broadcast_all
from coredispatch.frontend.tensor import Tensor

__all__ = ["Bernoulli"]


class Bernoulli(BinaryParameter, ExponentialFamily):
    """1 with probability ``probs``, else 0. Give ``probs`` or ``logits`` (log odds).

    >>> Bernoulli(cd.tensor([0.3])).sample()  # 30 % chance of 1
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        parameter = self._set_parameter(probs, logits)
        super().__init__(parameter.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """NaN where both values are as likely."""
        mode = (self.probs >= 0.5).to(self.probs)
        return cd.where(self.probs == 0.5, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with cd.no_grad():
            return cd.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        cross_entropy = cd.nn.functional.binary_cross_entropy_with_logits
        return -cross_entropy(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        cross_entropy = cd.nn.functional.binary_cross_entropy_with_logits
        return cross_entropy(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = cd.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (cd.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Tensor:
        return cd.log1p(cd.exp(x))
