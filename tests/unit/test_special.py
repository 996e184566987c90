"""Special functions against SciPy, their edges, derivatives; mantissas, histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

BESSEL = {
    "bessel_j0": "j0",
    "bessel_j1": "j1",
    "bessel_y0": "y0",
    "bessel_y1": "y1",
    "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1",
    "modified_bessel_k0": "k0",
    "modified_bessel_k1": "k1",
    "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e",
    "spherical_bessel_j0": None,
    "erfcx": "erfcx",
    "airy_ai": None,
}
INF, NAN = math.inf, math.nan


def scipy_function(name: str) -> Any:
    special = pytest.importorskip("scipy.special")
    if name == "spherical_bessel_j0":
        return lambda x: special.spherical_jn(0, np.abs(x))
    if name == "airy_ai":
        return lambda x: special.airy(x)[0]
    return getattr(special, BESSEL[name] or name)


@pytest.mark.parametrize("name", BESSEL)
def test_functions_agree_with_scipy(name: str) -> None:
    x = np.concatenate([np.linspace(-18, 18, 1001), np.logspace(-8, 2, 200)])
    wanted = scipy_function(name)(x)
    found = getattr(cd.special, name)(cd.tensor(x)).numpy()
    # Near a zero of an oscillating function the error is relative to the amplitude.
    waves = name.startswith(("bessel", "spherical", "airy"))
    amplitude = 0.3 / np.maximum(np.abs(x), 1) if waves else 0.0
    usual = np.isfinite(wanted)
    if name == "airy_ai":
        amplitude = np.where(x < 0, 0.3, 0)
        usual &= x < 15
    bound = 1e-12 * np.maximum(np.abs(wanted), amplitude)
    assert np.all(np.abs(found[usual] - wanted[usual]) <= bound[usual])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    single = getattr(cd.special, name)(cd.tensor([1.5], dtype=cd.float32))
    assert single.dtype is cd.float32
    np.testing.assert_allclose(single.numpy(), scipy_function(name)(np.array([1.5])), 2e-7)


def test_the_gradient_of_spherical_j0_does_not_cancel() -> None:
    special = pytest.importorskip("scipy.special")
    at = np.concatenate([np.logspace(-6, 2, 300), -np.logspace(-6, 1, 50), [0.0, 0.2]])
    for dtype, bound in ((cd.float32, 2e-7), (cd.float64, 2e-14)):
        x = cd.tensor(at, dtype=dtype, requires_grad=True)
        cd.special.spherical_bessel_j0(x).sum().backward()
        taken = x.detach().numpy().astype(np.float64)
        wanted = np.sign(taken) * special.spherical_jn(0, np.abs(taken), derivative=True)
        near = np.abs(taken) < 1
        np.testing.assert_allclose(x.grad.numpy()[near], wanted[near], bound)
        np.testing.assert_allclose(x.grad.numpy(), wanted, 0, bound)


@pytest.mark.parametrize("name", [name for name in BESSEL if name != "airy_ai"])
def test_derivatives(name: str) -> None:
    x = cd.tensor([0.3, 1.0, 2.5, 4.0, 6.5], dtype=cd.float64, requires_grad=True)
    function = getattr(cd.special, name)
    assert cd.autograd.gradcheck(function, (x,))
    assert cd.autograd.gradgradcheck(function, (x,))


def test_a_derivative_that_is_not_there_is_refused() -> None:
    with pytest.raises(RuntimeError):
        cd.special.airy_ai(cd.ones(2, requires_grad=True))
    with pytest.raises(NotImplementedError):
        cd.igamma(cd.ones(2, requires_grad=True), cd.ones(2)).sum().backward()


@pytest.mark.parametrize(
    ("a", "x", "name", "wanted"),
    [
        # to 20 digits by mpmath.gammainc(..., regularized=True)
        (99.32073584892956, 0.041788004191408074, "igamma", 2.5874013984259527489e-294),
        (460.94197587012496, 43.10380608893473, "igamma", 2.55176711412491908e-295),
        (370.96174039017905, 1244.7574568947339, "igammac", 3.1183267846198317631e-187),
        (6.5, 3e-45, "igamma", 2.1338080194879416611e-293),
    ],
)
def test_far_tails_of_the_incomplete_gamma_functions(
    a: float, x: float, name: str, wanted: float
) -> None:
    """Exponents of hundreds round: less than 2,000 units are lost, where it were 90,000."""
    found = getattr(cd, name)(cd.tensor([a], dtype=cd.float64), cd.tensor([x], dtype=cd.float64))
    assert abs(found.item() - wanted) < 2000 * 2**-53 * wanted


EDGES = {
    "bessel_j0": [1, NAN, NAN],
    "bessel_y0": [-INF, NAN, NAN],
    "modified_bessel_k1": [INF, 0, NAN],
    "spherical_bessel_j0": [1, 0, 0],
    "erfcx": [1, 0, INF],
    "airy_ai": [0.355028053887817, NAN, NAN],
}


@pytest.mark.parametrize("name", EDGES)
def test_values_at_the_edges_are_pytorchs(name: str) -> None:
    found = getattr(cd.special, name)(cd.tensor([0.0, INF, -INF], dtype=cd.float64))
    np.testing.assert_allclose(found.numpy(), EDGES[name], rtol=1e-14)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
@pytest.mark.parametrize("low", [-3, 0, 1, 2, 4])
def test_incomplete_gamma_functions_agree_with_scipy(name: str, low: int) -> None:
    special = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(low + 5)
    a = 10 ** rng.uniform(low, low + 2, 300)
    near = a * (1 + rng.normal(size=300) / np.sqrt(a)).clip(1e-2)
    for x in (near, 10 ** rng.uniform(low, low + 2, 300)):
        wanted = getattr(special, name)(a, x)
        found = getattr(cd.special, name)(cd.tensor(a), cd.tensor(x)).numpy()
        usual = wanted > 1e-200
        np.testing.assert_allclose(found[usual], wanted[usual], rtol=1e-9)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_at_the_edges(name: str) -> None:
    special = pytest.importorskip("scipy.special")
    a, x = np.meshgrid(*[np.array([0.0, 1.0, INF, NAN, -1.0])] * 2)
    found = getattr(cd.special, name)(cd.tensor(a), cd.tensor(x)).numpy()
    np.testing.assert_allclose(found, getattr(special, name)(a, x), rtol=1e-14)
    b = cd.tensor([0.5, 2.0, 7.0], dtype=cd.float64, requires_grad=True)
    function = getattr(cd.special, name)
    assert cd.autograd.gradcheck(lambda b: function(cd.full_like(b, 2.5).detach(), b), (b,))


POLYNOMIALS = {
    "chebyshev_polynomial_t": "eval_chebyt",
    "chebyshev_polynomial_u": "eval_chebyu",
    "shifted_chebyshev_polynomial_t": "eval_sh_chebyt",
    "shifted_chebyshev_polynomial_u": "eval_sh_chebyu",
    "hermite_polynomial_h": "eval_hermite",
    "hermite_polynomial_he": "eval_hermitenorm",
    "laguerre_polynomial_l": "eval_laguerre",
    "legendre_polynomial_p": "eval_legendre",
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_agree_with_scipy(name: str) -> None:
    special = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(0)
    x, n = rng.uniform(-1.5, 1.5, (20, 1)), np.arange(12)
    wanted = getattr(special, POLYNOMIALS[name])(n, x)
    found = getattr(cd.special, name)(cd.tensor(x), cd.tensor(n)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    one = getattr(cd.special, name)(cd.tensor(x), 5).numpy()
    np.testing.assert_allclose(one, wanted[:, 5:6], rtol=1e-9, atol=1e-9)
    number = getattr(cd.special, name)(0.3, cd.tensor(n)).numpy()
    np.testing.assert_allclose(number, getattr(special, POLYNOMIALS[name])(n, 0.3), rtol=1e-5)
    assert getattr(cd.special, name)(cd.tensor(x), -1).eq(0).all()
    with pytest.raises(TypeError):
        getattr(cd.special, name)(0.3, 2)


def test_chebyshev_polynomials_of_third_and_fourth_kind() -> None:
    x = cd.tensor([-0.7, 0.2, 1.4], dtype=cd.float64)
    angle = cd.acos(x[:2])
    third = cd.special.chebyshev_polynomial_v(x, 4)
    fourth = cd.special.chebyshev_polynomial_w(x, 4)
    np.testing.assert_allclose(third[:2], cd.cos(4.5 * angle) / cd.cos(angle / 2), rtol=1e-12)
    np.testing.assert_allclose(fourth[:2], cd.sin(4.5 * angle) / cd.sin(angle / 2), rtol=1e-12)
    shifted = cd.special.shifted_chebyshev_polynomial_w((x + 1) / 2, 4)
    np.testing.assert_allclose(shifted, fourth, rtol=1e-12)


def test_mantissa_and_exponent() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=50) * 10.0 ** rng.integers(-300, 300, 50)
    x = np.concatenate([x, [0.0, -0.0, INF, -INF, NAN, 5e-324, 1e-310, 1, 0.5, np.nextafter(1, 0)]])
    mantissa, exponent = cd.frexp(cd.tensor(x))
    wanted = np.frexp(x)
    np.testing.assert_array_equal(mantissa.numpy(), wanted[0])
    np.testing.assert_array_equal(exponent.numpy(), wanted[1])
    assert exponent.dtype is cd.int32
    leaf = cd.tensor([3.0, -0.2], requires_grad=True)
    leaf.frexp().mantissa.sum().backward()
    assert leaf.grad.tolist() == [0.25, 4.0]
    with pytest.raises(RuntimeError, match="floating-point"):
        cd.frexp(cd.tensor([1]))


@pytest.mark.parametrize("density", [False, True])
def test_histograms_agree_with_numpy(density: bool) -> None:
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(60, 3)), rng.uniform(size=60)
    x = cd.tensor(points[:, 0])
    for options in ({}, {"range": (-1.0, 2.0)}, {"weight": weight}):
        given = dict(options)
        if "weight" in given:
            options = {"weights": given["weight"]}
            given["weight"] = cd.tensor(weight)
        wanted = np.histogram(points[:, 0], 5, density=density, **options)
        found = x.histogram(5, density=density, **given)
        np.testing.assert_allclose(found.hist.numpy(), wanted[0])
        np.testing.assert_allclose(found.bin_edges.numpy(), wanted[1])
    edges = [np.array([-2.0, -0.5, 0, 3]), np.linspace(-1, 1, 3), np.linspace(-3, 3, 5)]
    wanted = np.histogramdd(points, edges, density=density, weights=weight)
    tensors = [cd.tensor(e) for e in edges]
    hist, found = cd.histogramdd(
        cd.tensor(points), tensors, weight=cd.tensor(weight), density=density
    )
    np.testing.assert_allclose(hist.numpy(), wanted[0])
    assert len(found) == 3 and cd.equal(found[0], tensors[0])
    by_number = cd.histogramdd(cd.tensor(points), [2, 3, 4], range=[-1, 1, -2, 2, -3, 3])
    wanted = np.histogramdd(points, [2, 3, 4], [(-1, 1), (-2, 2), (-3, 3)])
    np.testing.assert_allclose(by_number.hist.numpy(), wanted[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: cd.histogram(x, 0),
        lambda x: cd.histogram(x, 3, range=(3.0, 1.0)),
        lambda x: cd.histogram(x, cd.ones(2, 2)),
        lambda x: cd.histogram(x, cd.tensor([0, 1])),
        lambda x: cd.histogram(x, 3, weight=cd.ones(2)),
        lambda x: cd.histogram(x.int(), 3),
        lambda x: cd.histogram(x * NAN, 3),
        lambda x: cd.histogramdd(x, 3),
        lambda x: cd.histogramdd(x[:, None], [3, 3]),
    ],
)
def test_histograms_that_cannot_be_made(call: Any) -> None:
    with pytest.raises(RuntimeError):
        call(cd.randn(6))
