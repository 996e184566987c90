"""Parameters that are given as probabilities or as logits."""

from __future__ import annotations

from typing import Any, ClassVar

import coredispatch as cd
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["BinaryParameter", "ProbsOrLogits"]


class ProbsOrLogits(Parametric):
    """The one of ``probs`` and ``logits`` that was given, and the other one computed from it."""

    #: whether logits are the log odds of one probability, not logarithms along a dimension
    _binary: ClassVar[bool] = False
    _constants: ClassVar[tuple[str, ...]] = ("_by_logits",)
    _by_logits: bool

    def _given(self, probs: Any, logits: Any) -> Any:
        """The parameter that was given; ``ValueError`` for none and for both."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._by_logits = probs is None
        return logits if probs is None else probs

    def _keep(self, parameter: Tensor) -> None:
        self.__dict__["logits" if self._by_logits else "probs"] = parameter

    @lazy_property
    def logits(self) -> Tensor:
        """Log odds, or normalized log probabilities."""
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._binary)

    @property
    def _param(self) -> Tensor:
        return self.logits if self._by_logits else self.probs

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return cd.empty(*args, dtype=self._param.dtype, device=self._param.device, **kwargs)


class BinaryParameter(ProbsOrLogits):
    """A probability, or its log odds, for each distribution of the batch."""

    _binary = True

    def _set_parameter(self, probs: Any, logits: Any) -> Tensor:
        (parameter,) = broadcast_all(self._given(probs, logits))
        self._keep(parameter)
        return parameter
