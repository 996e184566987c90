"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import lazy_property, standard_uniform
from coredispatch.frontend.tensor import Tensor

__all__ = ["VonMises"]


def _log_i0(x: Tensor) -> Tensor:
    return cd.special.i0e(x).log() + x


class VonMises(Parametric):
    """Angles around ``loc`` (radians), the closer the greater ``concentration`` is.

    The density is ``exp(concentration cos(x - loc)) / (2 pi I0(concentration))``. Samples lie in
    [-pi, pi) and have no gradient.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set_parameters(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        exponent = self.concentration * cd.cos(value - self.loc)
        return exponent - math.log(2 * math.pi) - _log_i0(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By rejection from a wrapped Cauchy distribution.

        Best and Fisher, "Efficient simulation of the von Mises distribution", 1979.
        """
        shape = self._extended_shape(sample_shape)
        with cd.no_grad():
            loc = self.loc.double().expand(shape)
            concentration = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * concentration**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * concentration)
            r = (1 + rho**2) / (2 * rho)
            # where rho cancels, the first terms of the series
            r = cd.where(concentration < 1e-5, 1 / concentration + concentration, r)
            cosine = cd.zeros_like(loc)
            waiting = cd.ones_like(loc, dtype=cd.bool)
            while bool(waiting.any()):
                u1, u2 = standard_uniform(shape, loc), standard_uniform(shape, loc)
                z = cd.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = concentration * (r - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                cosine = cd.where(waiting & accepted, f, cosine)
                waiting = waiting & ~accepted
            sign = cd.where(standard_uniform(shape, loc) < 0.5, -1.0, 1.0)
            angle = loc + sign * cosine.clamp(-1, 1).acos()
            return ((angle + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, ``1 - I1(concentration) / I0(concentration)``."""
        return 1 - cd.special.i1e(self.concentration) / cd.special.i0e(self.concentration)
