"""Orthogonal polynomials by their three-term recurrences.

NIST Digital Library of Mathematical Functions, 18.9. Degrees may differ from element to element;
they are cut to integers, and a negative one gives zero, as in PyTorch. Computed in float64 and
rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, rounding
from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import broadcast, conditioned, promote_float
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Value, composite
from coredispatch.registry.model.dtypes import float64
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.value import dtype_of

#: the highest degree: every element goes through all degrees up to the highest one
_MOST = 100_000
#: the polynomial of degree 1
First = Callable[[Any], Any]
#: the polynomial of degree k from those of degree k - 1 and k - 2
Step = Callable[[Any, int, Any, Any], Any]


def _evaluated(name: str, x: Any, n: Any, first: First, step: Step) -> Any:
    """The polynomial of degree ``n`` at ``x``; either may be a number."""
    if not isinstance(x, Value) and not isinstance(n, Value):
        raise DTypeError(f"{name} takes a tensor as x or n, got two numbers", fix="cd.tensor(x)")
    dtype = promote_float(x, n)
    if not isinstance(x, Value):
        x = lazy.full(tuple(n.shape), x, dtype=widest(n), device=n.device)
    x = x if dtype_of(x) is float64 else lazy.to_dtype(x, widest(x))
    if not isinstance(n, Value):
        return lazy.to_dtype(_recurrence(x, int(n), first, step), dtype)
    degree = rounding.trunc(lazy.to_dtype(lazy.detach(n), dtype_of(x)))
    top = int(lazy.amax(degree)) if degree.numel() else -1
    if top > _MOST:
        raise ArgumentError(f"{name} of degree {top}", fix=f"use degrees up to {_MOST}")
    degree, x = lazy.broadcast_tensors([degree, x])
    out = lazy.zeros_like(x)
    for k, value in enumerate(_polynomials(x, top, first, step)):
        out = comparison.where(comparison.eq(degree, k), value, out)
    return lazy.to_dtype(out, dtype)


def _polynomials(x: Any, top: int, first: First, step: Step) -> Iterator[Any]:
    before, here = lazy.ones_like(x), first(x)
    if top >= 0:
        yield before
    if top >= 1:
        yield here
    for k in range(2, top + 1):
        before, here = here, step(x, k, here, before)
        yield here


def _recurrence(x: Any, n: int, first: First, step: Step) -> Any:
    out = lazy.zeros_like(x)
    for value in _polynomials(x, n, first, step):
        out = value
    return out


def _samples(make: Any) -> Iterator[Sample]:
    for n in (1, 2, 3, 6):
        yield Sample(make((3, 4)), n)
    yield Sample(make((5,)), np.array([0, 1, 2, 3, -1]))
    yield Sample(make((2, 1)), np.array([1, 4, 2]))
    yield Sample(make(()), 3)


def _by_degree(value: Callable[[Any, int], Any]) -> Any:
    """A reference for degrees that differ, from one for a single degree."""

    def reference(input: Any, n: Any) -> Any:
        if not isinstance(n, np.ndarray):
            return value(input, int(n))
        x, degree = np.broadcast_arrays(input, n)
        pairs = zip(x.ravel(), degree.ravel())
        flat = [value(v, int(k)) if k > 0 else float(k == 0) for v, k in pairs]
        return np.array(flat, dtype=np.float64).reshape(x.shape)

    return reference


def _unit(n: int) -> Any:
    return np.eye(1, n + 1, n)[0]


def _of_derivative(n: int) -> Any:
    """The polynomial of the second kind as a series in those of the first."""
    return np.polynomial.chebyshev.chebder(_unit(n + 1)) / (n + 1) if n >= 0 else np.zeros(1)


def _series(x: Any, coefficients: Any) -> Any:
    if len(coefficients) == 1:  # chebval multiplies an infinite x by 0
        return np.full_like(x, coefficients[0])
    return np.polynomial.chebyshev.chebval(x, coefficients)


def _second_kind(x: Any, n: int) -> Any:
    return _series(x, _of_derivative(n))


def _third_kind(x: Any, n: int) -> Any:
    # One series: the difference of two values is NaN where both are infinite.
    return _series(x, np.polynomial.chebyshev.chebsub(_of_derivative(n), _of_derivative(n - 1)))


def _fourth_kind(x: Any, n: int) -> Any:
    return _series(x, np.polynomial.chebyshev.chebadd(_of_derivative(n), _of_derivative(n - 1)))


def _shifted(value: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    return lambda x, n: value(2 * x - 1, n)


def _metadata(value: Callable[[Any, int], Any]) -> dict[str, Any]:
    return {
        "out": broadcast,
        "dtype": promote_float,
        "reference": _by_degree(value),
        "samples": _samples,
        "takes": "real",
        "dtypes": "float",
        "values": (0.2, 1.5),
        # Near a root the value is the difference of numbers near 1.
        "tolerance": replace(conditioned, ulps=64.0),
        "cast": "float32_accelerated",
        "namespace": "special",
        "method": False,
    }


# ---- Chebyshev --------------------------------------------------------------------------------


def _chebyshev_step(x: Any, k: int, here: Any, before: Any) -> Any:
    return sub(mul(mul(x, 2), here), before)


def _shift(x: Any) -> Any:
    return sub(mul(x, 2), 1)


def _shifted_step(x: Any, k: int, here: Any, before: Any) -> Any:
    return _chebyshev_step(_shift(x), k, here, before)


def _of_first_kind(x: Any) -> Any:
    return mul(x, 1)


def _of_second_kind(x: Any) -> Any:
    return mul(x, 2)


def _of_third_kind(x: Any) -> Any:
    return sub(mul(x, 2), 1)


def _of_fourth_kind(x: Any) -> Any:
    return add(mul(x, 2), 1)


def _chebyshev(letter: str, first: First, value: Any, shifted: bool, formula: str) -> Any:
    name = f"{'shifted_' * shifted}chebyshev_polynomial_{letter}"
    start: First = (lambda x: first(_shift(x))) if shifted else first
    step: Step = _shifted_step if shifted else _chebyshev_step

    @composite(name=name, **_metadata(_shifted(value) if shifted else value))
    def polynomial(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor:
        return _evaluated(name, input, n, start, step)

    argument = "2 * input - 1" if shifted else "input"
    polynomial.__doc__ = (
        f"Chebyshev polynomial of the {formula}, degree ``n``, at ``{argument}``; shapes broadcast."
    )
    return polynomial


chebyshev_polynomial_t = _chebyshev(
    "t",
    _of_first_kind,
    lambda x, n: np.polynomial.chebyshev.chebval(x, _unit(n)),
    False,
    "first kind",
)
chebyshev_polynomial_u = _chebyshev("u", _of_second_kind, _second_kind, False, "second kind")
chebyshev_polynomial_v = _chebyshev("v", _of_third_kind, _third_kind, False, "third kind")
chebyshev_polynomial_w = _chebyshev("w", _of_fourth_kind, _fourth_kind, False, "fourth kind")
shifted_chebyshev_polynomial_t = _chebyshev(
    "t",
    _of_first_kind,
    lambda x, n: np.polynomial.chebyshev.chebval(x, _unit(n)),
    True,
    "first kind",
)
shifted_chebyshev_polynomial_u = _chebyshev("u", _of_second_kind, _second_kind, True, "second kind")
shifted_chebyshev_polynomial_v = _chebyshev("v", _of_third_kind, _third_kind, True, "third kind")
shifted_chebyshev_polynomial_w = _chebyshev("w", _of_fourth_kind, _fourth_kind, True, "fourth kind")


# ---- Hermite, Laguerre, Legendre --------------------------------------------------------------


@composite(**_metadata(lambda x, n: np.polynomial.hermite.hermval(x, _unit(n))))
def hermite_polynomial_h(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor:
    """Physicist's Hermite polynomial of degree ``n`` at ``input``; shapes broadcast."""

    def step(x: Any, k: int, here: Any, before: Any) -> Any:
        return sub(mul(mul(x, 2), here), mul(before, 2 * (k - 1)))

    return _evaluated("hermite_polynomial_h", input, n, _of_second_kind, step)


@composite(**_metadata(lambda x, n: np.polynomial.hermite_e.hermeval(x, _unit(n))))
def hermite_polynomial_he(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor:
    """Probabilist's Hermite polynomial of degree ``n`` at ``input``; shapes broadcast."""

    def step(x: Any, k: int, here: Any, before: Any) -> Any:
        return sub(mul(x, here), mul(before, k - 1))

    return _evaluated("hermite_polynomial_he", input, n, _of_first_kind, step)


@composite(**_metadata(lambda x, n: np.polynomial.laguerre.lagval(x, _unit(n))))
def laguerre_polynomial_l(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor:
    """Laguerre polynomial of degree ``n`` at ``input``; shapes broadcast."""

    def step(x: Any, k: int, here: Any, before: Any) -> Any:
        return div(sub(mul(sub(2 * k - 1, x), here), mul(before, k - 1)), k)

    return _evaluated("laguerre_polynomial_l", input, n, lambda x: sub(1, x), step)


@composite(**_metadata(lambda x, n: np.polynomial.legendre.legval(x, _unit(n))))
def legendre_polynomial_p(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor:
    """Legendre polynomial of degree ``n`` at ``input``; shapes broadcast."""

    def step(x: Any, k: int, here: Any, before: Any) -> Any:
        return div(sub(mul(mul(x, 2 * k - 1), here), mul(before, k - 1)), k)

    return _evaluated("legendre_polynomial_p", input, n, _of_first_kind, step)
