"""Powers, roots, exponentials and logarithms."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, magnitude
from coredispatch.ops.elementwise.approximation import in_float64
from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.elementwise.complex_numbers import real
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common, floating
from coredispatch.ops.support.rules import (
    NUMBER,
    broadcast,
    conditioned,
    promote,
    promote_float,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import powers, tensor_pairs, unary
from coredispatch.registry import Value, composite, primitive
from coredispatch.registry.model.dtypes import DType, complex128, float64
from coredispatch.registry.model.errors import NumberRangeError
from coredispatch.registry.model.value import dtype_of

_INF = float("inf")


def float_metadata(reference: Any, ulps: float, **more: Any) -> dict[str, Any]:
    """What the unary ops of this file share."""
    metadata = {
        "out": same_shape,
        "dtype": promote_float,
        "reference": reference,
        "samples": unary,
        "dtypes": "all",
        "tolerance": ulp(ulps),
        "cast": "float32_accelerated",
        "inplace": True,
    }
    return metadata | more


# ---- powers and roots -------------------------------------------------------------------------


def _power_shape(self: Any, exponent: Any) -> tuple[int, ...]:
    if isinstance(exponent, int) and exponent < 0 and promote.compute(self, exponent).category < 2:
        raise NumberRangeError(
            f"Integers to negative integer powers are not allowed, got exponent={exponent}",
            fix=f"use a floating base, x.double() ** {exponent}, or exponent={float(exponent)}",
        )
    return broadcast(self, exponent)


@primitive(
    out=_power_shape,
    dtype=promote,
    reference=np.power,
    cast="float32_accelerated",
    samples=powers,
    dtypes=NUMBER,
    tolerance=ulp(4),
    inplace=True,
    fits=("exponent",),
)
def pow(self: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor:
    """Elementwise ``self ** exponent``.

    Shapes broadcast, dtypes promote; integers to an integer power stay integers and wrap, and a
    negative integer power of an integer tensor raises ``ValueError``.
    """


pow.edge("infinite at 0", [0.0, 1.0], -1, gradient=[-float("inf"), -1.0])
pow.edge("infinite at 0", [0.0, 4.0], 0.5, gradient=[float("inf"), 0.25])
pow.edge(
    "0 of exponent 0 and of base 0",
    [0.0, 0.0, 0.0],
    [0.0, 2.0, 0.5],
    gradient=([0.0, 0.0, float("inf")], [0.0, 0.0, 0.0]),
)


pow.vjp(
    self=lambda grad, self, exponent: _pow_base_grad(grad, self, exponent),
    exponent=lambda grad, out, self, exponent: _pow_exponent_grad(grad, out, self, exponent),
)

pow.edge("of base 0", [0.0, 2.0], 2, gradient=[0.0, 4.0])
pow.edge("0 of exponent 0", [0.0, 2.0], 0, gradient=[0.0, 0.0])


def _pow_base_grad(grad: Any, base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, Value):
        if exponent == 0:
            return lazy.zeros_like(grad)
        if exponent == 1:
            return grad
        slope = base if exponent == 2 else pow(base, exponent - 1)
        return mul(grad, adjoint(mul(slope, exponent)))
    product = mul(grad, adjoint(mul(pow(base, sub(exponent, 1)), exponent)))
    # x**0 is constant, but 0 * x**-1 is NaN where x**-1 is none or overflows, or what came in is
    # none. Elsewhere the formula stays, for its derivative by the exponent.
    flat = comparison.logical_and(comparison.eq(exponent, 0), comparison.ne(product, product))
    return comparison.where(flat, 0, product)


def _pow_exponent_grad(grad: Any, out: Any, base: Any, exponent: Any) -> Any:
    if isinstance(base, Value):
        slope = mul(grad, adjoint(mul(out, log(base))))
        # 0**y is constant for y >= 0, where log(0) would give NaN.
        flat = comparison.eq(base, 0)
        if isinstance(exponent, Value):
            flat = comparison.logical_and(flat, comparison.ge(real(exponent), 0))
        elif exponent.real < 0:
            return slope
        return comparison.where(flat, 0, slope)
    if base == 0:
        return comparison.where(comparison.ge(real(exponent), 0), 0, mul(grad, -_INF))
    if isinstance(base, complex):
        return mul(grad, adjoint(mul(out, cmath.log(base))))
    return mul(grad, adjoint(mul(out, math.log(base) if base > 0 else math.nan)))


def _double(self: Any, exponent: Any) -> DType:
    """float64, complex128 where an argument is complex."""
    return complex128 if promote.compute(self, exponent).is_complex else float64


def _widest(self: Any, exponent: Any) -> Any:
    return complex128 if promote.compute(self, exponent).is_complex else float64


@composite(
    out=broadcast, dtype=_widest, samples=powers, tolerance=ulp(4), unbroadcast=True, inplace=True
)
def float_power(self: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor:
    """``self ** exponent`` computed in float64 (complex128 for complex inputs)."""
    base, exponent = common(promote, self, exponent)
    wide = _widest(base, exponent)

    def widen(x: Any) -> Any:
        return lazy.to_dtype(x, wide) if isinstance(x, Value) else x

    return pow(widen(base), widen(exponent))


float_power.edge("of base 0", [0.0, 2.0], 2, gradient=[0.0, 4.0])


@composite(
    out=broadcast,
    dtype=promote_float,
    reference=lambda self, other: self * 2.0**other,
    samples=tensor_pairs,
    dtypes="float",
    tolerance=ulp(2),
    inplace=True,
)
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """``self * 2**other``; shapes broadcast, integers become floating."""
    x, exponent = common(promote_float, self, other)
    if dtype_of(x).is_complex:
        return mul(x, pow(2.0, exponent))
    # The power alone may overflow.
    return in_float64(lambda x, exponent: mul(x, pow(2.0, exponent)), x, exponent)


ldexp.vjp(
    self=lambda grad, other: ldexp(grad, adjoint(other)),
    other=lambda grad, out: mul(mul(grad, adjoint(out)), math.log(2)),
)


@primitive(**float_metadata(np.sqrt, 1, values=(0.1, 4.0), cast=None))
def sqrt(self: Tensor) -> Tensor:
    """Elementwise square root; NaN where a real element is negative."""


@sqrt.vjp
def _(grad, out):
    return div(grad, adjoint(mul(out, 2)))


sqrt.edge("infinite at 0", [0.0, 4.0], gradient=[float("inf"), 0.25])


@composite(**float_metadata(lambda self: 1 / np.sqrt(self), 2, values=(0.1, 4.0)))
def rsqrt(self: Tensor) -> Tensor:
    """Elementwise ``1 / sqrt(self)``; infinity at 0, NaN below."""
    return div(1, sqrt(self))


@rsqrt.vjp
def _(grad, out):
    return mul(grad, adjoint(mul(mul(mul(out, out), out), -0.5)))


rsqrt.edge("infinite at 0", [0.0, 4.0], gradient=[-float("inf"), -0.0625])


# ---- exponentials -----------------------------------------------------------------------------


@primitive(**float_metadata(np.exp, 3))
def exp(self: Tensor) -> Tensor:
    """Elementwise ``e ** self``."""


@exp.vjp
def _(grad, out):
    return mul(grad, adjoint(out))


@composite(**float_metadata(np.exp2, 4, cast=None), namespace=("", "special"))
def exp2(self: Tensor) -> Tensor:
    """Elementwise ``2 ** self``."""
    return pow(2.0, self)


@exp2.vjp
def _(grad, out):
    return mul(grad, adjoint(mul(out, math.log(2))))


# The error of the exponential cancels; what is left are a logarithm of 4 units, a quotient and a
# product.
@composite(**float_metadata(np.expm1, 6), namespace=("", "special"))
def expm1(self: Tensor) -> Tensor:
    """Elementwise ``exp(self) - 1``, accurate near 0.

    W. Kahan's correction: with ``u = exp(x)`` rounded, ``(u - 1) * x / log(u)``.
    """
    if dtype_of(self).is_complex:
        return _complex_expm1(self)
    u = exp(self)
    less = sub(u, 1)
    plain = comparison.logical_or(comparison.eq(less, -1), comparison.eq(u, _INF))
    logarithm = log(u)
    safe = comparison.where(comparison.eq(logarithm, 0), 1, logarithm)
    corrected = mul(less, div(self, safe))
    out = comparison.where(plain, less, corrected)
    return comparison.where(comparison.eq(u, 1), self, out)


def _complex_expm1(z: Any) -> Any:
    """By parts: a correction by quotients of complex numbers would lose infinities."""
    x, y = real(z), lazy.imag(z)
    half = lazy.sin(mul(y, 0.5))
    less = sub(mul(expm1(x), lazy.cos(y)), mul(mul(half, half), 2))
    return lazy.complex(less, mul(exp(x), lazy.sin(y)))


@expm1.vjp
def _(grad, out):
    return mul(grad, adjoint(add(out, 1)))


# ---- logarithms -------------------------------------------------------------------------------


# NumPy promises 3.83 units for its float32 logarithm.
@primitive(**float_metadata(np.log, 4, values=(0.1, 4.0)))
def log(self: Tensor) -> Tensor:
    """Elementwise natural logarithm; -infinity at 0, NaN where a real element is negative."""


@log.vjp
def _(grad, self):
    return div(grad, adjoint(self))


log.edge("infinite at 0", [0.0, 2.0], gradient=[float("inf"), 0.5])


# A logarithm of 2 units, a constant and a quotient; over 0.69 a unit may count twice as much.
@composite(**float_metadata(np.log2, 4, values=(0.1, 4.0)))
def log2(self: Tensor) -> Tensor:
    """Elementwise logarithm to base 2."""
    return div(log(self), math.log(2))


@log2.vjp
def _(grad, self):
    return div(grad, adjoint(mul(self, math.log(2))))


@composite(**float_metadata(np.log10, 5, values=(0.1, 4.0)))
def log10(self: Tensor) -> Tensor:
    """Elementwise logarithm to base 10."""
    return div(log(self), math.log(10))


@log10.vjp
def _(grad, self):
    return div(grad, adjoint(mul(self, math.log(10))))


@composite(
    **float_metadata(np.log1p, 4, values=(-0.5, 4.0), dtypes="real"), namespace=("", "special")
)
def log1p(self: Tensor) -> Tensor:
    """Elementwise ``log(1 + self)``, accurate near 0.

    W. Kahan's correction: with ``u = 1 + x`` rounded, ``log(u) * x / (u - 1)``.
    """
    x = floating(self)
    if dtype_of(x).is_complex:
        return _complex_log1p(x)
    u = add(x, 1)
    less = sub(u, 1)
    tiny = comparison.eq(less, 0)
    corrected = mul(log(u), div(x, comparison.where(tiny, 1, less)))
    out = comparison.where(comparison.eq(u, _INF), u, corrected)
    return comparison.where(tiny, x, out)


def _complex_log1p(z: Any) -> Any:
    """By parts: near 0 the squared modulus less 1 is ``x * (x + 2) + y * y``, summed as that."""
    x, y = real(z), lazy.imag(z)
    u = add(x, 1)
    small = comparison.lt(add(lazy.abs(x), lazy.abs(y)), 0.5)
    excess = comparison.where(small, add(mul(x, add(x, 2)), mul(y, y)), 0)
    modulus = comparison.where(small, mul(log1p(excess), 0.5), log(magnitude.hypot(u, y)))
    return lazy.complex(modulus, lazy.atan2(y, u))


@log1p.vjp
def _(grad, self):
    return div(grad, adjoint(add(self, 1)))


@composite(
    takes="float+complex",
    out=broadcast,
    dtype=promote_float,
    reference=np.logaddexp,
    samples=tensor_pairs,
    dtypes="float",
    tolerance=conditioned,
)
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """``log(exp(self) + exp(other))`` without overflow."""
    if promote_float.compute(self, other).is_complex:
        return _complex_logaddexp(*common(promote_float, self, other))
    high, low = magnitude.maximum(self, other), magnitude.minimum(self, other)
    distance = sub(low, high)
    out = add(high, log1p(exp(distance)))
    # Both infinite with one sign: the difference is NaN, the result that infinity.
    return comparison.where(comparison.eq(high, low), add(high, math.log(2)), out)


def _complex_logaddexp(x: Any, y: Any) -> Any:
    # As in PyTorch, the phase is that of the operand with the larger real part and goes on from it.
    larger = comparison.ge(real(x), real(y))
    high, low = comparison.where(larger, x, y), comparison.where(larger, y, x)
    out = add(high, log1p(exp(sub(low, high))))
    return comparison.where(comparison.eq(high, low), add(high, math.log(2)), out)


# The result is computed again, so that it may be written in place, as in PyTorch.
logaddexp.vjp(
    self=lambda grad, self, other: mul(grad, adjoint(_share(self, logaddexp(self, other)))),
    other=lambda grad, self, other: mul(grad, adjoint(_share(other, logaddexp(self, other)))),
)


def _share(x: Any, total: Any) -> Any:
    """``exp(x - total)``, and 1 where both are the same infinity."""
    same_infinity = comparison.logical_and(comparison.isinf(x), comparison.eq(x, total))
    return exp(comparison.where(same_infinity, 0, sub(x, total)))


@composite(
    out=broadcast,
    dtype=promote_float,
    reference=np.logaddexp2,
    samples=tensor_pairs,
    takes="float",
    tolerance=conditioned,
)
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """``log2(2**self + 2**other)`` without overflow."""
    x, y = common(promote_float, self, other)
    unit = math.log(2)
    return div(logaddexp(mul(x, unit), mul(y, unit)), unit)


def _share2(part: Any, self: Any, other: Any) -> Any:
    return _share(mul(part, math.log(2)), mul(logaddexp2(self, other), math.log(2)))


logaddexp2.vjp(
    self=lambda grad, self, other: mul(grad, _share2(self, self, other)),
    other=lambda grad, self, other: mul(grad, _share2(other, self, other)),
)
