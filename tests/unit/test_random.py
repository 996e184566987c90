"""Random numbers: seeds and states, ranges, moments against SciPy, and dropout."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.nn import functional as F

FAMILY = ("random", "nn.dropout")


def test_samples_keep_to_their_rules(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


# -- complex numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("how", ["rand", "rand_like", "uniform_", "composite"])
def test_both_parts_of_complex_numbers_are_uniform(how: str, dtype: str) -> None:
    kind = getattr(cd, dtype)
    cd.manual_seed(5)
    drawn = {
        "rand": lambda: cd.rand(3, 4000, dtype=kind),
        "rand_like": lambda: cd.rand_like(cd.empty(3, 4000, dtype=kind)),
        "uniform_": lambda: cd.empty(3, 4000, dtype=kind).uniform_(0.0, 1.0),
        "composite": lambda: cd.ops.rand.decomposition((3, 4000), kind, None, None),
    }[how]()
    assert drawn.dtype is kind and drawn.shape == (3, 4000)
    parts = cd.view_as_real(drawn).numpy()
    assert parts.min() >= 0 and parts.max() < 1
    assert np.allclose(parts.mean((0, 1)), 0.5, atol=0.02)
    assert np.allclose(parts.var((0, 1)), 1 / 12, rtol=0.05)
    assert abs(np.corrcoef(parts.reshape(-1, 2).T)[0, 1]) < 0.05


# -- generators ----------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda g: cd.rand(5, generator=g),
    "randn": lambda g: cd.randn(2, 3, generator=g),
    "randint": lambda g: cd.randint(0, 100, (7,), generator=g),
    "randperm": lambda g: cd.randperm(9, generator=g),
    "bernoulli": lambda g: cd.full((20,), 0.5).bernoulli(generator=g),
    "multinomial": lambda g: cd.ones(9).multinomial(4, generator=g),
    "normal": lambda g: cd.normal(cd.zeros(3), 2.0, generator=g),
    "uniform_": lambda g: cd.zeros(4).uniform_(-1, 1, generator=g),
    "exponential_": lambda g: cd.zeros(4).exponential_(generator=g),
    "poisson": lambda g: cd.poisson(cd.full((4,), 3.0), generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_repeats_and_a_state_goes_on(name: str) -> None:
    draw = DRAWS[name]
    g = cd.Generator().manual_seed(7)
    first = draw(g)
    state = g.get_state()
    second = draw(g)
    assert draw(cd.Generator().manual_seed(7)).tolist() == first.tolist()
    g.set_state(state)
    assert draw(g).tolist() == second.tolist()
    assert state.dtype is cd.uint8 and first.tolist() != second.tolist()


def test_the_default_generator_serves_who_names_none() -> None:
    cd.manual_seed(3)
    first = [cd.rand(3), cd.randn(3), F.dropout(cd.ones(10), 0.5)]
    assert cd.manual_seed(3) is cd.default_generator is cd.random.default_generator
    again = [cd.rand(3), cd.randn(3), F.dropout(cd.ones(10), 0.5)]
    assert [x.tolist() for x in first] == [x.tolist() for x in again]
    assert cd.initial_seed() == 3
    state = cd.get_rng_state()
    a = cd.rand(3)
    cd.set_rng_state(state)
    assert cd.rand(3).tolist() == a.tolist()


def test_fork_rng_leaves_no_trace() -> None:
    cd.manual_seed(1)
    wanted = cd.rand(3).tolist()
    cd.manual_seed(1)
    with cd.random.fork_rng():
        cd.rand(100)
    assert cd.rand(3).tolist() == wanted


def test_seeds_and_states_are_checked() -> None:
    g = cd.Generator()
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises(ValueError, match="64 bits"):
        g.manual_seed(1 << 64)
    with pytest.raises(ValueError, match="state"):
        g.set_state(cd.zeros(54, dtype=cd.uint8))
    assert g.seed() == g.initial_seed()


def test_generators_are_copied_with_their_position() -> None:
    g = cd.Generator().manual_seed(5)
    cd.rand(3, generator=g)
    twins = [copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()]
    wanted = cd.rand(3, generator=g).tolist()
    assert [cd.rand(3, generator=t).tolist() for t in twins] == [wanted] * 3


def test_threads_may_share_a_generator() -> None:
    g = cd.Generator().manual_seed(0)
    found: list[float] = []

    def draw() -> None:
        for _ in range(50):
            found.extend(cd.rand(10, dtype=cd.float64, generator=g).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 2000


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_stay_in_their_range(dtype: str) -> None:
    kind = getattr(cd, dtype)
    x = cd.rand(200000, dtype=kind)
    assert x.dtype is kind and x.min() >= 0 and x.max() < 1
    y = cd.empty(100000, dtype=kind).uniform_(-3, 5)
    assert y.min() >= -3 and y.max() <= 5
    assert abs(float(x.to(cd.float64).mean()) - 0.5) < 5e-3
    assert len(x[:1000].unique()) > 100


def test_integers_cover_their_range() -> None:
    x = cd.randint(-2, 3, (5000,))
    assert sorted(x.unique().tolist()) == [-2, -1, 0, 1, 2] and x.dtype is cd.int64
    assert cd.randint(4, (5, 2), dtype=cd.uint8).shape == (5, 2)
    assert cd.randint_like(x, 2).max() == 1
    full = cd.empty(1000, dtype=cd.int64).random_()
    assert full.min() >= 0 and full.max() > 2**60
    assert cd.empty(1000, dtype=cd.int8).random_(3, 5).unique().tolist() == [3, 4]


def test_permutations_are_permutations() -> None:
    x = cd.randperm(1000)
    assert sorted(x.tolist()) == list(range(1000)) and x.tolist() != list(range(1000))
    assert cd.randperm(3, dtype=cd.int32).dtype is cd.int32


SAMPLERS: dict[str, tuple[Callable[[], Any], str, tuple[float, ...]]] = {
    "uniform": (lambda: cd.rand(20000), "uniform", ()),
    "normal": (lambda: cd.randn(20000), "norm", ()),
    "normal_": (lambda: cd.empty(20000).normal_(2, 3), "norm", (2, 3)),
    "normal of numbers": (lambda: cd.normal(2.0, 3.0, (20000,)), "norm", (2, 3)),
    "exponential_": (lambda: cd.empty(20000).exponential_(4.0), "expon", (0, 0.25)),
    "cauchy_": (lambda: cd.empty(20000).cauchy_(1, 2), "cauchy", (1, 2)),
    "log_normal_": (lambda: cd.empty(20000).log_normal_(0, 0.5), "lognorm", (0.5,)),
    "gamma": (lambda: cd.ops._standard_gamma(cd.full((20000,), 2.5)), "gamma", (2.5,)),
    "small gamma": (lambda: cd.ops._standard_gamma(cd.full((20000,), 0.4)), "gamma", (0.4,)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_distributions_pass_the_kolmogorov_smirnov_test(name: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    draw, distribution, parameters = SAMPLERS[name]
    cd.manual_seed(0)
    drawn = draw().to(cd.float64).numpy()
    assert stats.kstest(drawn, distribution, parameters).pvalue > 1e-3


def test_fork_rng_takes_device_types() -> None:
    for options in ({}, {"devices": []}, {"device_type": "cpu"}, {"enabled": True}):
        cd.manual_seed(1)
        before = cd.rand(3)
        cd.manual_seed(1)
        with cd.random.fork_rng(**options):
            cd.rand(7)
        assert cd.equal(cd.rand(3), before)
    with cd.random.fork_rng(enabled=False):
        pass
    with pytest.raises(RuntimeError, match="no device type 'nowhere'"):
        with cd.random.fork_rng(device_type="nowhere"):
            pass
    assert cd.random.thread_safe_generator() is None


def test_what_a_generator_refuses() -> None:
    generator = cd.Generator()
    for seed in ("a", 1.5, None):
        with pytest.raises(RuntimeError, match="expected a long"):
            generator.manual_seed(seed)  # type: ignore[arg-type]
    assert generator.manual_seed(np.int64(5)).initial_seed() == 5
    for state in (3, cd.zeros(30)):
        with pytest.raises(TypeError, match="uint8 tensor"):
            generator.set_state(state)
    with pytest.raises(RuntimeError, match="does not use offset"):
        generator.get_offset()
    with pytest.raises(NotImplementedError, match="clone_state"):
        generator.graphsafe_get_state()
    assert cd.manual_seed(cd.tensor(3)).initial_seed() == 3


@pytest.mark.parametrize("name", ["exponential", "_standard_gamma", "poisson", "binomial"])
def test_bodies_draw_from_the_same_distribution_as_kernels(name: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    op = getattr(cd.ops, name)
    cd.manual_seed(0)
    x = cd.full((4000,), 3.0)
    args = {"exponential": (x, 2.0), "binomial": (x + 5, cd.full((4000,), 0.3))}.get(name, (x,))
    fill = [p.default for p in op.schema.params][len(args) :]
    kernel, body = op(*args), op.decomposition(*args, *fill)
    assert stats.ks_2samp(kernel.numpy(), body.numpy()).pvalue > 1e-3


def test_counts_have_their_moments() -> None:
    cd.manual_seed(0)
    trials = cd.empty(20000).geometric_(0.25)
    assert trials.min() == 1 and abs(float(trials.mean()) - 4) < 0.1
    arrivals = cd.poisson(cd.full((20000,), 50.0))
    assert abs(float(arrivals.mean()) - 50) < 0.3 and abs(float(arrivals.var()) - 50) < 2
    hits = cd.zeros(20000).bernoulli_(0.2)
    assert abs(float(hits.mean()) - 0.2) < 0.02
    assert cd.zeros(4).bernoulli_(cd.tensor([0.0, 1.0, 0.0, 1.0])).tolist() == [0, 1, 0, 1]


def test_complex_normal_numbers_have_unit_variance() -> None:
    x = cd.randn(20000, dtype=cd.complex64)
    assert abs(float(x.abs().square().mean()) - 1) < 0.05


def test_multinomial_follows_its_weights() -> None:
    cd.manual_seed(0)
    weights = cd.tensor([1.0, 0.0, 3.0, 6.0])
    drawn = weights.multinomial(20000, replacement=True)
    share = [float((drawn == i).to(cd.float32).mean()) for i in range(4)]
    np.testing.assert_allclose(share, [0.1, 0, 0.3, 0.6], atol=0.02)
    for _ in range(20):
        assert sorted(weights.multinomial(3).tolist()) == [0, 2, 3]
    firsts = cd.tensor([[1.0, 3.0]]).expand(8000, 2).multinomial(1)
    assert abs(float(firsts.to(cd.float32).mean()) - 0.75) < 0.03
    assert weights.expand(5, 4).multinomial(2).shape == (5, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: cd.ones(3).multinomial(4),
        lambda: cd.tensor([1.0, 0.0]).multinomial(2),
        lambda: cd.tensor([1.0, -1.0]).multinomial(1),
        lambda: cd.tensor([math.nan, 1.0]).multinomial(1),
        lambda: cd.full((2,), 1.5).bernoulli(),
        lambda: cd.zeros(2).bernoulli_(2.0),
        lambda: cd.zeros(2).uniform_(1, 0),
        lambda: cd.zeros(2).normal_(0, -1),
        lambda: cd.poisson(cd.full((2,), -1.0)),
        lambda: F.dropout(cd.ones(2), 1.5),
    ],
)
def test_parameters_are_checked(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


# -- in place and autograd -----------------------------------------------------------------------


def test_filling_is_an_in_place_write() -> None:
    x = cd.zeros(3)
    before = x._version
    assert x.normal_() is x and x._version == before + 1
    w = cd.ones(3, requires_grad=True)
    with pytest.raises(cd.AutogradError):
        w.uniform_()
    with cd.no_grad():
        w.uniform_(2, 3)
    assert w.min() >= 2
    y = w * 2
    y.normal_()
    y.sum().backward()
    assert w.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dropout_zeroes_scales_and_derives(p: float, dtype: str) -> None:
    x = cd.ones(1001, dtype=getattr(cd, dtype), requires_grad=True)
    y = F.dropout(x, p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    kept = y.detach() != 0
    assert y.dtype is x.dtype and abs(float(kept.to(cd.float32).mean()) - (1 - p)) < 0.06
    np.testing.assert_allclose(
        y.detach()[kept].to(cd.float32).numpy(), scale, rtol=1e-2 if dtype == "bfloat16" else 1e-6
    )
    y.sum().backward()
    assert (x.grad == y.detach()).all()
    assert F.dropout(x, p, training=False) is x


def test_dropout_in_place_and_of_whole_channels() -> None:
    x = cd.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x and 0 < int((x == 0).sum()) < 100
    y = F.dropout2d(cd.ones(8, 16, 3, 3), 0.5)
    means = y.mean((2, 3))
    assert set(means.unique().tolist()) == {0.0, 2.0}
    with pytest.raises(cd.ShapeError):
        F.dropout2d(cd.ones(3), 0.5)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    cd.manual_seed(0)
    x = cd.randn(50000)
    y = F.alpha_dropout(x, 0.3, training=True)
    assert abs(float(y.mean())) < 0.02 and abs(float(y.var()) - 1) < 0.03


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16, cd.float32, cd.float64])
def test_uniform_far_from_zero_stays_below_its_end(dtype):
    cd.manual_seed(0)
    drawn = cd.empty(20_000, dtype=dtype).uniform_(96.0, 96.5)
    assert drawn.min() >= 96.0 and drawn.max() < 96.5
