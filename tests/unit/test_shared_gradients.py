"""What elements get that are equal, or NaN, where one of them is the result: beside PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

INF, NAN = math.inf, math.nan
VALUES = {
    "ties": [1.0, 2.0, 2.0, 2.0, 3.0],
    "all equal": [2.0, 2.0, 2.0, 2.0],
    "zeros": [0.0, -0.0, 0.0],
    "even": [4.0, 1.0, 3.0, 2.0],
    "NaN": [1.0, NAN, 2.0, NAN, 3.0],
    "only NaN": [NAN, NAN],
    "infinities": [INF, 1.0, INF, -INF, INF],
}


def gradients(function: Callable[[Any, Any], Any], values: Any) -> list[np.ndarray]:
    found = []
    for library in (cd, torch):
        x = library.tensor(values, dtype=library.float64, requires_grad=True)
        found.append(library.autograd.grad(function(library, x).sum(), x)[0].numpy())
    return found


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min", "amax", "amin"])
def test_of_all_elements(name: str, values: str) -> None:
    for given in (VALUES[values], [VALUES[values]] * 2):
        mine, theirs = gradients(lambda lib, x: getattr(lib, name)(x), given)
        np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_of_a_dimension(name: str, dim: Any, values: str) -> None:
    given = [VALUES[values], [1.0] * len(VALUES[values])]
    mine, theirs = gradients(lambda lib, x: getattr(lib, name)(x, dim), given)
    np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min"])
def test_of_a_dimension_the_index_gets_it(name: str, values: str) -> None:
    x = cd.tensor([VALUES[values]], dtype=cd.float64, requires_grad=True)
    result, index = getattr(cd, name)(x, 1)
    (given,) = cd.autograd.grad(result.sum(), x)
    assert given.nonzero().tolist() == [[0, index.item()]]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("values", VALUES)
def test_of_what_is_scattered(values: str, reduce: str, include_self: bool) -> None:
    def scattered(library: Any, x: Any) -> Any:
        index = library.zeros(len(VALUES[values]), dtype=library.int64)
        # The base differs from all of them: PyTorch counts it, too, where it is not included.
        base = library.full((3,), 7.0, dtype=x.dtype)
        return base.scatter_reduce(0, index, x, reduce, include_self=include_self)

    mine, theirs = gradients(scattered, VALUES[values])
    np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min", "amax"])
def test_shares_have_second_derivatives(name: str) -> None:
    found = []
    for library in (cd, torch):
        x = library.tensor([1.0, 2.0, 2.0], requires_grad=True)
        (once,) = library.autograd.grad(getattr(library, name)(x * x), x, create_graph=True)
        found.append(library.autograd.grad(once.sum(), x)[0].tolist())
    assert found[0] == found[1]
