"""Rounding to whole numbers, and repair of NaN and infinity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison
from coredispatch.ops.elementwise.arithmetic import mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import of_bits
from coredispatch.ops.support.rules import (
    NUMBER,
    broadcast,
    exact,
    promote_float,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import tensor_pairs, unary, with_options
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import dtype_of

_REAL = {
    "out": same_shape,
    "dtype": same,
    "samples": unary,
    "dtypes": tuple(d for d in NUMBER if not d.is_complex),
    "tolerance": exact,
    "smooth": False,
    "inplace": True,
}


@primitive(takes="real", reference=np.floor, **_REAL)
def floor(self: Tensor) -> Tensor:
    """The largest whole number not above each element; integers as they are. Gradient 0."""


@composite(takes="real", reference=np.ceil, **_REAL)
def ceil(self: Tensor) -> Tensor:
    """The smallest whole number not below each element; integers as they are. Gradient 0."""
    return neg(floor(neg(self))) if dtype_of(self).is_floating_point else lazy.clone(self)


@composite(takes="real", reference=np.trunc, alias=("fix",), **_REAL)
def trunc(self: Tensor) -> Tensor:
    """Each element with its fraction cut off; integers as they are. Gradient 0."""
    if not dtype_of(self).is_floating_point:
        return lazy.clone(self)
    return comparison.where(comparison.lt(self, 0), ceil(self), floor(self))


@primitive(reference=np.rint, **_REAL)
def round(self: Tensor) -> Tensor:
    """The nearest whole number, halves to even; integers as they are. Gradient 0.

    With the keyword ``decimals=n`` rounds to ``n`` places after the point (before it when
    negative).
    """


@round.overload
def _(self: Tensor, *, decimals: int) -> Tensor:
    if decimals == 0:
        return round(self)
    if not dtype_of(self).is_floating_point:
        raise DTypeError(
            f"integers of {dtype_of(self)} are not rounded to decimals={decimals}",
            fix="use x.double().round(decimals=...)",
        )
    if decimals > 0:
        return div(round(mul(self, 10.0**decimals)), 10.0**decimals)
    return mul(round(div(self, 10.0**-decimals)), 10.0**-decimals)


for _op in (floor, ceil, trunc, round):

    @_op.vjp
    def _(grad):
        return lazy.zeros_like(grad)


@composite(
    out=same_shape,
    dtype=same,
    samples=unary,
    takes="float",
    tolerance=ulp(1),
    smooth=False,
    inplace=True,
)
def frac(self: Tensor) -> Tensor:
    """The fraction of each element, with its sign: ``self - trunc(self)``."""
    return sub(self, trunc(self))


@frac.vjp
def _(grad):
    return grad


_LARGEST = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
    "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023,
}


@of_bits
def _nan_to_num_reference(
    self: Any, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if self.dtype.kind not in "fV":
        return self.copy()
    most = _LARGEST[self.dtype.name]
    found = np.where(np.isnan(self), self.dtype.type(nan or 0.0), self)
    found = np.where(self == np.inf, self.dtype.type(most if posinf is None else posinf), found)
    return np.where(self == -np.inf, self.dtype.type(-most if neginf is None else neginf), found)


@composite(
    out=same_shape,
    dtype=same,
    reference=_nan_to_num_reference,
    samples=with_options(
        {"nan": 1.0, "posinf": 2.0, "neginf": -2.0}, {"nan": 0.5, "posinf": 3.0, "neginf": 0.0}, {}
    ),
    dtypes="real",
    tolerance=exact,
    smooth=False,
    inplace=True,
)
def nan_to_num(
    self: Tensor,
    nan: float | None = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Replace NaN and the infinities.

    Args:
        self: any real tensor; integers are returned unchanged.
        nan: what NaN becomes, 0 for None.
        posinf, neginf: what the infinities become; None is the dtype's largest and smallest
            finite value.
    """
    dtype = dtype_of(self)
    if not dtype.is_floating_point:
        return lazy.clone(self)
    most = _LARGEST.get(dtype.name, math.inf)
    high, low = [
        default if n is None else math.copysign(math.inf, n) if abs(n) > most else n
        for n, default in ((posinf, most), (neginf, -most))
    ]
    nan = nan or 0.0
    if abs(nan) > most:
        nan = math.copysign(math.inf, nan)
    out = comparison.where(comparison.isnan(self), nan, self)
    out = comparison.where(comparison.eq(self, float("inf")), high, out)
    return comparison.where(comparison.eq(self, float("-inf")), low, out)


@nan_to_num.vjp
def _(grad, self):
    return comparison.where(comparison.isfinite(self), grad, 0)


nan_to_num.edge(
    "0 where numbers are replaced", [float("nan"), float("inf"), 1.0], gradient=[0.0, 0.0, 1.0]
)


@of_bits
def _nextafter_reference(self: Any, other: Any) -> Any:
    # Of two zeros the second, which NumPy's of half precision is not.
    return np.where(np.equal(self, other), other, np.nextafter(self, other))


@primitive(
    out=broadcast,
    dtype=promote_float,
    samples=tensor_pairs,
    reference=_nextafter_reference,
    takes="float",
    differentiable=None,
    tolerance=exact,
    inplace=True,
)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The next representable value after ``self`` in the direction of ``other``.

    Has no derivative: an argument that requires grad is refused.
    """
