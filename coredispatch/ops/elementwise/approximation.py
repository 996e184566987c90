"""What the approximations of special functions share.

Half precision and float32 are computed in float64 and rounded once, where the device has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.elementwise.arithmetic import add, mul, sub
from coredispatch.ops.support import lazy
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import promote_float, same_shape, ulp
from coredispatch.ops.support.samples import unary
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import dtype_of


def special_metadata(reference: Any, ulps: float, **more: Any) -> dict[str, Any]:
    """What the special functions share."""
    metadata = {
        "out": same_shape,
        "dtype": promote_float,
        "reference": reference,
        "samples": unary,
        "takes": "real",
        "tolerance": ulp(ulps),
        "inplace": True,
        "namespace": ("", "special"),
    }
    return metadata | more


def elementwise(function: Any) -> Any:
    """A function of one number as a reference over arrays."""

    def reference(self: Any) -> Any:
        flat = [function(float(v)) for v in np.asarray(self).ravel()]
        return np.array(flat, dtype=np.float64).reshape(np.shape(self))

    return reference


def in_float64(function: Any, *tensors: Any) -> Any:
    """``function`` of the tensors computed in float64 and rounded once to the result's dtype.

    On a device without float64 in float32 (:func:`widest`).

    Raises :class:`DTypeError` for complex numbers, whose imaginary part would be lost.
    """
    dtype = promote_float(*tensors)
    if dtype.is_complex:
        raise DTypeError(f"the function is not defined for {dtype}", fix="pass a real tensor")
    within = widest(tensors[0])
    wide = [lazy.to_dtype(x, within) if dtype_of(x) is not within else x for x in tensors]
    return function(*wide) if dtype is within else lazy.to_dtype(function(*wide), dtype)


def polynomial(x: Any, *coefficients: float) -> Any:
    """Horner's rule, constant term first."""
    *rest, highest = coefficients
    out: Any = highest
    for c in reversed(rest):
        out = add(mul(x, out), c)
    return out


def chebyshev(x: Any, *coefficients: float) -> Any:
    """A sum of Chebyshev polynomials of ``x`` in [-1, 1] by Clenshaw's recurrence."""
    constant, *rest = coefficients
    twice = mul(x, 2)
    here: Any = 0.0
    before: Any = 0.0
    for c in reversed(rest):
        here, before = add(sub(mul(twice, here), before), c), here
    return add(sub(mul(x, here), before), constant)
