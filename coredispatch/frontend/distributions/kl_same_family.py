"""Divergences of two distributions of one family."""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions.bernoulli import Bernoulli
from coredispatch.frontend.distributions.beta import Beta
from coredispatch.frontend.distributions.binomial import Binomial
from coredispatch.frontend.distributions.categorical import Categorical
from coredispatch.frontend.distributions.cauchy import Cauchy
from coredispatch.frontend.distributions.continuous_bernoulli import ContinuousBernoulli
from coredispatch.frontend.distributions.dirichlet import Dirichlet
from coredispatch.frontend.distributions.exp_family import ExponentialFamily
from coredispatch.frontend.distributions.exponential import Exponential
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.distributions.geometric import Geometric
from coredispatch.frontend.distributions.gumbel import Gumbel
from coredispatch.frontend.distributions.half_normal import HalfNormal
from coredispatch.frontend.distributions.independent import Independent
from coredispatch.frontend.distributions.kl import kl_divergence, register_kl
from coredispatch.frontend.distributions.laplace import Laplace
from coredispatch.frontend.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
)
from coredispatch.frontend.distributions.multivariate_normal import MultivariateNormal
from coredispatch.frontend.distributions.normal import Normal
from coredispatch.frontend.distributions.one_hot_categorical import OneHotCategorical
from coredispatch.frontend.distributions.pareto import Pareto
from coredispatch.frontend.distributions.poisson import Poisson
from coredispatch.frontend.distributions.transformed_distribution import TransformedDistribution
from coredispatch.frontend.distributions.uniform import Uniform
from coredispatch.frontend.distributions.utils import (
    euler_constant,
    half_log_determinant,
    infinite_where,
    mahalanobis,
    sum_rightmost,
)
from coredispatch.frontend.tensor import Tensor

__all__: list[str] = []


# ---- discrete ----------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    softplus = cd.nn.functional.softplus
    success = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    failure = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    success = cd.where(p.probs == 0, 0.0, infinite_where(q.probs == 0, success))
    failure = cd.where(p.probs == 1, 0.0, infinite_where(q.probs == 1, failure))
    return success + failure


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return infinite_where(p.total_count > q.total_count, p.total_count * each)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = infinite_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return cd.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - cd.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


# ---- continuous --------------------------------------------------------------------------------


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total, other_total = a.sum(-1), b.sum(-1)
    log_beta = (a.lgamma() - b.lgamma()).sum(-1) - total.lgamma() + other_total.lgamma()
    log_means = a.digamma() - total.digamma().unsqueeze(-1)
    return ((a - b) * log_means).sum(-1) - log_beta


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    # Chyzak and Nielsen, "A closed-form formula for the KL divergence between Cauchy
    # distributions", 2019
    apart = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return apart - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    of_p = p._cont_bern_log_norm() + cd.log1p(-p.probs)
    of_q = q._cont_bern_log_norm() + cd.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + of_p - of_q


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return rates + cd.lgamma(b) - cd.lgamma(a) + (a - b) * cd.digamma(a)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    apart = (p.loc - q.loc) / q.scale
    means = apart + ratio * euler_constant - (1 + euler_constant)
    return means - ratio.log() + cd.exp((1 + ratio).lgamma() - apart)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * cd.exp(-apart / p.scale) - 1


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return infinite_where(p.scale < q.scale, result)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return infinite_where((q.low > p.low) | (q.high < p.high), result)


# ---- multivariate normal -----------------------------------------------------------------------


def _require_same_event(p: Any, q: Any, names: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {names} with different event shapes cannot be computed"
        )


def _between_normals(log_ratio: Tensor, trace: Tensor, squared: Tensor, n: int) -> Tensor:
    """From the log ratio of determinants, the trace of ``inv(q) p`` and the means' distance."""
    return 0.5 * (log_ratio + trace + squared - n)


def _squares(matrix: Tensor) -> Tensor:
    return matrix.square().sum(-1).sum(-1)


def _solved(tril: Tensor, matrix: Tensor) -> Tensor:
    batch = cd.broadcast_shapes(tril.shape[:-2], matrix.shape[:-2])
    tril = tril.expand((*batch, *tril.shape[-2:]))
    return cd.linalg.solve_triangular(
        tril, matrix.expand((*batch, *matrix.shape[-2:])), upper=False
    )


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    _require_same_event(p, q, "Multivariate Normals")
    of_p, of_q = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    log_ratio = 2 * (half_log_determinant(of_q) - half_log_determinant(of_p))
    squared = mahalanobis(of_q, q.loc - p.loc)
    return _between_normals(log_ratio, _squares(_solved(of_q, of_p)), squared, p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_to_low_rank(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    names = "(Low Rank) Multivariate Normals"
    _require_same_event(p, q, names)
    of_p = p._unbroadcasted_scale_tril
    log_ratio = q._log_determinant() - 2 * half_log_determinant(of_p)
    trace = _low_rank_trace(q, of_p)
    return _between_normals(log_ratio, trace, q._mahalanobis(q.loc - p.loc), p.event_shape[0])


def _low_rank_trace(q: LowRankMultivariateNormal, factor: Tensor) -> Tensor:
    """The trace of ``inv(covariance of q) F F'``, by the Woodbury identity."""
    diagonal = q._unbroadcasted_cov_diag
    weighted = q._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
    inner = _solved(q._capacitance_tril, weighted @ factor)
    return _squares(factor / diagonal.sqrt().unsqueeze(-1)) - _squares(inner)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _require_same_event(p, q, "Low Rank Multivariate Normals")
    log_ratio = q._log_determinant() - p._log_determinant()
    of_diagonal = cd.diag_embed(p._unbroadcasted_cov_diag.sqrt())
    trace = _low_rank_trace(q, p._unbroadcasted_cov_factor) + _low_rank_trace(q, of_diagonal)
    return _between_normals(log_ratio, trace, q._mahalanobis(q.loc - p.loc), p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_to_multivariate(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    _require_same_event(p, q, "(Low Rank) Multivariate Normals")
    of_q = q._unbroadcasted_scale_tril
    log_ratio = 2 * half_log_determinant(of_q) - p._log_determinant()
    of_diagonal = cd.diag_embed(p._unbroadcasted_cov_diag.sqrt())
    trace = _squares(_solved(of_q, p._unbroadcasted_cov_factor))
    trace = trace + _squares(_solved(of_q, of_diagonal))
    squared = mahalanobis(of_q, q.loc - p.loc)
    return _between_normals(log_ratio, trace, squared, p.event_shape[0])


# ---- of any kind -------------------------------------------------------------------------------


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normalizer (Nielsen and Nock, 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot "
            "be computed using Bregman divergences"
        )
    of_p = [x.detach().requires_grad_() for x in p._natural_params]
    normalizer = p._log_normalizer(*of_p)
    gradients = cd.autograd.grad(normalizer.sum(), of_p, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for x, y, gradient in zip(of_p, q._natural_params, gradients):
        result = result - sum_rightmost((y - x) * gradient, len(q.event_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            f"KL(p || q) of {type(p).__name__} and {type(q).__name__} is known for equal "
            "transforms and event shapes only"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent[Any], q: Independent[Any]) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL(p || q) of Independent distributions with different reinterpreted_batch_ndims"
        )
    result: Tensor = sum_rightmost(
        kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims
    )
    return result
