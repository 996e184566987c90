"""Exponential families, whose entropy follows from their normalizer."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions.distribution import Distribution, Parametric
from coredispatch.frontend.tensor import Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Densities ``exp(<t(x), theta> - F(theta) + k(x))``.

    A subclass gives the natural parameters ``_natural_params``, the log normalizer ``F`` and the
    mean of ``k``, ``_mean_carrier_measure``. Then the entropy is ``F - <theta, grad F> - E[k]``
    (Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, by Bregman divergence."""
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        gradients = cd.autograd.grad(normalizer.sum(), parameters, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for parameter, gradient in zip(parameters, gradients):
            result = result - (parameter * gradient).reshape((*self._batch_shape, -1)).sum(-1)
        return result


class ParametricFamily(Parametric, ExponentialFamily):
    """An exponential family of this package."""
