"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.categorical import Categorical
from coredispatch.frontend.distributions.constraints import MixtureSameFamilyConstraint
from coredispatch.frontend.distributions.distribution import Distribution
from coredispatch.frontend.distributions.utils import as_size
from coredispatch.frontend.tensor import Tensor

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: the rightmost batch dimension of the components is what is chosen from.

    >>> mix = Categorical(cd.ones(5))
    >>> MixtureSameFamily(mix, Normal(cd.randn(5), cd.rand(5)))  # a mixture of five Gaussians
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an "
                " instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an "
                "instance of torch.distributions.Distribution"
            )
        mixed = mixture_distribution.batch_shape
        batch_shape = component_distribution.batch_shape[:-1]
        for size1, size2 in zip(reversed(mixed), reversed(batch_shape)):
            if size1 != 1 and size2 != 1 and size1 != size2:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixed}) is not "
                    "compatible with `component_distribution."
                    f"batch_shape`({batch_shape})"
                )
        chosen = mixture_distribution.logits.shape[-1]
        components = component_distribution.batch_shape[-1]
        if chosen != components:
            raise ValueError(
                f"`mixture_distribution component` ({chosen}) does not"
                f" equal `component_distribution.batch_shape[-1]` ({components})"
            )
        self._num_component = chosen
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = as_size(batch_shape)
        components = self._component_distribution.expand((*batch_shape, self._num_component))
        new._component_distribution = components
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        Distribution.__init__(new, batch_shape, components.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """What chooses a component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along the rightmost batch dimension."""
        return self._component_distribution

    def _weighted(self, values: Tensor) -> Tensor:
        """The mean of ``values`` over the components, which stand before the event dimensions."""
        weights = self.mixture_distribution.probs
        weights = weights.reshape((*weights.shape, *[1] * self._event_ndims))
        return (weights * values).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        # the mean of the variances, and the variance of the means
        spread = (self.component_distribution.mean - self._pad(self.mean)).pow(2.0)
        return self._weighted(self.component_distribution.variance) + self._weighted(spread)

    def cdf(self, x: Tensor) -> Tensor:
        return (
            self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs
        ).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        log_prob = self.component_distribution.log_prob(self._pad(x))
        log_weight = cd.log_softmax(self.mixture_distribution.logits, dim=-1)
        return cd.logsumexp(log_prob + log_weight, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = as_size(sample_shape)
        with cd.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            shape = sample_shape + self.batch_shape
            chosen = chosen.expand(shape).reshape((*shape, *[1] * (1 + self._event_ndims)))
            chosen = chosen.expand((*shape, 1, *self.event_shape))
            return cd.gather(drawn, dim, chosen).squeeze(dim)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )
