"""Distributions: samples by their moments and against SciPy, gradients through samples, uses."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import distributions as dist

pytestmark = pytest.mark.once

COUNT = 20_000

#: our distribution, and SciPy's
SAMPLED: dict[str, tuple[Any, Any]] = {
    "Bernoulli": (lambda: dist.Bernoulli(0.3), scipy.stats.bernoulli(0.3)),
    "Beta": (lambda: dist.Beta(2.0, 0.7), scipy.stats.beta(2.0, 0.7)),
    "Binomial": (lambda: dist.Binomial(9, cd.tensor(0.3)), scipy.stats.binom(9, 0.3)),
    "Cauchy": (lambda: dist.Cauchy(1.0, 2.0), scipy.stats.cauchy(1, 2)),
    "Chi2": (lambda: dist.Chi2(3.0), scipy.stats.chi2(3)),
    "Exponential": (lambda: dist.Exponential(2.0), scipy.stats.expon(scale=0.5)),
    "FisherSnedecor": (lambda: dist.FisherSnedecor(5.0, 9.0), scipy.stats.f(5, 9)),
    "Gamma": (lambda: dist.Gamma(0.6, 2.0), scipy.stats.gamma(0.6, scale=0.5)),
    "GeneralizedPareto": (
        lambda: dist.GeneralizedPareto(1.0, 2.0, 0.1),
        scipy.stats.genpareto(0.1, 1, 2),
    ),
    "Geometric": (lambda: dist.Geometric(0.3), scipy.stats.geom(0.3, loc=-1)),
    "Gumbel": (lambda: dist.Gumbel(1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "HalfCauchy": (lambda: dist.HalfCauchy(2.0), scipy.stats.halfcauchy(scale=2)),
    "HalfNormal": (lambda: dist.HalfNormal(2.0), scipy.stats.halfnorm(scale=2)),
    "InverseGamma": (lambda: dist.InverseGamma(5.0, 2.0), scipy.stats.invgamma(5, scale=2)),
    "Laplace": (lambda: dist.Laplace(1.0, 2.0), scipy.stats.laplace(1, 2)),
    "LogNormal": (lambda: dist.LogNormal(0.2, 0.5), scipy.stats.lognorm(0.5, scale=math.exp(0.2))),
    "NegativeBinomial": (
        lambda: dist.NegativeBinomial(4.0, cd.tensor(0.3)),
        scipy.stats.nbinom(4, 0.7),
    ),
    "Normal": (lambda: dist.Normal(1.0, 2.0), scipy.stats.norm(1, 2)),
    "Pareto": (lambda: dist.Pareto(1.0, 4.0), scipy.stats.pareto(4)),
    "Poisson": (lambda: dist.Poisson(3.0), scipy.stats.poisson(3)),
    "StudentT": (lambda: dist.StudentT(5.0, 1.0, 2.0), scipy.stats.t(5, 1, 2)),
    "Uniform": (lambda: dist.Uniform(-1.0, 3.0), scipy.stats.uniform(-1, 4)),
    "VonMises": (lambda: dist.VonMises(0.5, 2.0), scipy.stats.vonmises(2, 0.5)),
    "Weibull": (lambda: dist.Weibull(2.0, 1.5), scipy.stats.weibull_min(1.5, scale=2)),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_have_the_distribution(name: str) -> None:
    cd.manual_seed(1)
    make, reference = SAMPLED[name]
    drawn = make().sample((COUNT,)).numpy().astype(float)
    if hasattr(reference.dist, "pmf"):
        values = np.arange(int(drawn.max()) + 1)
        found = np.bincount(drawn.astype(int), minlength=len(values)) / COUNT
        assert np.abs(found - reference.pmf(values)).max() < 5 * math.sqrt(0.25 / COUNT)
    else:
        assert scipy.stats.kstest(drawn, reference.cdf).statistic < 1.95 / math.sqrt(COUNT)


@pytest.mark.parametrize("name", SAMPLED)
def test_densities_are_scipys(name: str) -> None:
    make, reference = SAMPLED[name]
    value = make().sample((50,))
    of_reference = getattr(reference, "logpmf", None) or reference.logpdf
    if hasattr(reference.dist, "pmf"):
        of_reference = reference.logpmf
    expected = of_reference(value.double().numpy())
    np.testing.assert_allclose(make().log_prob(value).numpy(), expected, rtol=2e-4, atol=2e-5)


VECTORS: dict[str, Any] = {
    "Dirichlet": lambda: dist.Dirichlet(cd.tensor([0.5, 2.0, 3.0])),
    "Multinomial": lambda: dist.Multinomial(5, cd.tensor([0.2, 0.3, 0.5])),
    "OneHotCategorical": lambda: dist.OneHotCategorical(cd.tensor([0.2, 0.3, 0.5])),
    "MultivariateNormal": lambda: dist.MultivariateNormal(
        cd.tensor([1.0, 2.0]), cd.tensor([[2.0, 0.5], [0.5, 1.0]])
    ),
    "LowRankMultivariateNormal": lambda: dist.LowRankMultivariateNormal(
        cd.tensor([1.0, 2.0]), cd.tensor([[1.0], [0.5]]), cd.tensor([0.5, 0.3])
    ),
    "Wishart": lambda: dist.Wishart(cd.tensor(5.0), cd.tensor([[2.0, 0.5], [0.5, 1.0]])),
    "Kumaraswamy": lambda: dist.Kumaraswamy(cd.tensor([2.0]), cd.tensor([3.0])),
    "ContinuousBernoulli": lambda: dist.ContinuousBernoulli(cd.tensor([0.2, 0.5])),
    "MixtureSameFamily": lambda: dist.MixtureSameFamily(
        dist.Categorical(cd.tensor([0.3, 0.7])),
        dist.Normal(cd.tensor([0.0, 4.0]), cd.tensor([1.0, 0.5])),
    ),
    "a mixture of vectors": lambda: dist.MixtureSameFamily(
        dist.Categorical(cd.tensor([0.3, 0.7])),
        dist.Independent(dist.Normal(cd.tensor([[0.0, 1.0], [4.0, 2.0]]), cd.ones(2, 2)), 1),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_samples_have_the_mean_and_the_variance(name: str) -> None:
    cd.manual_seed(2)
    of = VECTORS[name]()
    drawn = of.sample((COUNT,))
    error = 6 * (of.variance / COUNT).sqrt()
    assert bool(((drawn.mean(0) - of.mean).abs() < error).all())
    assert bool(((drawn.var(0) / of.variance - 1).abs() < 0.1).all())


def test_samples_of_lkj_are_correlations() -> None:
    cd.manual_seed(3)
    factor = dist.LKJCholesky(3, 1.0).sample((COUNT,))
    correlation = factor @ factor.mT
    assert bool(((correlation.diagonal(dim1=-2, dim2=-1) - 1).abs() < 1e-4).all())
    # Off-diagonal elements have the distribution 2 Beta(3 / 2, 3 / 2) - 1 (Lewandowski et al.).
    reference = scipy.stats.beta(1.5, 1.5, loc=-1, scale=2)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        found = scipy.stats.kstest(correlation[:, i, j].numpy(), reference.cdf)
        assert found.statistic < 1.95 / math.sqrt(COUNT)


# ---- gradients through samples -----------------------------------------------------------------


def quantile_slope(cdf: Any, x: np.ndarray, a: np.ndarray, density: np.ndarray) -> np.ndarray:
    """``dx/da`` at a fixed value of ``cdf(x, a)``, by central differences."""
    step = 1e-5 * a
    return -(cdf(x, a + step) - cdf(x, a - step)) / (2 * step) / density


@given(st.floats(0.05, 200.0), st.floats(0.01, 0.99))
def test_gamma_samples_follow_their_quantile(concentration: float, quantile: float) -> None:
    a = np.array([concentration])
    x = scipy.special.gammaincinv(a, quantile)
    if x[0] < 1e-100:
        return
    expected = quantile_slope(
        lambda x, a: scipy.special.gammainc(a, x), x, a, scipy.stats.gamma.pdf(x, a)
    )
    found = cd._standard_gamma_grad(cd.tensor(a), cd.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@given(st.floats(0.1, 60.0), st.floats(0.1, 60.0), st.floats(0.02, 0.98))
def test_beta_samples_follow_their_quantile(a: float, b: float, quantile: float) -> None:
    alpha, beta = np.array([a]), np.array([b])
    x = scipy.special.betaincinv(alpha, beta, quantile)
    if not 1e-8 < x[0] < 1 - 1e-8:
        return
    density = scipy.stats.beta.pdf(x, alpha, beta)
    expected = quantile_slope(lambda x, a: scipy.special.betainc(a, beta, x), x, alpha, density)
    found = cd._dirichlet_grad(cd.tensor(x), cd.tensor(alpha), cd.tensor(alpha + beta)).numpy()
    np.testing.assert_allclose(found, expected / (1 - x), rtol=2e-4)


REPARAMETERIZED: dict[str, tuple[Any, list[float]]] = {
    "Beta": (lambda a, b: dist.Beta(a, b), [2.0, 3.0]),
    "Chi2": (lambda a: dist.Chi2(a), [3.0]),
    "Exponential": (lambda a: dist.Exponential(a), [3.0]),
    "FisherSnedecor": (lambda a, b: dist.FisherSnedecor(a, b), [5.0, 14.0]),
    "Gamma": (lambda a, b: dist.Gamma(a, b), [2.5, 3.0]),
    "Gumbel": (lambda a, b: dist.Gumbel(a, b), [1.0, 2.0]),
    "HalfNormal": (lambda a: dist.HalfNormal(a), [3.0]),
    "InverseGamma": (lambda a, b: dist.InverseGamma(a, b), [8.0, 2.0]),
    "Kumaraswamy": (lambda a, b: dist.Kumaraswamy(a, b), [2.0, 3.0]),
    "Laplace": (lambda a, b: dist.Laplace(a, b), [1.0, 2.0]),
    "LogNormal": (lambda a, b: dist.LogNormal(a, b), [0.3, 0.4]),
    "Normal": (lambda a, b: dist.Normal(a, b), [1.0, 2.0]),
    "Pareto": (lambda a, b: dist.Pareto(a, b), [1.0, 9.0]),
    "Uniform": (lambda a, b: dist.Uniform(a, b), [-1.0, 3.0]),
    "Weibull": (lambda a, b: dist.Weibull(a, b), [1.0, 2.5]),
}


@pytest.mark.parametrize("name", REPARAMETERIZED)
def test_gradients_of_samples_are_those_of_the_moments(name: str) -> None:
    cd.manual_seed(4)
    make, values = REPARAMETERIZED[name]
    leaves = [cd.tensor(v, dtype=cd.float64, requires_grad=True) for v in values]
    of = make(*leaves)
    drawn = of.rsample((100_000,))
    for sampled, exact in (
        (drawn.mean(), of.mean),
        ((drawn**2).mean(), of.variance + of.mean**2),
    ):
        found = cd.autograd.grad(sampled, leaves, retain_graph=True)
        expected = cd.autograd.grad(exact, leaves, retain_graph=True, allow_unused=True)
        for f, e in zip(found, expected, strict=True):
            wanted = 0.0 if e is None else float(e)
            assert abs(float(f) - wanted) < 0.08 * abs(wanted) + 0.02, (name, f, e)


def test_gradients_of_dirichlet_samples_are_those_of_the_mean() -> None:
    cd.manual_seed(5)
    concentration = cd.tensor([0.7, 2.0, 4.0], dtype=cd.float64, requires_grad=True)
    of = dist.Dirichlet(concentration)
    for i in range(3):
        (found,) = cd.autograd.grad(of.rsample((50_000,)).mean(0)[i], concentration)
        (expected,) = cd.autograd.grad(of.mean[i], concentration)
        assert bool(((found - expected).abs() < 0.01).all())


def test_a_straight_through_sample_is_one_hot_and_passes_the_gradient() -> None:
    probs = cd.tensor([0.2, 0.8], requires_grad=True)
    sample = dist.OneHotCategoricalStraightThrough(probs=probs).rsample()
    assert sorted(sample.tolist()) == [0.0, 1.0]
    (sample * cd.tensor([1.0, 3.0])).sum().backward()
    assert probs.grad is not None and float(probs.grad.abs().sum()) > 0


# ---- what a user does --------------------------------------------------------------------------


def test_a_policy_learns_with_the_score_function() -> None:
    cd.manual_seed(0)
    logits = cd.zeros(3, requires_grad=True)
    optimizer = cd.optim.SGD([logits], lr=0.5)
    for _ in range(60):
        policy = dist.Categorical(logits=logits)
        action = policy.sample((64,))
        reward = (action == 1).float()
        loss = -(policy.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(dist.Categorical(logits=logits).probs[1]) > 0.8


def test_a_tanh_normal_policy() -> None:
    mean = cd.tensor([0.1, -0.2], requires_grad=True)
    base = dist.Normal(mean, cd.ones(2))
    squashed = dist.TransformedDistribution(base, [dist.TanhTransform(cache_size=1)])
    action = squashed.rsample((7,))
    log_prob = squashed.log_prob(action)
    assert log_prob.shape == (7, 2)
    log_prob.sum().backward()
    assert mean.grad is not None
    expected = base.log_prob(cd.atanh(action)) - cd.log(1 - action**2)
    assert cd.allclose(log_prob, expected, atol=1e-4)


def test_a_flow_of_one_own_transform() -> None:
    class Doubling(dist.Transform):
        domain = dist.constraints.real
        codomain = dist.constraints.real
        bijective = True
        sign = +1

        def _call(self, x: Any) -> Any:
            return 2 * x

        def _inverse(self, y: Any) -> Any:
            return y / 2

        def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
            return cd.full_like(x, math.log(2.0))

    flow = dist.TransformedDistribution(dist.Normal(0.0, 1.0), [Doubling()])
    y = cd.tensor([0.3, -1.0])
    assert cd.allclose(flow.log_prob(y), dist.Normal(0.0, 2.0).log_prob(y))
    assert cd.allclose(flow.cdf(y), dist.Normal(0.0, 2.0).cdf(y))
    assert cd.allclose(flow.icdf(cd.tensor([0.2])), dist.Normal(0.0, 2.0).icdf(cd.tensor([0.2])))


def test_a_distribution_of_ones_own() -> None:
    class Spike(dist.Distribution):
        arg_constraints = {"at": dist.constraints.real}
        support = dist.constraints.real

        def __init__(self, at: Any) -> None:
            self.at = at
            super().__init__(at.shape)

        def sample(self, sample_shape: Any = ()) -> Any:
            return self.at.expand(self._extended_shape(sample_shape))

    spike = Spike(cd.tensor([1.0, 2.0]))
    assert repr(spike) == "Spike(at: cd.Size([2]))"
    assert spike.sample((3,)).shape == (3, 2)
    with pytest.raises(NotImplementedError):
        spike.entropy()
    with pytest.raises(ValueError, match="Expected parameter at"):
        Spike(cd.tensor([math.nan]))


def test_a_subclass_with_its_own_init_needs_its_own_expand() -> None:
    class Standard(dist.Normal):
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)

    class Named(dist.Normal):
        pass

    with pytest.raises(NotImplementedError, match="must also define a custom .expand"):
        Standard().expand((2,))
    assert type(Named(0.0, 1.0).expand((2,))) is Named


def test_validation_can_be_switched_off() -> None:
    assert dist.Normal(0.0, -1.0, validate_args=False).scale == -1
    dist.Distribution.set_default_validate_args(False)
    try:
        dist.Normal(0.0, -1.0)
    finally:
        dist.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="of distribution Normal"):
        dist.Normal(0.0, -1.0)


def test_the_most_specific_divergence_is_used_and_ambiguity_is_warned_of() -> None:
    class A(dist.Distribution):
        arg_constraints: Any = {}

    class B(A):
        pass

    dist.register_kl(A, B)(lambda p, q: "AB")
    dist.register_kl(B, A)(lambda p, q: "BA")
    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        dist.kl_divergence(B(), B())
    dist.register_kl(B, B)(lambda p, q: "BB")
    assert dist.kl_divergence(B(), B()) == "BB"
    with pytest.raises(TypeError, match="Distribution subclass"):
        dist.register_kl("Normal", A)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (lambda: dist.ContinuousBernoulli(0.3), lambda: dist.Uniform(0.0, 1.0)),
        (lambda: dist.Uniform(0.0, 1.0), lambda: dist.ContinuousBernoulli(0.3)),
        (lambda: dist.Beta(2.0, 3.0), lambda: dist.ContinuousBernoulli(0.3)),
        (lambda: dist.Uniform(0.1, 0.7), lambda: dist.Beta(2.0, 3.0)),
        (lambda: dist.Gamma(2.0, 3.0), lambda: dist.Gumbel(0.3, 1.5)),
        (lambda: dist.Pareto(1.0, 4.0), lambda: dist.Gamma(2.0, 1.0)),
        (lambda: dist.Laplace(0.3, 0.5), lambda: dist.Normal(0.0, 2.0)),
    ],
)
def test_divergences_are_means_of_log_ratios(p: Any, q: Any) -> None:
    cd.manual_seed(6)
    p, q = p(), q()
    x = p.sample((50_000,))
    ratio = p.log_prob(x) - q.log_prob(x)
    error = 6 * float(ratio.std()) / math.sqrt(50_000)
    assert abs(float(ratio.mean()) - float(dist.kl_divergence(p, q))) < error + 1e-4


def test_a_divergence_beyond_the_support_is_infinite() -> None:
    assert dist.kl_divergence(dist.Uniform(-1.0, 1.0), dist.Gamma(1.0, 1.0)) == math.inf
    assert dist.kl_divergence(dist.Normal(0.0, 1.0), dist.Beta(1.0, 1.0)) == math.inf


def test_distributions_are_pickled_and_copied() -> None:
    for of in (dist.Normal(0.0, 1.0), dist.LogNormal(0.0, 1.0), dist.Gumbel(0.0, 1.0)):
        for twin in (pickle.loads(pickle.dumps(of)), copy.deepcopy(of)):
            assert cd.equal(twin.log_prob(cd.tensor(0.5)), of.log_prob(cd.tensor(0.5)))


def test_modules_have_pytorchs_names() -> None:
    from coredispatch.distributions import constraint_registry, utils
    from coredispatch.distributions.categorical import Categorical
    from coredispatch.distributions.normal import Normal
    from coredispatch.distributions.transforms import AffineTransform

    assert Normal is dist.Normal and Categorical is dist.Categorical
    assert AffineTransform is dist.AffineTransform
    assert constraint_registry.biject_to is dist.biject_to
    assert cd.equal(utils.probs_to_logits(cd.tensor([0.5]), True), cd.tensor([0.0]))


def test_singular_wishart_samples_are_drawn_again_and_warned_of_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.Wishart(cd.tensor(6.0), cd.eye(3)).sample((100,))
