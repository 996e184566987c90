"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.logits import ProbsOrLogits
from coredispatch.frontend.distributions.utils import as_size
from coredispatch.frontend.tensor import Tensor

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """Integers from 0 to K - 1, with the weights along the last dimension of ``probs``.

    ``probs`` are divided by their sum; ``logits`` are unnormalized log probabilities. Samples are
    int64, of shape ``sample_shape + batch_shape``.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _constants: ClassVar[tuple[str, ...]] = ("_by_logits", "_num_events")
    _num_events: int

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        parameter = self._given(probs, logits)
        if parameter.dim() < 1:
            name = "logits" if self._by_logits else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if self._by_logits:
            self._keep(parameter - parameter.logsumexp(dim=-1, keepdim=True))
        else:
            self._keep(parameter / parameter.sum(-1, keepdim=True))
        self._num_events = parameter.size()[-1]
        super().__init__(parameter.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._undefined()

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self._undefined()

    def _undefined(self) -> Tensor:
        shape = tuple(self._extended_shape())
        return cd.full(shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = as_size(sample_shape)
        with cd.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = cd.multinomial(rows, sample_shape.numel(), True).T
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        value, log_probs = cd.broadcast_tensors(value, self.logits)
        return log_probs.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = cd.clamp(self.logits, min=cd.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = cd.arange(self._num_events, dtype=cd.int64, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values
