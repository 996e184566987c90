"""Distributions beside PyTorch's: densities, moments, divergences, shapes, texts and gradients."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import distributions as ours

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")
theirs = torch.distributions


def pos(*shape: int) -> Any:
    return lambda r: r.gamma(2.0, 1.0, shape) + 0.3


def real(*shape: int) -> Any:
    return lambda r: r.normal(0, 1.5, shape)


def unit(*shape: int) -> Any:
    return lambda r: r.uniform(0.05, 0.95, shape)


def simplex(*shape: int) -> Any:
    return lambda r: r.dirichlet(np.ones(shape[-1]), shape[:-1])


def spd(n: int, *batch: int) -> Any:
    def draw(r: Any) -> Any:
        a = r.normal(size=(*batch, n, n))
        return a @ np.swapaxes(a, -1, -2) + np.eye(n)

    return draw


def tril(n: int, *batch: int) -> Any:
    return lambda r: np.linalg.cholesky(spd(n, *batch)(r))


#: name of a class -> the ways to draw its arguments
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "Bernoulli": [{"probs": unit(3)}, {"logits": real(2, 3)}],
    "Beta": [
        {"concentration1": pos(3), "concentration0": pos(3)},
        {"concentration1": pos(3), "concentration0": pos(2, 1)},
    ],
    "Binomial": [{"total_count": 7, "probs": unit(3)}, {"total_count": 5, "logits": real(4)}],
    "Categorical": [{"probs": simplex(2, 4)}, {"logits": real(3)}],
    "Cauchy": [{"loc": real(3), "scale": pos(2, 3)}],
    "Chi2": [{"df": pos(3)}],
    "ContinuousBernoulli": [
        {"probs": unit(3)},
        {"logits": real(2, 3)},
        {"probs": lambda r: [0.4995]},
    ],
    "Dirichlet": [{"concentration": pos(2, 4)}],
    "Exponential": [{"rate": pos(3)}],
    "FisherSnedecor": [{"df1": pos(3), "df2": lambda r: r.gamma(2, 1, 3) + 4.5}],
    "Gamma": [
        {"concentration": pos(3), "rate": pos(3)},
        {"concentration": pos(3), "rate": pos(2, 1)},
    ],
    "GeneralizedPareto": [
        {"loc": real(4), "scale": pos(4), "concentration": lambda r: [0.0, 0.3, -0.4, 0.7]}
    ],
    "Geometric": [{"probs": unit(3)}, {"logits": real(3)}],
    "Gumbel": [{"loc": real(3), "scale": pos(3)}],
    "HalfCauchy": [{"scale": pos(3)}],
    "HalfNormal": [{"scale": pos(3)}],
    "InverseGamma": [{"concentration": lambda r: r.gamma(2, 1, 3) + 2.5, "rate": pos(3)}],
    "Kumaraswamy": [{"concentration1": pos(3), "concentration0": pos(3)}],
    "LKJCholesky": [{"dim": 3, "concentration": pos(2)}, {"dim": 2, "concentration": 1.5}],
    "Laplace": [{"loc": real(3), "scale": pos(3)}],
    "LogNormal": [{"loc": real(3), "scale": lambda r: r.uniform(0.2, 0.9, 3)}],
    "LogisticNormal": [{"loc": real(2, 3), "scale": pos(3)}],
    "LowRankMultivariateNormal": [
        {"loc": real(2, 4), "cov_factor": real(4, 2), "cov_diag": pos(4)},
        {"loc": real(3), "cov_factor": real(2, 3, 1), "cov_diag": pos(2, 3)},
    ],
    "Multinomial": [
        {"total_count": 6, "probs": simplex(2, 4)},
        {"total_count": 3, "logits": real(3)},
    ],
    "MultivariateNormal": [
        {"loc": real(3), "covariance_matrix": spd(3)},
        {"loc": real(2, 3), "scale_tril": tril(3, 2)},
        {"loc": real(3), "precision_matrix": spd(3, 2)},
    ],
    "NegativeBinomial": [
        {"total_count": 4, "probs": unit(3)},
        {"total_count": pos(3), "logits": real(3)},
    ],
    "Normal": [
        {"loc": real(3), "scale": pos(3)},
        {"loc": real(3), "scale": pos(2, 3)},
        {"loc": 0.5, "scale": 2},
    ],
    "OneHotCategorical": [{"probs": simplex(2, 4)}, {"logits": real(3)}],
    "OneHotCategoricalStraightThrough": [{"probs": simplex(2, 4)}],
    "Pareto": [{"scale": pos(3), "alpha": lambda r: r.gamma(2, 1, 3) + 2.5}],
    "Poisson": [{"rate": pos(3)}],
    "RelaxedBernoulli": [{"temperature": pos(), "probs": unit(3)}],
    "RelaxedOneHotCategorical": [{"temperature": pos(), "logits": real(2, 4)}],
    "StudentT": [{"df": lambda r: r.gamma(2, 1, 3) + 2.5, "loc": real(3), "scale": pos(3)}],
    "Uniform": [{"low": lambda r: r.normal(-1, 0.3, 3), "high": lambda r: r.normal(2, 0.3, 3)}],
    "VonMises": [{"loc": lambda r: r.uniform(-1, 1, 3), "concentration": pos(3)}],
    "Weibull": [{"scale": pos(3), "concentration": lambda r: r.gamma(2, 1, 3) + 1.1}],
    "Wishart": [
        {"df": 5.5, "covariance_matrix": spd(3)},
        {"df": lambda r: r.gamma(2, 1, 2) + 3.5, "scale_tril": tril(3)},
        {"df": lambda r: [4.0, 5.0], "precision_matrix": spd(2, 2)},
    ],
}
CASES = [(name, number) for name, ways in FAMILIES.items() for number in range(len(ways))]


def arguments(name: str, number: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    # PyTorch's GeneralizedPareto takes the default dtype only.
    dtype = np.float32 if name == "GeneralizedPareto" else np.float64
    drawn = FAMILIES[name][number].items()
    return {k: np.asarray(v(rng), dtype) if callable(v) else v for k, v in drawn}


def make(name: str, number: int, seed: int = 0, grad: bool = False) -> tuple[Any, Any, Any, Any]:
    """Our distribution and PyTorch's, with the tensors among their arguments."""
    drawn = arguments(name, number, seed)
    arrays = {k: v for k, v in drawn.items() if isinstance(v, np.ndarray)}
    mine = {k: cd.tensor(v, requires_grad=grad) for k, v in arrays.items()}
    other = {k: torch.tensor(v, requires_grad=grad) for k, v in arrays.items()}
    return (
        getattr(ours, name)(**(drawn | mine)),
        getattr(theirs, name)(**(drawn | other)),
        mine,
        other,
    )


def close(mine: Any, other: Any, tolerance: float = 1e-6) -> None:
    assert tuple(mine.shape) == tuple(other.shape)
    assert str(mine.dtype).split(".")[-1] == str(other.dtype).split(".")[-1]
    a, b = mine.detach().numpy(), other.detach().numpy()
    tolerance = max(tolerance, 1e-4 if a.dtype == np.float32 else 0)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def text(value: Any) -> str:
    """The printed form under one name, with one number for a node of one kind."""
    shown = str(value).replace("cd.", "torch.")
    return re.sub(r"Backward\d", "Backward", " ".join(shown.split()))


@pytest.mark.parametrize(("name", "number"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_and_gradients_are_pytorchs(name: str, number: int, seed: int) -> None:
    mine, other, leaves, their_leaves = make(name, number, seed, grad=True)
    assert tuple(mine.batch_shape) == tuple(other.batch_shape)
    assert tuple(mine.event_shape) == tuple(other.event_shape)
    assert text(mine) == text(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        drawn = other.sample((5,))
    value = cd.tensor(drawn.numpy())
    assert tuple(mine.sample((5,)).shape) == tuple(drawn.shape)
    close(mine.log_prob(value), other.log_prob(drawn))
    compared = ["log_prob"]
    for what in ("mean", "variance", "stddev", "mode"):
        try:
            expected = getattr(other, what)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(mine, what)
        else:
            close(getattr(mine, what), expected)
            compared.append(what)
    for what in ("entropy", "perplexity", "enumerate_support"):
        try:
            expected = getattr(other, what)()
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(mine, what)()
        else:
            close(getattr(mine, what)(), expected)
    try:
        expected = other.cdf(drawn)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.cdf(value)
    else:
        close(mine.cdf(value), expected)
    u = np.random.default_rng(seed).uniform(0.05, 0.95, tuple(other.batch_shape))
    u = u.astype(value.numpy().dtype) if value.is_floating_point() else u
    try:
        expected = other.icdf(torch.tensor(u))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.icdf(cd.tensor(u))
    else:
        close(mine.icdf(cd.tensor(u)), expected)
    if leaves:
        mine.log_prob(value).sum().backward()
        other.log_prob(drawn).sum().backward()
        for key, leaf in leaves.items():
            expected = their_leaves[key].grad
            if expected is not None and key == "scale_tril":
                close(leaf.grad.tril(), expected.tril())  # the rest is not read
            elif expected is not None:
                close(leaf.grad, expected)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_an_expanded_distribution_is_pytorchs(name: str, number: int) -> None:
    mine, other, *_ = make(name, number)
    shape = (4, 2, *other.batch_shape)
    mine, other = mine.expand(shape), other.expand(shape)
    assert type(mine).__name__ == type(other).__name__
    assert tuple(mine.batch_shape) == shape
    assert text(mine) == text(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = other.sample((3,))
    close(mine.log_prob(cd.tensor(drawn.numpy())), other.log_prob(drawn))
    assert tuple(mine.sample((3,)).shape) == tuple(drawn.shape)
    assert mine.has_rsample == other.has_rsample
    assert mine.has_enumerate_support == other.has_enumerate_support
    assert text(mine.support) == text(other.support)


#: pairs where PyTorch 2.13 is infinite although the divergence is finite: it compares the ends of
#: the supports the wrong way round
DIFFERENT = {("ContinuousBernoulli", "Uniform"), ("Uniform", "ContinuousBernoulli")}


def registered() -> list[tuple[str, str]]:
    from torch.distributions.kl import _KL_REGISTRY

    named = {(p.__name__, q.__name__) for p, q in _KL_REGISTRY}
    return sorted((p, q) for p, q in named if p in FAMILIES and q in FAMILIES)


@pytest.mark.parametrize(("p", "q"), registered())
def test_divergences_are_pytorchs(p: str, q: str) -> None:
    for seed in range(3):
        one, their_one, leaves, their_leaves = make(p, 0, seed, grad=True)
        two, their_two, more, their_more = make(q, 0, seed + 10, grad=True)
        if (p, q) in DIFFERENT:
            continue
        try:
            expected = theirs.kl_divergence(their_one, their_two)
        except ValueError:  # event shapes differ
            with pytest.raises(ValueError, match="event shapes"):
                ours.kl_divergence(one, two)
            continue
        result = ours.kl_divergence(one, two)
        expected = expected.broadcast_to(torch.broadcast_shapes(expected.shape, result.shape))
        close(result.broadcast_to(tuple(expected.shape)), expected, 1e-5)
        if bool(expected.isfinite().all()) and expected.requires_grad:
            result.sum().backward()
            expected.sum().backward()
            for key, leaf in (leaves | more).items():
                theirs_of = (their_leaves | their_more)[key].grad
                if key not in leaves or key not in more:
                    close(leaf.grad, theirs_of, 1e-5)


def test_every_pair_of_pytorch_is_registered() -> None:
    from torch.distributions.kl import _KL_REGISTRY

    from coredispatch.distributions.kl import _KL_REGISTRY as registered

    def names(registry: Any) -> set[tuple[str, str]]:
        return {(p.__name__, q.__name__) for p, q in registry}

    assert names(_KL_REGISTRY) <= names(registered)


TRANSFORMS = [
    ("AbsTransform", ()),
    ("AffineTransform", (1.0, -2.0)),
    ("CorrCholeskyTransform", ()),
    ("ExpTransform", ()),
    ("LowerCholeskyTransform", ()),
    ("PositiveDefiniteTransform", ()),
    ("PowerTransform", (0.5,)),
    ("ReshapeTransform", ((6,), (2, 3))),
    ("SigmoidTransform", ()),
    ("SoftmaxTransform", ()),
    ("SoftplusTransform", ()),
    ("StickBreakingTransform", ()),
    ("TanhTransform", ()),
]


@pytest.mark.parametrize(("name", "args"), TRANSFORMS)
def test_transforms_are_pytorchs(name: str, args: tuple[Any, ...]) -> None:
    shape = (2, 3, 3) if "Cholesky" in name and "Corr" not in name or "Definite" in name else (2, 6)
    x = np.random.default_rng(3).normal(size=shape)
    x = np.abs(x) if name == "PowerTransform" else x
    mine, other = getattr(ours, name)(*args), getattr(theirs, name)(*args)
    assert text(mine) == text(other)
    assert mine.bijective == other.bijective
    y, their_y = mine(cd.tensor(x)), other(torch.tensor(x))
    close(y, their_y)
    close(mine.inv(y), other.inv(their_y))
    assert tuple(mine.forward_shape(cd.Size(shape))) == tuple(
        other.forward_shape(torch.Size(shape))
    )
    assert text(mine.domain) == text(other.domain)
    assert text(mine.codomain) == text(other.codomain)
    try:
        expected = other.log_abs_det_jacobian(torch.tensor(x), their_y)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.log_abs_det_jacobian(cd.tensor(x), y)
    else:
        close(mine.log_abs_det_jacobian(cd.tensor(x), y), expected)
    assert (mine == getattr(ours, name)(*args)) == (other == getattr(theirs, name)(*args))
    assert mine.inv.inv is mine


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize(
    "text_of",
    [
        "real", "positive", "nonnegative", "unit_interval", "interval(-1.0, 3.0)", "simplex",
        "greater_than(2.0)", "less_than(1.0)", "corr_cholesky", "lower_cholesky",
        "positive_definite", "positive_semidefinite", "independent(positive, 1)", "boolean",
        "cat([positive, real], -1, [1, 2])", "stack([positive, real, unit_interval], -1)",
    ],
)  # fmt: skip
def test_constraints_lead_to_pytorchs_transforms(registry: str, text_of: str) -> None:
    constraint = eval(text_of, vars(ours.constraints))
    expected = eval(text_of, vars(theirs.constraints))
    try:
        their_transform = getattr(theirs, registry)(expected)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            getattr(ours, registry)(constraint)
        return
    transform = getattr(ours, registry)(constraint)
    x = np.random.default_rng(4).normal(
        size=(2, 3, 3) if "definite" in text_of or "lower_" in text_of else (2, 3)
    )
    y = transform(cd.tensor(x))
    close(y, their_transform(torch.tensor(x)))
    assert bool(constraint.check(y).all())
    close(constraint.check(y), expected.check(torch.tensor(y.numpy())))


@pytest.mark.parametrize(
    "make_wrong",
    [
        lambda d, t: d.Normal(t([0.0, 1.0]), t([1.0, -1.0])),
        lambda d, t: d.Normal(0.0, 1.0).log_prob(1.0),
        lambda d, t: d.Normal(t([0.0, 1.0]), 1.0).log_prob(t([1.0, 2.0, 3.0])),
        lambda d, t: d.Normal(t([0.0, 1.0]), 1.0).log_prob(t([1.0, math.nan])),
        lambda d, t: d.Uniform(1.0, 0.0),
        lambda d, t: d.Categorical(),
        lambda d, t: d.Categorical(probs=t(0.5)),
        lambda d, t: d.Categorical(t([0.5, 0.5])).log_prob(t([2])),
        lambda d, t: d.Dirichlet(t(1.0)),
        lambda d, t: d.Dirichlet(t([1.0, 1.0])).log_prob(t([1.0, 0.5, 0.5])),
        lambda d, t: d.Bernoulli(0.5, 0.5),
        lambda d, t: d.MultivariateNormal(t([0.0, 0.0])),
        lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), t([[1.0, 2.0], [2.0, 1.0]])),
        lambda d, t: d.Independent(d.Normal(0.0, 1.0), 1),
        lambda d, t: d.LKJCholesky(1),
        lambda d, t: d.Geometric(t([0.0])),
        lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), [1]),
        lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()),
        lambda d, t: d.kl_divergence(d.Normal(0.0, 1.0), d.Bernoulli(0.5)),
        lambda d, t: d.Normal("a", 1.0),
        lambda d, t: d.Multinomial(t([2]), t([0.5, 0.5])),
        lambda d, t: d.Categorical(t([0.5, 0.5])).rsample(),
        lambda d, t: d.Normal(0.0, 1.0).enumerate_support(),
        lambda d, t: d.biject_to(d.constraints.boolean),
        lambda d, t: d.ExpTransform(cache_size=2),
        lambda d, t: d.ReshapeTransform((2,), (3,)),
    ],
)
def test_refusals_are_pytorchs(make_wrong: Any) -> None:
    # torch.compile, in another test, switches this off for the process.
    theirs.Distribution.set_default_validate_args(True)
    with pytest.raises(Exception) as expected:
        make_wrong(theirs, torch.tensor)
    with pytest.raises(Exception) as found:
        make_wrong(ours, cd.tensor)
    assert isinstance(found.value, expected.type)
    first = [text(str(e.value).split("\n")[0]) for e in (found, expected)]
    assert first[0] == first[1]
