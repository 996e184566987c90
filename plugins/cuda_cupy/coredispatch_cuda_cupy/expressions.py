"""How each pointwise operator is written in CUDA C++.

A template has ``{0}``, ``{1}`` for the operands, already of the type that the operator computes in,
and ``{T}`` for that type. Half precision is computed in float, and each result is rounded to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from coredispatch.plugin import beyond_half, dtypes, numpy_dtype

__all__ = ["COMPUTED", "TEMPLATES", "TYPES", "Written", "literal", "write"]

#: the types that kernels read, compute in and write, by the dtype's name
TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "long long",
    "int32": "int",
    "bool": "bool",
}
#: what those that are no types of the language are computed in
COMPUTED = {"Half": "float", "BFloat16": "float"}
_FLOATING = ("float", "double")
_CONVERTED = "to_dtype clone ones_like zeros_like full_like".split()
_NUMBERS = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "square": "{0} * {0}"}
_REAL = {
    **{name: f"{name}({{0}})" for name in "exp log sqrt tanh erf sigmoid silu gelu".split()},
    **{name: f"{name}({{0}}, {{1}})" for name in ("silu_backward", "gelu_backward")},
    "abs": "fabs({0})",
    "neg": "-{0}",
    "div": "{0} / {1}",
    "rsqrt": "{T}(1) / sqrt({0})",
    "reciprocal": "{T}(1) / {0}",
    "relu": "({0} < {T}(0) ? {T}(0) : {0})",
    "leaky_relu": "({0} > {T}(0) ? {0} : {0} * {1})",
    "threshold_backward": "({1} <= {2} ? {T}(0) : {0})",
    "sigmoid_backward": "{0} * ({1} * ({T}(1) - {1}))",
    "tanh_backward": "{0} * ({T}(1) - {1} * {1})",
    "maximum": "largest({0}, {1})",
    "minimum": "smallest({0}, {1})",
    "clamp_min": "largest({0}, {1})",
    "clamp_max": "smallest({0}, {1})",
    "lerp": (  # from the nearer end
        "(fabs({2}) < {T}(0.5) ? {0} + {2} * ({1} - {0}) : {1} - ({1} - {0}) * ({T}(1) - {2}))"
    ),
    "addcmul": "{0} + {3} * ({1} * {2})",
    "addcdiv": "{0} + {3} * ({1} / {2})",
    "pow": "pow({0}, {1})",
}
#: operators beside which a number that float16 does not hold counts as it is written
_WIDENING = ("add", "sub", "mul", "div")
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGICAL = {
    "logical_and": "({0} && {1})",
    "logical_or": "({0} || {1})",
    "logical_not": "(!{0})",
    "bitwise_and": "({0} && {1})",
    "bitwise_or": "({0} || {1})",
    "bitwise_not": "(!{0})",
}
#: the operators that :func:`write` knows, if it accepts the dtypes and options of the call
TEMPLATES = frozenset(
    [*_CONVERTED, *_NUMBERS, *_REAL, *_COMPARISONS, *_LOGICAL, "where", "masked_fill", "clamp"]
)


class Written(NamedTuple):
    """One call as text.

    Attributes:
        text: the template.
        type: what it computes in.
        operands: for each ``{n}`` of the template the argument, and the type to convert it to.
    """

    text: str
    type: str
    operands: list[tuple[Any, str]]


def literal(value: Any, kind: str) -> str:
    """A number of Python's as a constant of a type."""
    if kind not in _FLOATING or math.isfinite(value):
        return f"{kind}({float(value)!r})" if kind in _FLOATING else f"(({kind}){int(value)})"
    if math.isnan(value):
        return f"{kind}(__int_as_float(0x7fc00000))"
    return f"{kind}({'-' if value < 0 else ''}__int_as_float(0x7f800000))"


def write(
    name: str, args: list[Any], result: str, type_of: Callable[[Any], str | None]
) -> Written | None:
    """The call of operator ``name`` with complete arguments, None where no kernel computes it.

    Args:
        name: the operator's name.
        args: its arguments, in the order of the schema.
        result: the type of its result.
        type_of: gives the type of an argument that is a tensor, None for a number.
    """
    kinds = [kind for kind in map(type_of, args) if kind is not None]
    if name in _CONVERTED:
        return _converted(name, args, result, type_of)
    half = next((kind for kind in kinds if kind in COMPUTED), result)
    if half in COMPUTED and {*kinds} <= {half, "bool"}:  # numbers are rounded to it first
        args = [_rounded(name, arg, half) if type(arg) in (int, float) else arg for arg in args]
    elif result in COMPUTED:
        return None  # and so are other tensors
    result = COMPUTED.get(result, result)
    if name in _COMPARISONS:
        common = _common(args, type_of)
        text = f"({{0}} {_COMPARISONS[name]} {{1}})"
        return None if common is None else Written(text, "bool", [(a, common) for a in args])
    if name in _LOGICAL:
        alike = set(kinds) == {"bool"} and len(kinds) == len(args)
        return Written(_LOGICAL[name], "bool", [(a, "bool") for a in args]) if alike else None
    if name == "where":
        return Written("({0} ? {1} : {2})", result, [(args[0], "bool"), *_to(args[1:], result)])
    if name == "masked_fill":
        given = [*_to(args[:1], result), (args[1], "bool"), *_to(args[2:], result)]
        return Written("({1} ? {2} : {0})", result, given)
    if name in _NUMBERS:
        return Written(_NUMBERS[name], result, _to(args, result)) if result != "bool" else None
    if result not in _FLOATING or name not in TEMPLATES:
        return None
    if name == "clamp":
        return _clamped(args, result)
    text = _REAL[name]
    if name in ("gelu", "gelu_backward"):
        text = text if args.pop() == "none" else text.replace("(", "_tanh(", 1)
    if name == "pow":
        whole = args[1] if type(args[1]) in (int, float) else 0
        text = {1: "{0}", 2: "{0} * {0}", 3: "{0} * {0} * {0}"}.get(whole, text)
    return Written(text, result, _to(args, result))


def _rounded(name: str, number: float, kind: str) -> float:
    """The nearest number of a type of 16 bits, or the number where it counts as it is."""
    if kind == "Half" and name in _WIDENING and beyond_half(number):
        return number
    dtype = numpy_dtype(dtypes.float16 if kind == "Half" else dtypes.bfloat16)
    with np.errstate(over="ignore"):
        return float(dtype.type(number))


def _to(args: list[Any], kind: str) -> list[tuple[Any, str]]:
    return [(arg, kind) for arg in args]


def _converted(name: str, args: list[Any], result: str, type_of: Any) -> Written | None:
    """A copy in another dtype, or a constant in the shape of another tensor."""
    if name in ("ones_like", "zeros_like", "full_like"):
        value = {"ones_like": 1, "zeros_like": 0}.get(name)
        kind = COMPUTED.get(result, result)
        return Written("{0}", kind, [(args[1] if value is None else value, kind)])
    given = type_of(args[0])
    if result in COMPUTED:
        once = given in (*COMPUTED, "float", "bool")  # others would be rounded twice
        return Written("{0}", "float", [(args[0], "float")]) if once else None
    order = ["bool", "int", "long long", *COMPUTED, "float", "double"]
    # Whole numbers of floating point, and what is true of them, are the affair of CuPy's kernel.
    if order.index(result) < order.index(given) and result not in _FLOATING:
        return None
    return Written("{0}", result, [(args[0], result)])


def _common(args: list[Any], type_of: Any) -> str | None:
    """The type in which two operands are compared."""
    kinds = [type_of(arg) for arg in args]
    if None not in kinds:
        return COMPUTED.get(kinds[0], kinds[0]) if kinds[0] == kinds[1] else None
    own, number = (kinds[0], args[1]) if kinds[1] is None else (kinds[1], args[0])
    own = COMPUTED.get(own, own)
    whole = type(number) is int and own in ("int", "long long") and abs(number) < 2**31
    return own if whole or (own in _FLOATING and type(number) in (int, float)) else None


def _clamped(args: list[Any], result: str) -> Written:
    text, given = "{0}", [args[0]]
    for bound, name in zip(args[1:], ("largest", "smallest"), strict=True):
        if bound is not None:
            given.append(bound)
            text = f"{name}({text}, {{{len(given) - 1}}})"
    return Written(text, result, _to(given, result))
