"""The distribution of a transformed variable."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Distribution, event_dims
from coredispatch.frontend.distributions.independent import Independent
from coredispatch.frontend.distributions.transforms import ComposeTransform, Transform
from coredispatch.frontend.distributions.utils import as_size, sum_rightmost
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of ``y = t_n(...t_1(x))`` where ``x`` has the base distribution.

    ``log p(y) = log p(x) + log |dx/dy|``.

    Args:
        base_distribution: a distribution with enough dimensions for the transforms.
        transforms: a :class:`Transform` or a list of them, the first applied first. ``ValueError``
            for anything else.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    base_dist: Any

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Any,
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        elif not all(isinstance(t, Transform) for t in transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        chain = ComposeTransform(transforms)
        base_event_dim = len(base_distribution.event_shape)
        shape = self._make_base(base_distribution, chain)
        # The event is what the transforms couple, or what the base distribution does.
        grown = chain.codomain.event_dim - chain.domain.event_dim
        event_dim = max(chain.codomain.event_dim, base_event_dim + grown)
        cut = len(shape) - event_dim
        Distribution.__init__(self, shape[:cut], shape[cut:], validate_args=validate_args)

    def _make_base(self, base: Distribution, chain: Any) -> Size:
        """Keep the base distribution in the shape that the transforms need; theirs in turn."""
        base_shape = base.batch_shape + base.event_shape
        base_event_dim = len(base.event_shape)
        if len(base_shape) < chain.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{chain.domain.event_dim}, but got {base_shape}."
            )
        shape = as_size(chain.forward_shape(base_shape))
        needed = as_size(chain.inverse_shape(shape))
        if base_shape != needed:
            base = base.expand(needed[: len(needed) - base_event_dim])
        coupled = chain.domain.event_dim - base_event_dim
        self.base_dist = Independent(base, coupled) if coupled > 0 else base
        return shape

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(self._base, _instance)
        batch_shape = as_size(batch_shape)
        for name, event_dim in event_dims(self).items():
            if name in self.__dict__:
                value = self.__dict__[name]
                event_shape = value.shape[value.dim() - event_dim :]
                new.__dict__[name] = value.expand(batch_shape + event_shape)
        shape = batch_shape + self.event_shape
        for transform in reversed(self.transforms):
            shape = as_size(transform.inverse_shape(shape))
        base_batch_shape = shape[: len(shape) - len(self.base_dist.event_shape)]
        new.base_dist = self.base_dist.expand(base_batch_shape)
        new.transforms = self.transforms
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    def _forward(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with cd.no_grad():
            y: Tensor = self._forward(self.base_dist.sample(sample_shape))
            return y

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        y: Tensor = self._forward(self.base_dist.rsample(sample_shape))
        return y

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self.event_shape)
        log_prob: Any = 0.0
        y: Any = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            more = event_dim - transform.domain.event_dim
            log_prob = log_prob - sum_rightmost(transform.log_abs_det_jacobian(x, y), more)
            y = x
        more = event_dim - len(self.base_dist.event_shape)
        log_prob = log_prob + sum_rightmost(self.base_dist.log_prob(y), more)
        return cd.as_tensor(log_prob)

    def _monotonized(self, probability: Any) -> Any:
        """``probability``, or 1 minus it where the transforms fall."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        probability: Tensor = self._monotonized(self.base_dist.cdf(value))
        return probability

    def icdf(self, value: Tensor) -> Tensor:
        y: Tensor = self._forward(self.base_dist.icdf(self._monotonized(value)))
        return y
