"""Divergences of two families, as the cross entropy of ``p`` and ``q`` minus the entropy of ``p``.

The cross entropy ``-E[log q(x)]`` needs a few means under ``p``: of ``x`` and ``x**2``, ``log x``,
``log(1 - x)``, ``exp(-t x)`` and ``|x - m|``. A formula for each of them and each ``p``, and one
for each ``q``, give all pairs. Where ``q`` does not reach everywhere ``p`` does, the divergence is
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions.bernoulli import Bernoulli
from coredispatch.frontend.distributions.beta import Beta
from coredispatch.frontend.distributions.binomial import Binomial
from coredispatch.frontend.distributions.continuous_bernoulli import ContinuousBernoulli
from coredispatch.frontend.distributions.exponential import Exponential
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.distributions.gumbel import Gumbel
from coredispatch.frontend.distributions.kl import register_kl
from coredispatch.frontend.distributions.laplace import Laplace
from coredispatch.frontend.distributions.normal import Normal
from coredispatch.frontend.distributions.pareto import Pareto
from coredispatch.frontend.distributions.poisson import Poisson
from coredispatch.frontend.distributions.uniform import Uniform
from coredispatch.frontend.distributions.utils import euler_constant, infinite_where
from coredispatch.frontend.tensor import Tensor

__all__: list[str] = []


# ---- means under p -----------------------------------------------------------------------------


def _uniform_log(low: Tensor, high: Tensor) -> Tensor:
    return (cd.xlogy(high, high) - cd.xlogy(low, low)) / (high - low) - 1


def _mean_log(p: Any) -> Tensor:
    """The mean of ``log x``."""
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    assert isinstance(p, Uniform)
    return _uniform_log(p.low, p.high)


def _mean_exp(p: Any, t: Tensor) -> Tensor:
    """The mean of ``exp(-t x)``."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (1 + t / p.rate).pow(-p.concentration)
    if isinstance(p, Normal):
        return cd.exp(0.5 * (t * p.scale).square() - t * p.loc)
    assert isinstance(p, Uniform)
    return (cd.exp(-t * p.low) - cd.exp(-t * p.high)) / (t * (p.high - p.low))


def _mean_distance(p: Normal, centre: Tensor) -> Tensor:
    """The mean of ``|x - centre|``."""
    apart = p.loc - centre
    z = apart / p.scale
    near = math.sqrt(2 / math.pi) * p.scale * cd.exp(-0.5 * z.square())
    return near + apart * cd.erf(math.sqrt(0.5) * z)


# ---- -E[log q] ---------------------------------------------------------------------------------


def _to_normal(p: Any, q: Normal) -> Tensor:
    squares = p.variance + (p.mean - q.loc).square()
    return 0.5 * (math.log(2 * math.pi) + squares / q.scale.square()) + q.scale.log()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    normalizer = q.concentration.lgamma() - q.concentration * q.rate.log()
    return normalizer - (q.concentration - 1) * _mean_log(p) + q.rate * p.mean


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    z = (p.mean - q.loc) / q.scale
    return q.scale.log() + z + cd.exp(q.loc / q.scale) * _mean_exp(p, q.scale.reciprocal())


def _to_laplace(p: Normal, q: Laplace) -> Tensor:
    return cd.log(2 * q.scale) + _mean_distance(p, q.loc) / q.scale


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - cd.log1p(-q.probs) - q._cont_bern_log_norm()


def _to_uniform(p: Any, q: Uniform) -> Tensor:
    return (q.high - q.low).log().expand(cd.broadcast_shapes(p.batch_shape, q.batch_shape))


def _to_pareto(p: Any, q: Pareto) -> Tensor:
    return (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _to_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
    rest = _uniform_log(1 - p.high, 1 - p.low)
    return normalizer - (a - 1) * _mean_log(p) - (b - 1) * rest


def _to_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log()


_CROSS_ENTROPIES: list[tuple[type, tuple[type, ...], Callable[[Any, Any], Tensor]]] = [
    (Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace), _to_normal),
    (Normal, (Pareto, Uniform), _to_normal),
    (Exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform), _to_exponential),
    (Gamma, (Beta, Exponential, Pareto, Uniform), _to_gamma),
    (Gumbel, (Exponential, Gamma, Normal, Uniform), _to_gumbel),
    (Laplace, (Normal,), _to_laplace),
    (ContinuousBernoulli, (Beta, Uniform), _to_continuous_bernoulli),
    (Uniform, (Beta, ContinuousBernoulli), _to_uniform),
    (Pareto, (Uniform,), _to_pareto),
    (Beta, (Uniform,), _to_beta),
    (Poisson, (Bernoulli,), _to_poisson),
]


def _beyond(p: Any, q: Any) -> Tensor | None:
    """Where ``p`` reaches beyond the support of ``q``; None where it does not anywhere."""
    lower, upper = getattr(q.support, "lower_bound", None), getattr(q.support, "upper_bound", None)
    of_p = p.support
    found = None
    if lower is not None and hasattr(of_p, "lower_bound"):
        found = cd.as_tensor(of_p.lower_bound < lower)
    if upper is not None and hasattr(of_p, "upper_bound"):
        above = cd.as_tensor(of_p.upper_bound > upper)
        found = above if found is None else found | above
    return found


def _register(type_p: type, type_q: type, cross_entropy: Callable[[Any, Any], Tensor]) -> None:
    @register_kl(type_p, type_q)
    def divergence(p: Any, q: Any) -> Tensor:
        beyond = _beyond(p, q) if type_p is not Bernoulli else None
        result = cross_entropy(p, q) - p.entropy()
        return result if beyond is None else infinite_where(beyond, result)


for _q, _ps, _formula in _CROSS_ENTROPIES:
    for _p in _ps:
        _register(_p, _q, _formula)


# ---- never finite ------------------------------------------------------------------------------

_UNBOUNDED = (Exponential, Gamma, Gumbel, Laplace, Normal)
_INFINITE: list[tuple[type, tuple[type, ...]]] = [
    (Beta, (Pareto,)),
    (ContinuousBernoulli, (Pareto,)),
    *((p, (Beta, ContinuousBernoulli, Pareto, Uniform)) for p in _UNBOUNDED),
    *((p, (Exponential, Gamma)) for p in (Gumbel, Laplace, Normal)),
    (Pareto, (Beta, ContinuousBernoulli, Uniform)),
    (Poisson, (Bernoulli, Binomial)),
]


def _register_infinite(type_p: type, type_q: type) -> None:
    @register_kl(type_p, type_q)
    def divergence(p: Any, q: Any) -> Tensor:
        return cd.full_like(p.mean, math.inf)


for _p, _qs in _INFINITE:
    for _q in _qs:
        _register_infinite(_p, _q)
