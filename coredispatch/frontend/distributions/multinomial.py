"""The multinomial distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.binomial import Binomial
from coredispatch.frontend.distributions.categorical import Categorical
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import as_size, broadcast_all, lazy_property
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["Multinomial"]


class Multinomial(Parametric):
    """Counts of ``total_count`` draws from K categories; ``total_count`` is one int."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int
    _batched = {"_categorical": 0}
    _constants = ("total_count",)

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        batch_shape = self._categorical.batch_shape
        event_shape = self._categorical.param_shape[-1:]
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    @lazy_property
    def _binomial(self) -> Binomial:
        return Binomial(total_count=self.total_count, probs=self.probs)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Tensor:
        """Normalized log probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = as_size(sample_shape)
        drawn = self._categorical.sample(Size((self.total_count,)) + sample_shape)
        # the draws last, to be counted
        drawn = drawn.permute(*range(1, drawn.dim()), 0)
        shape = self._extended_shape(sample_shape)
        counts = cd.zeros(tuple(shape), dtype=self.probs.dtype, device=self.probs.device)
        ones = cd.ones(tuple(drawn.shape), dtype=counts.dtype, device=counts.device)
        return counts.scatter_add_(-1, drawn, ones)

    def entropy(self) -> Tensor:
        n = cd.tensor(self.total_count, dtype=self.probs.dtype, device=self.probs.device)
        support = self._binomial.enumerate_support(expand=False)[1:]
        weights = cd.exp(self._binomial.log_prob(support))
        expected = (weights * cd.lgamma(support + 1)).sum([0, -1])
        return n * self._categorical.entropy() - cd.lgamma(n + 1) + expected

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        # 0 counts of an impossible category have the logarithm 0, not 0 * -inf
        logits = cd.where((value == 0) & (logits == -math.inf), 0.0, logits)
        arrangements = cd.lgamma(value.sum(-1) + 1) - cd.lgamma(value + 1).sum(-1)
        return arrangements + (logits * value).sum(-1)
