"""Penalties on gradients: what a gradient of a piecewise linear function is differentiated to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "hardtanh": lambda lib, x: lib.nn.functional.hardtanh(x, -0.5, 0.75),
    "relu6": lambda lib, x: lib.nn.functional.relu6(x),
    "relu": lambda lib, x: lib.relu(x),
    "leaky_relu": lambda lib, x: lib.nn.functional.leaky_relu(x, 0.2),
    "threshold": lambda lib, x: lib.threshold(x, 0.1, 0.2),
    "hardshrink": lambda lib, x: lib.nn.functional.hardshrink(x),
    "softshrink": lambda lib, x: lib.nn.functional.softshrink(x),
    "prelu": lambda lib, x: lib.prelu(x, lib.tensor([0.25], dtype=x.dtype)),
    "rrelu": lambda lib, x: lib.rrelu(x),
    "abs": lambda lib, x: x.abs(),
    "clamp": lambda lib, x: x.clamp(-0.5, 0.5) + x.abs(),
    "max_pool1d": lambda lib, x: lib.nn.functional.max_pool1d(x, 2, 1, 1),
    "max_pool2d": lambda lib, x: lib.nn.functional.max_pool2d(x, 2),
    "max_pool3d": lambda lib, x: lib.nn.functional.max_pool3d(x.unsqueeze(0), (1, 2, 2)),
}


def values() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 4, 6))


def first(library: Any, function: Any, create_graph: bool) -> tuple[Any, ...]:
    """The input, what comes in from above, and the gradient."""
    x = library.tensor(values(), requires_grad=True)
    result = function(library, x)
    above = library.full_like(result, 2.0).requires_grad_()
    (gradient,) = library.autograd.grad(result, x, above, create_graph=create_graph)
    return x, above, gradient


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_penalty_alone_gives_zeros(name: str) -> None:
    for library in (cd, torch):
        x = library.tensor(values(), requires_grad=True)
        result = FUNCTIONS[name](library, x).sum()
        (gradient,) = library.autograd.grad(result, x, create_graph=True)
        assert gradient.requires_grad
        (gradient * gradient).sum().backward()
        assert x.grad.abs().sum().item() == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_is_differentiable_in_what_comes_from_above(name: str) -> None:
    found = []
    for library in (cd, torch):
        x, above, gradient = first(library, FUNCTIONS[name], True)
        weighted = (gradient * gradient * library.tensor(values())).sum()
        found.append((gradient, library.autograd.grad(weighted, above)[0]))
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (4,), ()])
def test_the_weight_of_prelu_has_second_derivatives(shape: tuple[int, ...]) -> None:
    found = []
    for library in (cd, torch):
        x = library.tensor(values(), requires_grad=True)
        weight = library.tensor(np.full(shape, 0.25), requires_grad=True)
        above = library.full((2, 4, 6), 2.0, dtype=x.dtype, requires_grad=True)
        gradients = library.autograd.grad(
            library.prelu(x, weight), [x, weight], above, create_graph=True
        )
        total = (gradients[0] * gradients[0] * x).sum() + (gradients[1] * gradients[1]).sum()
        found.append([*gradients, *library.autograd.grad(total, [x, weight, above])])
    for mine, theirs in zip(*found):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)


def test_prelu_of_infinities_has_no_gradient_of_nan() -> None:
    for library in (cd, torch):
        x = library.tensor([float("inf"), -1.0, 0.0, float("nan")], requires_grad=True)
        weight = library.tensor([0.5], requires_grad=True)
        library.prelu(x, weight)[:3].sum().backward()
        assert x.grad.tolist()[:3] == [1.0, 0.5, 0.5]
        assert library.prelu(x[:3], weight).sum().isinf()
        (given,) = library.autograd.grad(library.prelu(x[:3], weight).sum(), weight)
        assert given.tolist() == [-1.0]


def test_the_drawn_slopes_of_rrelu_are_those_of_its_gradient() -> None:
    x = cd.tensor([-2.0, 3.0, -4.0], requires_grad=True)
    result = cd.rrelu(x, 0.1, 0.3, training=True)
    (gradient,) = cd.autograd.grad(result.sum(), x, create_graph=True)
    assert gradient.requires_grad
    np.testing.assert_allclose((gradient * x).detach().numpy(), result.detach().numpy(), rtol=1e-6)
    assert 0.1 <= gradient[0].item() <= 0.3 and gradient[1].item() == 1.0


def test_windows_of_samples_have_the_slopes_of_each() -> None:
    x, slopes = cd.tensor(values()), cd.tensor([0.25])
    each = cd.func.vmap(cd.func.grad(lambda row: cd.prelu(row, slopes).sum()))(x)
    np.testing.assert_array_equal(each.numpy(), np.where(values() > 0, 1.0, 0.25))
