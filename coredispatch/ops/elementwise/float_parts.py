"""The mantissa and the exponent of floating-point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, exponential, magnitude, rounding
from coredispatch.ops.elementwise.arithmetic import add, mul
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import exact, same_shape
from coredispatch.ops.support.samples import unary
from coredispatch.registry import DType, composite
from coredispatch.registry.model.dtypes import float64, int32
from coredispatch.registry.model.errors import OpError
from coredispatch.registry.model.value import dtype_of


def _two(self: Any) -> tuple[DType, DType]:
    dtype = DType.of(self.dtype)
    if not dtype.is_floating_point:
        raise OpError("torch.frexp() only supports floating-point dtypes", fix="use x.float()")
    return dtype, int32


def _power_of_two(exponent: Any) -> Any:
    """``2**exponent``, exactly, for exponents of normal numbers."""
    return exponential.exp2(exponent)


@composite(
    out=lambda self: [same_shape(self)] * 2,
    dtype=_two,
    reference=lambda self: tuple(np.frexp(self)),
    samples=unary,
    dtypes="float",
    tolerance=exact,
    fields=("mantissa", "exponent"),
)
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """``(mantissa, exponent)`` with ``self == mantissa * 2**exponent``, the mantissa in [0.5, 1) or
    0 and the exponent int32. Zero, infinity and NaN are their own mantissa, with the exponent 0.
    """
    dtype, _ = _two(self)
    x = lazy.to_dtype(self, widest(self))
    least, up = (-1000, 100) if dtype_of(x) is float64 else (-100, 60)
    usual = comparison.logical_and(comparison.isfinite(x), comparison.ne(x, 0))
    size = comparison.where(usual, magnitude.abs(x), 1.0)
    # Subnormal numbers are scaled up first: their powers of two are none.
    small = comparison.lt(size, 2.0**least)
    size = mul(size, comparison.where(small, 2.0**up, 1.0))
    exponent = add(rounding.floor(exponential.log2(size)), 1)
    # Halved twice, since 2**-exponent may overflow; then log2's rounding is put right.
    half = rounding.floor(mul(exponent, -0.5))
    mantissa = mul(mul(size, _power_of_two(half)), _power_of_two(add(exponent, half) * -1))
    above, below = comparison.ge(mantissa, 1.0), comparison.lt(mantissa, 0.5)
    mantissa = mul(mantissa, comparison.where(above, 0.5, comparison.where(below, 2.0, 1.0)))
    shift = comparison.where(above, 1.0, comparison.where(below, -1.0, 0.0))
    exponent = add(add(exponent, shift), comparison.where(small, -float(up), 0.0))
    signed = mul(mantissa, magnitude.sign(x))
    mantissa = comparison.where(usual, signed, x)
    exponent = comparison.where(usual, exponent, 0.0)
    return frexp.result_type((lazy.to_dtype(mantissa, dtype), lazy.to_dtype(exponent, int32)))


@frexp.vjp
def _(grad0, out1):
    return mul(grad0, exponential.exp2(lazy.to_dtype(-out1, dtype_of(grad0))))


@composite(
    reference=lambda input, *, decimals=0: np.round(input, decimals),
    samples=unary,
    dtypes="float",
    tolerance=exact,
    smooth=False,
    namespace="special",
    method=False,
)
def special_round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """:func:`round` under its name in ``special``."""
    return lazy.round(input, decimals=decimals) if decimals else lazy.round(input)
