"""Trigonometric and hyperbolic functions and their inverses. Angles are in radians."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, square, sub
from coredispatch.ops.elementwise.division import div, reciprocal
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import common, floating
from coredispatch.ops.support.rules import (
    broadcast,
    conditioned,
    promote,
    promote_float,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import tensor_pairs, unary
from coredispatch.registry import composite, primitive


def _metadata(reference: Any, ulps: float, **more: Any) -> dict[str, Any]:
    """What the unary ops of this file share."""
    metadata = {
        "out": same_shape,
        "dtype": promote_float,
        "reference": reference,
        "samples": unary,
        "dtypes": "all",
        "tolerance": ulp(ulps),
        "inplace": True,
    }
    return metadata | more


# ---- circular functions -----------------------------------------------------------------------


@primitive(**_metadata(np.sin, 2))
def sin(self: Tensor) -> Tensor:
    """Elementwise sine."""


@sin.vjp
def _(grad, self):
    return mul(grad, adjoint(cos(self)))


@primitive(**_metadata(np.cos, 2))
def cos(self: Tensor) -> Tensor:
    """Elementwise cosine."""


@cos.vjp
def _(grad, self):
    return neg(mul(grad, adjoint(sin(self))))


@composite(**_metadata(np.tan, 4), cast="float32_accelerated")
def tan(self: Tensor) -> Tensor:
    """Elementwise tangent."""
    if self.dtype.is_complex:  # -i tanh(iz): sine and cosine overflow where the tangent does not
        x, y = lazy.real(self), lazy.imag(self)
        t = tanh(lazy.complex(neg(y), x))
        return lazy.complex(lazy.imag(t), neg(lazy.real(t)))
    return div(sin(self), cos(self))


@tan.vjp
def _(grad, out):
    return mul(grad, adjoint(add(mul(out, out), 1)))


@primitive(**_metadata(np.atan, 2), alias=("arctan",))
def atan(self: Tensor) -> Tensor:
    """Elementwise inverse tangent, in ``[-pi/2, pi/2]``."""


@atan.vjp
def _(grad, self):
    return div(grad, adjoint(add(square(self), 1)))


@composite(
    **_metadata(np.asin, 4, values=(-0.9, 0.9)), cast="float32_accelerated", alias=("arcsin",)
)
def asin(self: Tensor) -> Tensor:
    """Elementwise inverse sine, in ``[-pi/2, pi/2]``; NaN where a real element exceeds 1."""
    if self.dtype.is_complex:
        x, y = lazy.real(self), lazy.imag(self)
        return lazy.complex(
            *_arcsine(lazy.complex(sub(1, x), neg(y)), lazy.complex(add(x, 1), y), x)
        )
    x = floating(self)
    return atan2(x, exponential.sqrt(mul(sub(1, x), add(x, 1))))


asin.edge("infinite at the ends", [1.0, 0.0, -1.0], gradient=[float("inf"), 1.0, float("inf")])


def _arcsine(less: Any, more: Any, x: Any) -> tuple[Any, Any]:
    """Real and imaginary part of asin(z) from 1 - z, 1 + z and the real part of z.

    W. Kahan, Branch Cuts for Complex Elementary Functions (1987): nothing cancels.
    """
    a, b = exponential.sqrt(less), exponential.sqrt(more)
    real = atan2(x, lazy.real(mul(a, b)))
    return real, asinh(lazy.imag(mul(lazy.conj(a), b)))


@asin.vjp
def _(grad, self):
    return mul(grad, adjoint(exponential.rsqrt(sub(1, square(self)))))


@composite(
    **_metadata(np.acos, 4, values=(-0.9, 0.9)), cast="float32_accelerated", alias=("arccos",)
)
def acos(self: Tensor) -> Tensor:
    """Elementwise inverse cosine, in ``[0, pi]``; NaN where a real element exceeds 1."""
    if self.dtype.is_complex:
        return sub(math.pi / 2, asin(self))
    x = floating(self)
    return atan2(exponential.sqrt(mul(sub(1, x), add(x, 1))), x)


@acos.vjp
def _(grad, self):
    return neg(mul(grad, adjoint(exponential.rsqrt(sub(1, square(self))))))


acos.edge("infinite at the ends", [1.0, 0.0, -1.0], gradient=[-float("inf"), -1.0, -float("inf")])


@primitive(
    out=broadcast,
    dtype=promote_float,
    reference=np.atan2,
    cast="widest",
    samples=tensor_pairs,
    takes="real",
    values=(0.2, 2.0),
    tolerance=ulp(3),
    inplace=True,
    alias=("arctan2",),
)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """Elementwise angle of the point (``other``, ``self``), in ``[-pi, pi]``.

    Shapes broadcast, integers become floating; signed zeros choose the quadrant as in C.
    """


atan2.edge(
    "0 at 0", [0.0, 0.0, 1.0], [0.0, -1.0, 0.0], gradient=([0.0, -1.0, 0.0], [0.0, 0.0, -1.0])
)


def _over_square(grad: Any, self: Any, other: Any) -> Any:
    """``grad`` over the squared length; at the origin, where the angle is undefined, 0."""
    inverse = reciprocal(add(square(self), square(other)))
    return mul(grad, comparison.where(comparison.isinf(inverse), 0, inverse))


atan2.vjp(
    self=lambda grad, self, other: mul(_over_square(grad, self, other), other),
    other=lambda grad, self, other: neg(mul(_over_square(grad, self, other), self)),
)


# ---- hyperbolic functions ---------------------------------------------------------------------


@primitive(**_metadata(np.tanh, 2), namespace=("", "nn.functional"))
def tanh(self: Tensor) -> Tensor:
    """Elementwise hyperbolic tangent."""


@tanh.vjp
def _(grad, out):
    return tanh_backward(grad, out)


@composite(
    out=broadcast, dtype=promote, samples=tensor_pairs, dtypes="float", namespace=(), method=False
)
def tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Gradient of :func:`tanh` from its output: ``grad * (1 - output**2)``."""
    grad, out = common(promote, grad, output)
    return mul(grad, adjoint(sub(1, mul(out, out))))


def _signed(size: Any, x: Any) -> Any:
    """``size`` with the sign of ``x``, which is 0 where ``size`` is: with its sign then, too."""
    return comparison.where(comparison.eq(x, 0), x, mul(size, magnitude.sign(x)))


# ``expm1`` of 6 units; near 0 the two parts share its error, and three roundings follow.
@composite(**_metadata(np.sinh, 8), cast="float32_accelerated")
def sinh(self: Tensor) -> Tensor:
    """Elementwise hyperbolic sine, ``(exp(x) - exp(-x)) / 2``, accurate near 0."""
    x = floating(self)
    size = x if x.dtype.is_complex else magnitude.abs(x)
    grown = exponential.expm1(size)
    # (e + e / (e + 1)) / 2 with e = exp(x) - 1; e / (e + 1) is 1 once e is infinite.
    decayed = comparison.where(comparison.eq(grown, float("inf")), 1, div(grown, add(grown, 1)))
    out = mul(add(grown, decayed), 0.5)
    return out if x.dtype.is_complex else _signed(out, x)


@sinh.vjp
def _(grad, self):
    return mul(grad, adjoint(cosh(self)))


@composite(**_metadata(np.cosh, 4), cast="float32_accelerated")
def cosh(self: Tensor) -> Tensor:
    """Elementwise hyperbolic cosine, ``(exp(x) + exp(-x)) / 2``."""
    x = floating(self)
    if x.dtype.is_complex:  # the sum would cancel where the cosine of the imaginary part is small
        a, b = lazy.real(x), lazy.imag(x)
        turned = comparison.where(comparison.eq(b, 0), mul(b, magnitude.sign(a)), sin(b))
        height = comparison.where(comparison.eq(b, 0), 1, sinh(a))
        return lazy.complex(mul(cosh(a), cos(b)), mul(height, turned))
    return mul(add(exponential.exp(x), exponential.exp(neg(x))), 0.5)


@cosh.vjp
def _(grad, self):
    return mul(grad, adjoint(sinh(self)))


@composite(**_metadata(np.asinh, 4), alias=("arcsinh",))
def asinh(self: Tensor) -> Tensor:
    """Elementwise inverse hyperbolic sine, ``log(x + sqrt(x**2 + 1))``, accurate near 0."""
    x = floating(self)
    if x.dtype.is_complex:  # -i asin(iz)
        x, y = lazy.real(self), lazy.imag(self)
        less, more = lazy.complex(add(y, 1), neg(x)), lazy.complex(sub(1, y), x)
        angle, growth = _arcsine(less, more, neg(y))
        return lazy.complex(growth, neg(angle))
    size = magnitude.abs(x)
    # sqrt(x**2 + 1) - 1 == x**2 / (1 + sqrt(x**2 + 1)); past 2**12 x**2 + 1 is x**2 in float32,
    # and the squares of large numbers overflow: there it is log(2x).
    large = comparison.gt(size, 1e4)
    safe = comparison.where(large, 1, size)
    squared = square(safe)
    root = exponential.sqrt(add(squared, 1))
    near = exponential.log1p(add(safe, div(squared, add(root, 1))))
    far = add(exponential.log(size), math.log(2))
    return _signed(comparison.where(large, far, near), x)


@asinh.vjp
def _(grad, self):
    return mul(grad, adjoint(exponential.rsqrt(add(square(self), 1))))


@composite(**_metadata(np.acosh, 4, values=(1.1, 4.0)), alias=("arccosh",))
def acosh(self: Tensor) -> Tensor:
    """Elementwise inverse hyperbolic cosine, ``log(x + sqrt(x**2 - 1))``; NaN below 1."""
    x = floating(self)
    root = mul(exponential.sqrt(sub(x, 1)), exponential.sqrt(add(x, 1)))
    return exponential.log(add(x, root))


@acosh.vjp
def _(grad, self):
    return mul(grad, adjoint(exponential.rsqrt(sub(square(self), 1))))


acosh.edge("infinite at the end", [1.0, 2.0], gradient=[float("inf"), 0.5773502691896258])


@composite(**_metadata(np.atanh, 4, values=(-0.9, 0.9)), alias=("arctanh",))
def atanh(self: Tensor) -> Tensor:
    """Elementwise inverse hyperbolic tangent; NaN where a real element exceeds 1."""
    x = floating(self)
    if x.dtype.is_complex:  # log(|1 + z| / |1 - z|) + i (arg(1 + z) - arg(1 - z)), over 2
        x, y = lazy.real(self), lazy.imag(self)
        size = magnitude.abs(x)  # of a negative one the logarithm would lose digits near -1
        growth = exponential.log1p(div(mul(size, 4), add(square(sub(1, size)), square(y))))
        growth = mul(growth, magnitude.sign(x))
        turn = atan2(mul(y, 2), sub(mul(sub(1, x), add(x, 1)), square(y)))
        return lazy.complex(mul(growth, 0.25), mul(turn, 0.5))
    return mul(sub(exponential.log1p(x), exponential.log1p(neg(x))), 0.5)


@atanh.vjp
def _(grad, self):
    return div(grad, adjoint(sub(1, square(self))))


atanh.edge("infinite at the end", [1.0, 0.0], gradient=[float("inf"), 1.0])


# ---- degrees, sinc ----------------------------------------------------------------------------


@composite(**_metadata(np.deg2rad, 2, dtypes="real", takes="real"))
def deg2rad(self: Tensor) -> Tensor:
    """Degrees to radians."""
    return mul(self, math.pi / 180)


@composite(**_metadata(np.rad2deg, 2, dtypes="real", takes="real"))
def rad2deg(self: Tensor) -> Tensor:
    """Radians to degrees."""
    return mul(self, 180 / math.pi)


def _sinc_reference(self: Any) -> Any:
    x = np.asarray(self)
    if x.dtype.kind == "c":
        return np.sinc(x)
    whole = np.rint(x)
    sine = np.sin(np.pi * (x - whole)) * (1 - 2 * (whole % 2))
    return np.where(x == 0, 1, sine / (np.pi * np.where(x == 0, 1, x)))


@composite(**_metadata(_sinc_reference, 4, tolerance=conditioned), namespace=("", "special"))
def sinc(self: Tensor) -> Tensor:
    """Normalized sinc, ``sin(pi x) / (pi x)``, 1 at 0 and exactly 0 at the other integers."""
    x = floating(self)
    zero = comparison.eq(x, 0)
    safe = comparison.where(zero, 1, x)
    return comparison.where(zero, 1, div(sin_pi(safe), mul(safe, math.pi)))


def sin_pi(x: Any) -> Any:
    """``sin(pi * x)``; real ``x`` is reduced exactly, so that integers give 0."""
    if x.dtype.is_complex:
        return sin(mul(x, math.pi))
    whole = lazy.round(x)
    parity = sub(1, mul(lazy.remainder(whole, 2), 2))
    return mul(sin(mul(sub(x, whole), math.pi)), parity)


#: coefficients of y, y^3, ... in the derivative of sin(y) / y: (-1)^k 2k / (2k + 1)!
_SINC_SLOPE = tuple((-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(1, 9))


@sinc.vjp
def _(grad, self):
    y = mul(self, math.pi)
    # d/dy (sin(y) / y) = (cos(y) - sin(y) / y) / y, which cancels near 0: there the power series.
    near = comparison.lt(abs(y), 0.5)
    far = comparison.where(near, 1, y)
    slope = div(sub(cos(far), div(sin(far), far)), far)
    square = mul(y, y)
    series = 0.0
    for coefficient in reversed(_SINC_SLOPE):
        series = add(mul(square, series), coefficient)
    slope = comparison.where(near, mul(series, y), slope)
    return mul(grad, adjoint(mul(slope, math.pi)))
