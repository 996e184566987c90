"""Elementwise kernels over an array-API namespace.

Names are those of the standard (2024.12), with NumPy's older spelling where a namespace lacks
one. A Python number may stand in for either operand of a binary kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.elementwise.standard import complex_of, of_bools
from coredispatch.backends.array_api.namespace import Namespace, is_half
from coredispatch.registry.model.dtypes import DType, result_type

__all__ = ["kernels"]

# op name -> names the namespace may have it under
_DIRECT: dict[str, tuple[str, ...]] = {
    "add": ("add",),
    "sub": ("subtract",),
    "mul": ("multiply",),
    "neg": ("negative",),
    "div": ("divide", "true_divide"),
    "pow": ("pow", "power"),
    "sqrt": ("sqrt",),
    "exp": ("exp",),
    "expm1": ("expm1",),
    "log": ("log",),
    "log1p": ("log1p",),
    "log2": ("log2",),
    "log10": ("log10",),
    "sin": ("sin",),
    "cos": ("cos",),
    "tan": ("tan",),
    "asin": ("asin", "arcsin"),
    "acos": ("acos", "arccos"),
    "atan": ("atan", "arctan"),
    "atan2": ("atan2", "arctan2"),
    "sinh": ("sinh",),
    "cosh": ("cosh",),
    "tanh": ("tanh",),
    "asinh": ("asinh", "arcsinh"),
    "acosh": ("acosh", "arccosh"),
    "atanh": ("atanh", "arctanh"),
    "maximum": ("maximum",),
    "minimum": ("minimum",),
    "hypot": ("hypot",),
    "copysign": ("copysign",),
    "logaddexp": ("logaddexp",),
    "nextafter": ("nextafter",),
    "eq": ("equal",),
    "ne": ("not_equal",),
    "lt": ("less",),
    "le": ("less_equal",),
    "gt": ("greater",),
    "ge": ("greater_equal",),
    "isnan": ("isnan",),
    "isinf": ("isinf",),
    "isfinite": ("isfinite",),
    "signbit": ("signbit",),
    "logical_and": ("logical_and",),
    "logical_or": ("logical_or",),
    "logical_xor": ("logical_xor",),
    "logical_not": ("logical_not",),
    "bitwise_and": ("bitwise_and",),
    "bitwise_or": ("bitwise_or",),
    "bitwise_xor": ("bitwise_xor",),
    "bitwise_not": ("bitwise_invert", "bitwise_not", "invert"),
    "bitwise_left_shift": ("bitwise_left_shift", "left_shift"),
    "bitwise_right_shift": ("bitwise_right_shift", "right_shift"),
}

# Defined on every dtype here, but for floating ones only in the standard.
_ROUNDING = {"floor": "floor", "round": "round"}


def is_integer(x: Any) -> bool:
    """Whether ``x`` (array or number) is bool or integer."""
    if not hasattr(x, "dtype"):
        return isinstance(x, int)
    return str(x.dtype).rpartition(".")[2].startswith(("int", "uint", "bool"))


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)
    found: dict[str, Callable[..., Any]] = {}
    for op, names in _DIRECT.items():
        function = next((getattr(xp, n) for n in names if xp.has(n)), None)
        if function is not None:
            found[op] = function
    for op, name in _ROUNDING.items():
        found[op] = _rounding(xp, getattr(xp, name))
    found["remainder"] = _remainder(xp, _checked(xp, xp.remainder))
    found["floor_divide"] = _in_single(
        xp, _floor_divide(xp, _checked(xp, xp.floor_divide), found["remainder"])
    )
    if "nextafter" in found:
        found["nextafter"] = _nextafter(xp, found["nextafter"])

    def absolute(x: Any) -> Any:
        return xp.copy(x) if not xp.strided and x.dtype == xp.bool else xp.abs(x)

    def where(condition: Any, a: Any, b: Any) -> Any:
        if str(condition.dtype).rpartition(".")[2] != "bool":
            condition = condition != 0
        if not hasattr(a, "dtype") and not hasattr(b, "dtype"):
            a = xp.asarray(a, dtype=xp.native(result_type(a, b)))
        return xp.where(condition, a, b)

    def square_root_inverse(x: Any) -> Any:
        return 1 / xp.sqrt(x)

    def pairs_in_place(x: Any) -> Any:
        strides = (*x.strides, x.dtype.itemsize // 2)
        return xp.lib.stride_tricks.as_strided(x.real, (*x.shape, 2), strides)

    def pairs(x: Any) -> Any:
        return xp.stack([xp.real(x), xp.imag(x)], axis=-1)

    def view_as_complex(x: Any) -> Any:
        if xp.strided:  # 1j times an infinite part would be NaN
            near = x if x.strides[-1] == x.dtype.itemsize else x.copy()  # adjacent in memory
            return near.view(xp.native(DType.of(x.dtype).to_complex()))[..., 0]
        return complex_of(xp, x[..., 0], x[..., 1])

    if not xp.strided:
        found = of_bools(xp, found)
    return found | {
        "abs": absolute,
        "where": where,
        "rsqrt": square_root_inverse,
        "view_as_real": pairs_in_place if xp.strided else pairs,
        "view_as_complex": view_as_complex,
    }


def _rounding(xp: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        return xp.copy(x) if is_integer(x) else function(x)

    return kernel


# By dtype: powers of two that a divisor is multiplied by, one after the other, where the quotient
# overflows. Between two of them, and beyond the first, a quotient is finite.
_SCALES = {"bfloat16": (240, 120), "float32": (240, 120), "float64": (2000, 1000)}


def _remainder(xp: Any, remainder: Callable[..., Any]) -> Callable[..., Any]:
    """``remainder`` whose zeros have the divisor's sign, and which knows every quotient.

    PyTorch keeps the sign of the dividend, and gives NaN where the quotient overflows.
    """
    if xp.strided or not (xp.has("copysign") and xp.has("signbit")):
        return remainder

    def kernel(a: Any, b: Any) -> Any:
        out = remainder(a, b)
        if is_integer(out):
            return out
        a, b = (x if hasattr(x, "dtype") else xp.asarray(x, dtype=out.dtype) for x in (a, b))
        scales = _SCALES.get(str(out.dtype).rpartition(".")[2], ())
        lost = xp.isnan(out) & xp.isfinite(a) & xp.isfinite(b) & (b != 0)
        if scales and bool(xp.any(lost)):
            out = xp.where(lost, of_far_quotient(a, b, scales), out)
        return xp.where(out == 0, xp.copysign(xp.zeros_like(out), b), out)

    def of_far_quotient(a: Any, b: Any, scales: tuple[int, ...]) -> Any:
        """Exact: a multiple of a power of two times the divisor is one of the divisor."""
        rest, divisor, step = xp.abs(a), xp.abs(b), scales[-1]
        for scale in scales:
            multiple = divisor
            for _ in range(scale // step):
                multiple = multiple * 2.0**step
            rest = xp.where(xp.isfinite(multiple), remainder(rest, multiple), rest)
        rest = remainder(rest, divisor)
        other = (xp.signbit(a) != xp.signbit(b)) & (rest != 0)
        return xp.copysign(xp.where(other, divisor - rest, rest), b)

    return kernel


def _floor_divide(
    xp: Any, divide: Callable[..., Any], remainder: Callable[..., Any]
) -> Callable[..., Any]:
    """``floor_divide`` of real numbers by way of the remainder, as Python and NumPy have it.

    The standard leaves open zeros, infinities and quotients that round to the next number.
    """
    if xp.strided or not (xp.has("copysign") and xp.has("signbit")):
        return divide

    def kernel(a: Any, b: Any) -> Any:
        native = next(x.dtype for x in (a, b) if hasattr(x, "dtype"))
        a, b = (x if hasattr(x, "dtype") else xp.asarray(x, dtype=native) for x in (a, b))
        if not DType.of(native).is_floating_point:
            return divide(a, b)
        plain = a / b
        out = (a - remainder(a, b)) / b
        low = xp.floor(out)
        out = xp.where(out - low > 0.5, low + 1, low)
        # The remainder of an infinite divisor may be as infinite.
        below = xp.astype((a != 0) & (xp.signbit(a) != xp.signbit(b)), native)
        out = xp.where(xp.isinf(b) & xp.isfinite(a), -below, out)
        out = xp.where(out == 0, xp.copysign(xp.zeros_like(out), plain), out)
        return xp.where(b == 0, plain, out)

    return kernel


def _in_single(xp: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Half precision by way of float32: PyTorch rounds the quotient before it takes the floor."""
    if xp.strided:
        return function

    def kernel(a: Any, b: Any) -> Any:
        half = next((x.dtype for x in (a, b) if is_half(getattr(x, "dtype", ""))), None)
        if half is None:
            return function(a, b)
        wide = (xp.astype(x, xp.float32) if hasattr(x, "dtype") else x for x in (a, b))
        return xp.astype(function(*wide), half)

    return kernel


def _nextafter(xp: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """``nextafter`` with zeros as the standard says: the second of two, else signed as the first.

    PyTorch's in half precision have other signs.
    """
    if xp.strided or not xp.has("copysign"):
        return function

    def kernel(a: Any, b: Any) -> Any:
        out = function(a, b)
        out = xp.where(out == 0, xp.copysign(xp.zeros_like(out), a), out)
        return xp.where(a == b, b, out)

    return kernel


def _checked(xp: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Integer division by zero is an error, which array libraries answer with zeros.

    A namespace whose arrays are on a device may have a ``refuse_zero_divisor(b)`` that looks there,
    and raises later.
    """
    later = xp.refuse_zero_divisor if xp.has("refuse_zero_divisor") else None

    def kernel(a: Any, b: Any) -> Any:
        if is_integer(a) and is_integer(b):
            if later is not None and hasattr(b, "dtype"):
                later(b)
                return function(a, b)
            zero = b == 0 if not hasattr(b, "dtype") else bool(xp.any(b == 0))
            if zero:
                raise ZeroDivisionError("integer division or modulo by zero")
        return function(a, b)

    return kernel
