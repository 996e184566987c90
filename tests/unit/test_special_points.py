"""Derivatives where formulas divide by nothing or subtract what is equal, beside PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

INF, NAN = math.inf, math.nan
#: subnormal ones, too
SMALL = {"float64": [5e-324, -5e-324, 1e-310, -1e-310], "float32": [1e-45, -1e-45, 1e-40, -1e-40]}


def derivatives(library: Any, f: Any, points: list[float], dtype: str, order: int) -> Any:
    x = library.tensor(points, dtype=getattr(library, dtype), requires_grad=True)
    result = f(library, x)
    for n in range(order):
        (result,) = library.autograd.grad(result.sum(), x, create_graph=n < order - 1)
    return result.detach().numpy()


def agree(f: Any, points: list[float], dtype: str, order: int, rtol: float = 1e-5) -> None:
    mine, theirs = (derivatives(lib, f, points, dtype, order) for lib in (cd, torch))
    np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-320)


@pytest.mark.parametrize("number", [0.0, -1.0, 2.0, NAN])
def test_the_factor_of_a_logarithm_of_a_number(number: float) -> None:
    points = [0.0, -0.0, 1.0, -1.0, NAN, INF]
    agree(lambda lib, x: lib.xlogy(x, number), points, "float64", 1)
    agree(lambda lib, x: lib.special.xlog1py(x, number - 1), points, "float64", 1)


@pytest.mark.parametrize("dtype", SMALL)
def test_what_is_raised_to_0_is_constant(dtype: str) -> None:
    points = [*SMALL[dtype], 0.0, -0.0, NAN, INF, -INF, 2.0]
    agree(lambda lib, x: lib.pow(x, 0), points, dtype, 1)
    agree(lambda lib, x: lib.pow(x, lib.zeros_like(x)), points, dtype, 1)


def test_the_slope_of_a_power_changes_with_an_exponent_of_0() -> None:
    x, y = (cd.tensor(v, dtype=cd.float64, requires_grad=True) for v in (4.0, 0.0))
    (slope,) = cd.autograd.grad(cd.pow(x, y), x, create_graph=True)
    assert cd.autograd.grad(slope, y)[0].item() == 0.25  # d/dy of y * x**(y - 1)


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", SMALL)
def test_bessel_functions_of_next_to_nothing(name: str, order: int, dtype: str) -> None:
    points = [*SMALL[dtype], 0.0, 1e-30, -1e-30, 0.5, -1.0]
    agree(lambda lib, x: getattr(lib.special, name)(x), points, dtype, order)


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_exponential_units_at_0(name: str, order: int) -> None:
    points = [0.0, -0.0, *SMALL["float64"], -1.0, 1.0, -30.0, 30.0, INF, -INF]
    if order == 3:  # PyTorch takes -0.0 for what is below 0 in one of three places
        points = points[6:]
    agree(lambda lib, x: getattr(lib.nn.functional, name)(x), points, "float64", order, 1e-12)


@pytest.mark.parametrize("dtype", SMALL)
def test_erfcx_far_out(dtype: str) -> None:
    def f(library: Any, x: Any) -> Any:
        return library.special.erfcx(x)

    agree(f, [-3.0, -1.0, 0.0, 1.0, 3.0, *SMALL[dtype]], dtype, 1)
    agree(f, [-3.0, -1.0, 0.0, 1.0, *SMALL[dtype]], dtype, 2)
    # There PyTorch's difference is rounding: erfcx(x) is 1 / (sqrt(pi) * x) up to 1 / (2 * x**2).
    points = [1e4, 1e6, 1e10, 1e15]
    far = np.array(points)
    first, second = (derivatives(cd, f, points, dtype, n) for n in (1, 2))
    np.testing.assert_allclose(first, -1 / (math.sqrt(math.pi) * far**2), rtol=1e-5)
    np.testing.assert_allclose(second, 2 / (math.sqrt(math.pi) * far**3), rtol=1e-5, atol=1e-44)
    assert derivatives(cd, f, [1e30, INF], dtype, 1).tolist()[1] == 0
    assert abs(derivatives(cd, f, [1e30], dtype, 2).item()) < 1e-80
    assert derivatives(cd, f, [-INF], dtype, 1).item() == -INF
    assert derivatives(cd, f, [-INF], dtype, 2).item() == INF


HALVES: dict[str, Callable[[Any], Any]] = {
    "i1": cd.special.i1,
    "i1e": cd.special.i1e,
    "erfcx": cd.special.erfcx,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALVES)
def test_half_precision_keeps_its_slopes(name: str, dtype: str) -> None:
    points = [-1.0, -0.25, 0.0, 0.25, 1.0, 2.0]
    x = cd.tensor(points, dtype=getattr(cd, dtype), requires_grad=True)
    (given,) = cd.autograd.grad(HALVES[name](x).sum(), x)
    wanted = derivatives(torch, lambda lib, t: getattr(lib.special, name)(t), points, "float64", 1)
    np.testing.assert_allclose(given.double().numpy(), wanted, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_whole_quotients_of_half_precision_are_those_of_the_number(dtype: str, mode: str) -> None:
    given = np.random.default_rng(0).normal(size=500) * np.logspace(-1, 3, 500)
    for number in (3, 0.1, 0.3, -0.7, 1e-2, 7.0):
        found = []
        for library in (cd, torch):
            x = library.tensor(given).to(getattr(library, dtype))
            result = library.div(x, number, rounding_mode=mode)
            assert result.dtype == x.dtype
            x.div_(number, rounding_mode=mode)
            found.append([result.float().numpy(), x.float().numpy()])
        np.testing.assert_array_equal(found[0], found[1])
