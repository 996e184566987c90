"""Gamma and Dirichlet samples, and the derivatives of samples with respect to their parameters.

A sample ``x`` of a distribution with the cumulative distribution function ``F(x; a)`` has the
derivative ``dx/da = -(dF/da) / (dF/dx)`` (implicit reparameterization: Figurnov, Mohamed and Mnih,
"Implicit reparameterization gradients", 2018). For the gamma and the beta distribution

    dF/da = integral of (log t - E[log t]) p(t) dt, over t from 0 to x,

and minus the integral from ``x`` to the end of the support, because the whole is 0. With
``t = x exp(-s)`` (or the like above ``x``) and divided by ``p(x)``, the integrand is smooth and
falls off beyond a point that a few steps of Newton's method find: 64 Gauss-Legendre nodes give it
to 12 digits for every parameter (32 to 8). Where the exponential falls off slower than the rest
changes, the rest is constant beyond ``s = 40``, and that tail is integrated in closed form.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.random.factories import random_normal
from coredispatch.ops.random.inplace import open_uniform
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Generator, Tensor
from coredispatch.ops.support.inspection import all_true, any_true
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import broadcast, promote_float, same, same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, float64
from coredispatch.registry.model.errors import ArgumentError

__all__: list[str] = []

#: exp(-42) is below the last bit of a double
_DEPTH = 42.0
_FAR = 40.0


def _tiny(dtype: DType) -> float:
    """What stands for zero where a logarithm is taken."""
    return 1e-300 if dtype is float64 else 1e-37


@functools.cache  # numpy.polynomial is not imported before somebody asks
def _rule(dtype: DType) -> list[tuple[float, float]]:
    """Nodes in (0, 1) and weights; half of them are enough for a result in single precision."""
    count = 64 if dtype.itemsize > 4 else 32
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return list(zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist()))


def _positive(make: Any) -> Iterator[Sample]:
    for size in ((), (17,), (3, 5)):
        yield Sample(make.positive(size))


@composite(
    out=same_shape,
    dtype=same,
    samples=_positive,
    dtypes="float",
    random=True,
    method=False,
)
def _standard_gamma(self: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the gamma distribution of scale 1, one for each concentration in ``self``.

    By rejection (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000);
    below 1 through the concentration one higher. Raises :class:`ArgumentError` for a
    concentration that is not above zero.
    """
    if self.numel() and not all_true(lazy.gt(self, 0)):
        raise ArgumentError(
            "gamma needs concentrations above zero", fix="use concentrations above 0"
        )
    shape = self.to_dtype(widest(self))
    raised = lazy.where(lazy.lt(shape, 1), shape + 1, shape)
    d = raised - 1 / 3
    c = 1 / lazy.sqrt(9 * d)
    out = lazy.zeros_like(d)
    waiting = lazy.gt(d, 0)
    while any_true(waiting):
        x = random_normal(
            tuple(d.shape), dtype=shape.dtype, device=self.device, generator=generator
        )
        v = (1 + c * x) ** 3
        u = lazy.log(open_uniform(d, generator))
        bound = 0.5 * lazy.square(x) + d - d * v + d * lazy.log(lazy.clamp(v, _tiny(shape.dtype)))
        accepted = waiting & lazy.gt(v, 0) & lazy.lt(u, bound)
        out = lazy.where(accepted, d * v, out)
        waiting = waiting & lazy.logical_not(accepted)
    boost = open_uniform(d, generator) ** (1 / shape)
    return lazy.where(lazy.lt(shape, 1), out * boost, out).to_dtype(self.dtype)


@composite(
    out=broadcast,
    dtype=promote_float,
    samples=lambda make: (
        Sample(make.positive(a), make.positive(b))
        for a, b in (((), ()), ((17,), (17,)), ((3, 1), (1, 5)))
    ),
    dtypes="float",
    differentiable=False,
    method=False,
)
def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """The derivative of gamma samples ``output`` with respect to their concentrations ``self``.

    Floating tensors that broadcast together, all elements above zero. Not differentiable itself.
    """
    dtype = promote_float(self, output)
    within = widest(self)
    a, x = self.to_dtype(within), lazy.clamp(output.to_dtype(within), _tiny(within))
    centre = lazy.log(x) - lazy.digamma(a)
    below = lazy.le(x, lazy.clamp(a, 2.0))
    sign = lazy.where(below, lazy.ones_like(centre), -1.0)
    # The logarithm of the weight is -sign a s - x (exp(-sign s) - 1); first a bound of its support.
    gap = lazy.clamp(x - a, 0.0)
    above_end = lazy.clamp(2 * _DEPTH / (gap + lazy.sqrt(gap * gap + 2 * _DEPTH * x)), None, _DEPTH)
    end = lazy.where(below, (_DEPTH + x) / a, above_end)
    for _ in range(8):
        decay = lazy.exp(-sign * end)
        value = _DEPTH - sign * a * end - x * (decay - 1)
        end = _newton(end, value, sign * (x * decay - a), True)
    cut = lazy.where(below, lazy.clamp(end, None, _FAR), end)
    total = lazy.zeros_like(cut)
    for node, weight in _rule(dtype):
        s = sign * cut * node
        total = total + weight * (centre - s) * lazy.exp(-a * s - x * lazy.expm1(-s))
    tail = lazy.exp(lazy.clamp(x, None, 2.0) - a * cut) * ((centre - cut) / a - 1 / (a * a))
    has_tail = below & lazy.gt(end, _FAR)
    total = total * cut + lazy.where(has_tail, tail, 0.0)
    return (-sign * x * total).to_dtype(dtype)


_standard_gamma.vjp(self=lambda grad, self, out: grad * _standard_gamma_grad(self, out))


def _newton(end: Any, value: Any, slope: Any, where: Any) -> Any:
    """One step towards where a concave, falling function is 0, from the right of it."""
    step = lazy.maximum(end - value / slope, end * 0.05)
    return lazy.where(lazy.lt(slope, 0) & where, step, end)


def _fractions(make: Any) -> Iterator[Sample]:
    for size in ((), (17,), (3, 5)):
        alpha = make.positive(size)
        yield Sample(
            make(size, low=0.05, high=0.95), alpha, np.asarray(alpha + make.positive(size))
        )


@composite(
    out=broadcast,
    dtype=promote_float,
    samples=_fractions,
    dtypes="float",
    differentiable=False,
    method=False,
)
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """What the derivative of a Dirichlet sample with respect to ``alpha`` is made of.

    ``x`` is one coordinate, whose distribution is Beta(``alpha``, ``total - alpha``). The result is
    ``dx/dalpha / (1 - x)`` where the other concentration stays. Floating tensors that broadcast
    together.
    """
    dtype = promote_float(x, alpha, total)
    within = widest(x)
    below_1 = 1 - (2**-53 if within is float64 else 2**-24)
    x, a = lazy.clamp(x.to_dtype(within), _tiny(within), below_1), alpha.to_dtype(within)
    total = total.to_dtype(within)
    b = total - a
    mean = lazy.digamma(a) - lazy.digamma(total)
    log_x, log_rest = lazy.log(x), lazy.log1p(-x)
    # The integral from 0 where its weight does not grow by more than exp(2) on the way from x.
    from_0 = lazy.le((1 - b) * log_rest, 2.0) | lazy.le((b - 1) * x / (1 - x), a)
    from_1 = lazy.le((1 - a) * log_x, 2.0) | lazy.le((a - 1) * (1 - x) / x, b)
    low = lazy.where(lazy.le(x, 0.5), from_0, lazy.logical_not(from_1))
    power, other = lazy.where(low, a, b), lazy.where(low, b, a) - 1
    edge, log_edge = lazy.where(low, x, 1 - x), lazy.where(low, log_rest, log_x)
    end = (_DEPTH + lazy.clamp(-other * log_edge, 0.0)) / power
    for _ in range(12):
        y = edge * lazy.exp(-end)
        value = _DEPTH - power * end + other * (lazy.log1p(-y) - log_edge)
        end = _newton(end, value, other * y / (1 - y) - power, lazy.gt(other, 0))
    cut = lazy.clamp(end, None, _FAR)
    integral = lazy.zeros_like(cut)
    for node, weight in _rule(dtype):
        s = cut * node
        rest = lazy.log1p(-edge * lazy.exp(-s))
        log_t = lazy.where(low, log_x - s, rest)
        weights = weight * lazy.exp(other * (rest - log_edge) - power * s)
        integral = integral + (log_t - mean) * weights
    scale = lazy.where(lazy.gt(end, _FAR), -other * log_edge - power * cut, -float("inf"))
    inner = (log_x - mean - cut) / power - 1 / (power * power)
    integral = integral * cut + lazy.exp(scale) * lazy.where(low, inner, -mean / power)
    return lazy.where(low, -x / (1 - x) * integral, integral).to_dtype(dtype)


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (Sample(make.positive(s)) for s in ((4,), (3, 5))),
    dtypes="float",
    random=True,
    method=False,
)
def _sample_dirichlet(self: Tensor, generator: Generator | None = None) -> Tensor:
    """A sample of the Dirichlet distribution for each row of concentrations, ``(..., K)``.

    Through gamma samples that are divided by their sum. The derivative is that of the beta
    distributions of the coordinates (:func:`_dirichlet_grad`).
    """
    within = widest(self)
    drawn = _standard_gamma(self.detach().to_dtype(within), generator=generator)
    drawn = lazy.clamp(drawn, _tiny(within))
    drawn = drawn / lazy.sum(drawn, -1, True)
    tiny = {"float16": 2.0**-14, "float64": 2.0**-1022}.get(self.dtype.name, 2.0**-126)
    return lazy.clamp(drawn.to_dtype(self.dtype), tiny)


@_sample_dirichlet.vjp
def _(grad, self, out):
    total = lazy.sum(self, -1, True).expand(tuple(self.shape))
    coefficient = _dirichlet_grad(out, self, total)
    return coefficient * (grad - lazy.sum(out * grad, -1, True))
