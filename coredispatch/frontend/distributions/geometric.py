"""The geometric distribution."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.compiling.settings import is_compiling
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.logits import BinaryParameter
from coredispatch.frontend.distributions.utils import broadcast_all, standard_uniform
from coredispatch.frontend.tensor import Tensor

__all__ = ["Geometric"]


class Geometric(BinaryParameter):
    """The number of failures before the first success of probability ``probs``."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        parameter = self._set_parameter(probs, logits)
        super().__init__(parameter.size(), validate_args=validate_args)
        if self._validate_args and probs is not None and not is_compiling():
            value = self.probs
            valid = value > 0
            if not bool(valid.all()):
                raise ValueError(
                    "Expected parameter probs "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} "
                    f"to be positive but found invalid values:\n{value.detach()[~valid]}"
                )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return cd.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with cd.no_grad():
            u = standard_uniform(shape, self.probs).clamp(min=cd.finfo(self.probs.dtype).tiny)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # 0 failures of a sure success have the logarithm 0, not 0 * -inf
        failure = cd.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-failure).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        cross_entropy = cd.nn.functional.binary_cross_entropy_with_logits
        return cross_entropy(self.logits, self.probs, reduction="none") / self.probs
