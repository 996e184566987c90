"""What the standard does not define where an operator does: bool operands, complex from parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.registry.model.dtypes import DType, bool_

__all__ = ["complex_of", "of_bools"]

# Operators that mean something else for bool, where the standard has numbers only.
_FOR_BOOL = {
    "add": "logical_or",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
}
_AS_NUMBERS = ("lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "pow")
_OF_TRUTH = ("logical_and", "logical_or", "logical_xor", "logical_not")

Kernels = dict[str, Callable[..., Any]]


def of_bools(xp: Any, kernels: Kernels) -> Kernels:
    """``kernels`` that take bool operands where the functions of ``xp`` need not."""
    wrapped = dict(kernels)
    for op, function in kernels.items():
        if op in _FOR_BOOL:
            wrapped[op] = _for_bool(xp, function, getattr(xp, _FOR_BOOL[op]))
        elif op in _AS_NUMBERS:
            wrapped[op] = _as_numbers(xp, function)
        elif op in _OF_TRUTH:
            wrapped[op] = _of_truth(function)
        elif op == "signbit":
            wrapped[op] = _sign_of(xp, function)
    return wrapped


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (hasattr(x, "dtype") and DType.of(x.dtype) is bool_)


def _for_bool(xp: Any, function: Any, logical: Any) -> Callable[..., Any]:
    def kernel(a: Any, b: Any) -> Any:
        return logical(a, b) if _is_bool(a) and _is_bool(b) else function(a, b)

    return kernel


def _as_numbers(xp: Any, function: Any) -> Callable[..., Any]:
    def number(x: Any) -> Any:
        if not hasattr(x, "dtype"):
            return x
        return xp.astype(x, xp.uint8) if DType.of(x.dtype) is bool_ else x

    def kernel(*operands: Any) -> Any:
        return function(*map(number, operands))

    return kernel


def _of_truth(function: Any) -> Callable[..., Any]:
    def truth(x: Any) -> Any:
        return x if _is_bool(x) else x != 0

    def kernel(*operands: Any) -> Any:
        return function(*map(truth, operands))

    return kernel


def _sign_of(xp: Any, function: Any) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        dtype = DType.of(x.dtype)
        if dtype.is_floating_point:
            return function(x)
        return xp.zeros(x.shape, dtype=xp.bool) if dtype is bool_ else x < 0

    return kernel


def complex_of(xp: Any, real: Any, imag: Any) -> Any:
    """``real + imag * 1j`` in which an infinite or undefined part leaves the other alone."""
    if xp.has("complex"):  # PyTorch's sum multiplies by alpha, and an infinite part by 0
        return xp.complex(real, imag)
    dtype = xp.native(DType.of(real.dtype).to_complex())
    out = xp.astype(real, dtype) + 1j * xp.astype(
        xp.where(xp.isfinite(imag), imag, xp.zeros_like(imag)), dtype
    )
    for part, where in (
        (xp.inf, imag == xp.inf),
        (-xp.inf, imag == -xp.inf),
        (xp.nan, xp.isnan(imag)),
    ):
        out = xp.where(where, out + xp.asarray(complex(0, part), dtype=dtype), out)
    return out
