"""Probability distributions, with PyTorch's names, shapes and checks.

A distribution has batches of parameters, ``sample`` and ``log_prob``; where ``has_rsample`` holds,
gradients reach the parameters through ``rsample``. ``kl_divergence(p, q)`` compares two,
:mod:`.constraints` say where values lie, :mod:`.transforms` change variables.
"""

from __future__ import annotations

from coredispatch.frontend.distributions import (
    constraint_registry,
    constraints,
    kl_cross_entropy,
    kl_same_family,
    transforms,
)
from coredispatch.frontend.distributions.bernoulli import Bernoulli
from coredispatch.frontend.distributions.beta import Beta
from coredispatch.frontend.distributions.binomial import Binomial
from coredispatch.frontend.distributions.categorical import Categorical
from coredispatch.frontend.distributions.cauchy import Cauchy
from coredispatch.frontend.distributions.chi2 import Chi2
from coredispatch.frontend.distributions.constraint_registry import biject_to, transform_to
from coredispatch.frontend.distributions.continuous_bernoulli import ContinuousBernoulli
from coredispatch.frontend.distributions.dirichlet import Dirichlet
from coredispatch.frontend.distributions.distribution import Distribution
from coredispatch.frontend.distributions.exp_family import ExponentialFamily
from coredispatch.frontend.distributions.exponential import Exponential
from coredispatch.frontend.distributions.fishersnedecor import FisherSnedecor
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.distributions.generalized_pareto import GeneralizedPareto
from coredispatch.frontend.distributions.geometric import Geometric
from coredispatch.frontend.distributions.gumbel import Gumbel
from coredispatch.frontend.distributions.half_cauchy import HalfCauchy
from coredispatch.frontend.distributions.half_normal import HalfNormal
from coredispatch.frontend.distributions.independent import Independent
from coredispatch.frontend.distributions.inverse_gamma import InverseGamma
from coredispatch.frontend.distributions.kl import kl_divergence, register_kl
from coredispatch.frontend.distributions.kumaraswamy import Kumaraswamy
from coredispatch.frontend.distributions.laplace import Laplace
from coredispatch.frontend.distributions.lkj_cholesky import LKJCholesky
from coredispatch.frontend.distributions.log_normal import LogNormal
from coredispatch.frontend.distributions.logistic_normal import LogisticNormal
from coredispatch.frontend.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
)
from coredispatch.frontend.distributions.mixture_same_family import MixtureSameFamily
from coredispatch.frontend.distributions.multinomial import Multinomial
from coredispatch.frontend.distributions.multivariate_normal import MultivariateNormal
from coredispatch.frontend.distributions.negative_binomial import NegativeBinomial
from coredispatch.frontend.distributions.normal import Normal
from coredispatch.frontend.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from coredispatch.frontend.distributions.pareto import Pareto
from coredispatch.frontend.distributions.poisson import Poisson
from coredispatch.frontend.distributions.relaxed_bernoulli import (
    LogitRelaxedBernoulli,
    RelaxedBernoulli,
)
from coredispatch.frontend.distributions.relaxed_categorical import (
    ExpRelaxedCategorical,
    RelaxedOneHotCategorical,
)
from coredispatch.frontend.distributions.studentT import StudentT
from coredispatch.frontend.distributions.transformed_distribution import TransformedDistribution
from coredispatch.frontend.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from coredispatch.frontend.distributions.uniform import Uniform
from coredispatch.frontend.distributions.von_mises import VonMises
from coredispatch.frontend.distributions.weibull import Weibull
from coredispatch.frontend.distributions.wishart import Wishart

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpRelaxedCategorical",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LogitRelaxedBernoulli",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraint_registry",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]

#: the modules that only register formulas
_FORMULAS = (kl_same_family, kl_cross_entropy)

for _name in __all__:
    _found = globals()[_name]
    if isinstance(_found, type) and issubclass(_found, Distribution):
        _found._base = _found
