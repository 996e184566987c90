"""Elementwise functions of the array API standard."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.array_api.promotion import call, operands
from coredispatch.frontend.tensor import Tensor

#: name in the standard -> operator
_UNARY = {
    name: name
    for name in (
        "abs acos acosh asin asinh atan atanh cos cosh exp expm1 isfinite isinf isnan log log1p "
        "log2 log10 logical_not negative positive reciprocal sign signbit sin sinh sqrt square tan "
        "tanh"
    ).split()
} | {"bitwise_invert": "bitwise_not", "negative": "neg"}
#: these give integers back as they are
_ROUNDING = ("ceil", "floor", "round", "trunc")
_BINARY = {
    name: name
    for name in (
        "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
        "copysign equal floor_divide greater greater_equal hypot less less_equal logaddexp "
        "logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow "
        "remainder subtract"
    ).split()
} | {"divide": "div", "equal": "eq", "not_equal": "ne", "multiply": "mul", "subtract": "sub"}
_BINARY |= {"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le"}

__all__ = ["clip", "conj", "imag", "real", *_UNARY, *_ROUNDING, *_BINARY]


def _unary(name: str, op: str) -> Any:
    def function(x: Tensor, /) -> Tensor:
        found: Tensor = call(op, x)
        return found

    return _named(function, name, op)


def _rounding(name: str) -> Any:
    def function(x: Tensor, /) -> Tensor:
        found: Tensor = call(name, x)
        return found

    return _named(function, name, name)


def _binary(name: str, op: str) -> Any:
    def function(x1: Any, x2: Any, /) -> Tensor:
        found: Tensor = call(op, *operands(x1, x2))
        return found

    return _named(function, name, op)


def _named(function: Any, name: str, op: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of the array API standard, by the operator :func:`{op}`."
    return function


globals().update({name: _unary(name, op) for name, op in _UNARY.items()})
globals().update({name: _rounding(name) for name in _ROUNDING})
globals().update({name: _binary(name, op) for name, op in _BINARY.items()})


def sqrt(x: Tensor, /) -> Tensor:
    """Square root."""
    return call("sqrt", x)  # type: ignore[no-any-return]


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; of complex numbers the one of modulus 1 in their direction."""
    if not x.dtype.is_complex:
        return call("sign", x)  # type: ignore[no-any-return]
    return call("where", x == 0, call("zeros_like", x), call("sgn", x))  # type: ignore[no-any-return]


def expm1(x: Tensor, /) -> Tensor:
    """``exp(x) - 1``, accurate near 0; infinite complex numbers follow the rules of exp."""
    if not x.dtype.is_complex:
        return call("expm1", x)  # type: ignore[no-any-return]
    usual = call("isfinite", x) & (x != 0)
    return call("where", usual, call("expm1", x), call("exp", x) - 1)  # type: ignore[no-any-return]


def tanh(x: Tensor, /) -> Tensor:
    """Hyperbolic tangent; of complex numbers with an infinite real part 1 or -1 with +0j."""
    out: Tensor = call("tanh", x)
    if not x.dtype.is_complex:
        return out
    real = call("real", x)
    end = call("sign", real)
    return call("where", call("isinf", real), call("complex", end, end * 0 + 0.0), out)  # type: ignore[no-any-return]


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The greatest integer not above the quotient; with infinity by the rules of division."""
    x1, x2 = operands(x1, x2)
    out: Tensor = call("floor_divide", x1, x2)
    if not x1.dtype.is_floating_point:
        return out
    ends = call("isinf", x1) | call("isinf", x2)
    return call("where", ends, call("floor", x1 / x2), out)  # type: ignore[no-any-return]


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Elements of ``x`` between the bounds, in the dtype of ``x``; shapes broadcast."""
    out = x
    for bound, op in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            if not isinstance(bound, Tensor):
                bound = call("full", (), bound, dtype=x.dtype, device=x.device)
            out = call(op, out, bound.to(x.dtype))
    return out.clone() if out is x else out


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate."""
    return call("conj_physical", x)  # type: ignore[no-any-return]


def real(x: Tensor, /) -> Tensor:
    """The real part."""
    return call("real", x)  # type: ignore[no-any-return]


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part; zeros of a real array."""
    if not x.dtype.is_complex:
        return call("zeros_like", x)  # type: ignore[no-any-return]
    return call("imag", x)  # type: ignore[no-any-return]
