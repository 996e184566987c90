"""Operators of one element each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Length, Tensor, onnx_dtype
from coredispatch.plugin import DType, dtypes, result_type

__all__ = ["TRANSLATIONS"]


def common(*values: Any) -> DType:
    """The dtype that tensors, lengths and numbers compute in."""

    class Like:
        def __init__(self, dtype: DType, ndim: int) -> None:
            self.dtype, self.ndim = dtype, ndim

    plain = [
        Like(v.dtype, v.rank) if isinstance(v, Tensor) else 1 if isinstance(v, Length) else v
        for v in values
    ]
    return result_type(*plain)


def _one(kind: str, **attributes: Any) -> Any:
    def translate(b: Builder, x: Any, *rest: Any) -> Any:
        return b.op(kind, b.cast(x, b.result.dtype), **attributes)

    return translate


def _two(kind: str) -> Any:
    def translate(b: Builder, x: Any, y: Any, *rest: Any) -> Any:
        dtype = b.result.dtype
        return b.op(kind, b.cast(x, dtype), b.cast(y, dtype))

    return translate


def _scaled(kind: str) -> Any:
    """``add`` and ``sub`` with ``alpha``."""

    def translate(b: Builder, x: Any, y: Any, alpha: Any = 1, *rest: Any) -> Any:
        dtype = b.result.dtype
        other = b.cast(y, dtype)
        if alpha != 1:
            other = b.op("Mul", other, b.cast(alpha, dtype))
        return b.op(kind, b.cast(x, dtype), other)

    return translate


def _compared(kind: str) -> Any:
    def translate(b: Builder, x: Any, y: Any) -> Any:
        dtype = common(x, y)
        if dtype is dtypes.bool_ and kind != "Equal":
            dtype = dtypes.int32
        return b.op(kind, b.cast(x, dtype), b.cast(y, dtype))

    return translate


def _not_equal(b: Builder, x: Any, y: Any) -> Any:
    return b.op("Not", _compared("Equal")(b, x, y))


def _bits(boolean: str, integer: str) -> Any:
    def translate(b: Builder, x: Any, y: Any) -> Any:
        dtype = common(x, y)
        kind = boolean if dtype is dtypes.bool_ else integer
        return b.op(kind, b.cast(x, dtype), b.cast(y, dtype))

    return translate


def _logical(kind: str) -> Any:
    def translate(b: Builder, x: Any, y: Any) -> Any:
        return b.op(kind, b.cast(x, dtypes.bool_), b.cast(y, dtypes.bool_))

    return translate


def _bitwise_not(b: Builder, x: Any) -> Any:
    return b.op("Not" if x.dtype is dtypes.bool_ else "BitwiseNot", x)


def _div(b: Builder, x: Any, y: Any, rounding_mode: Any = None, *rest: Any) -> Any:
    if rounding_mode == "floor":
        return _floor_divide(b, x, y)
    dtype = b.result.dtype
    made = b.op("Div", b.cast(x, dtype), b.cast(y, dtype))
    if rounding_mode == "trunc" and dtype.is_floating_point:
        sign, size = b.op("Sign", made), b.op("Floor", b.op("Abs", made))
        return b.op("Mul", sign, size)
    return made


def _floor_divide(b: Builder, x: Any, y: Any) -> Any:
    dtype = b.result.dtype
    one, other = b.cast(x, dtype), b.cast(y, dtype)
    if dtype.is_floating_point:
        return b.op("Floor", b.op("Div", one, other))
    return b.op("Div", b.op("Sub", one, b.op("Mod", one, other)), other)


def _remainder(b: Builder, x: Any, y: Any) -> Any:
    dtype = b.result.dtype
    one, other = b.cast(x, dtype), b.cast(y, dtype)
    if not dtype.is_floating_point:
        return b.op("Mod", one, other)
    return b.op("Sub", one, b.op("Mul", b.op("Floor", b.op("Div", one, other)), other))


def _fmod(b: Builder, x: Any, y: Any) -> Any:
    dtype = b.result.dtype
    return b.op("Mod", b.cast(x, dtype), b.cast(y, dtype), fmod=1)


def _where(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    dtype = b.result.dtype
    return b.op("Where", b.cast(condition, dtypes.bool_), b.cast(x, dtype), b.cast(y, dtype))


def _masked_fill(b: Builder, x: Any, mask: Any, value: Any) -> Any:
    return _where(b, mask, value, x)


def _clamp(b: Builder, x: Any, low: Any = None, high: Any = None) -> Any:
    dtype = b.result.dtype
    made = b.cast(x, dtype)
    if low is not None:
        made = b.op("Max", made, b.cast(low, dtype))
    return made if high is None else b.op("Min", made, b.cast(high, dtype))


def _clip(low: float, high: float) -> Any:
    return lambda b, x, *rest: _clamp(b, x, low, high)


def _hardtanh(b: Builder, x: Any, low: float = -1.0, high: float = 1.0) -> Any:
    return _clamp(b, x, low, high)


def _rsqrt(b: Builder, x: Any) -> Any:
    return b.op("Reciprocal", b.op("Sqrt", b.cast(x, b.result.dtype)))


def _silu(b: Builder, x: Any) -> Any:
    return b.op("Mul", x, b.op("Sigmoid", x))


def _gelu(b: Builder, x: Any, approximate: str = "none") -> Any:
    if b.opset >= 20:
        return b.op("Gelu", x, approximate=approximate)

    def number(value: float) -> Any:
        return b.cast(value, x.dtype)

    if approximate == "tanh":
        cube = b.op("Mul", b.op("Pow", x, number(3.0)), number(0.044715))
        inner = b.op("Tanh", b.op("Mul", b.op("Add", x, cube), number(math.sqrt(2 / math.pi))))
    else:
        inner = b.op("Erf", b.op("Div", x, number(math.sqrt(2))))
    return b.op("Mul", b.op("Mul", x, number(0.5)), b.op("Add", inner, number(1.0)))


def _alpha(kind: str) -> Any:
    return lambda b, x, alpha=1.0, *rest: b.op(kind, x, alpha=float(alpha))


def _relu(b: Builder, x: Any) -> Any:
    if x.dtype.is_floating_point:
        return b.op("Relu", x)
    return b.op("Max", x, b.cast(0, x.dtype))


def _celu(b: Builder, x: Any, alpha: float = 1.0) -> Any:
    if x.dtype is dtypes.float32:
        return b.op("Celu", x, alpha=float(alpha))
    zero, one, scale = (b.cast(n, x.dtype) for n in (0.0, 1.0, float(alpha)))
    below = b.op("Mul", scale, b.op("Sub", b.op("Exp", b.op("Div", x, scale)), one))
    return b.op("Add", b.op("Max", x, zero), b.op("Min", below, zero))


def _leaky_relu(b: Builder, x: Any, slope: float = 0.01) -> Any:
    return b.op("LeakyRelu", x, alpha=float(slope))


def _prelu(b: Builder, x: Any, weight: Any) -> Any:
    if x.rank > 2 and weight.shape != (1,):
        shape = np.array([-1] + [1] * (x.rank - 2), dtype=np.int64)
        return b.op("PRelu", x, b.op("Reshape", weight, shape))
    return b.op("PRelu", x, weight)


def _to_dtype(b: Builder, x: Any, dtype: DType, *rest: Any) -> Any:
    return b.op("Cast", x, to=onnx_dtype(dtype))


def _same(b: Builder, x: Any, *rest: Any) -> Any:
    return b.op("Identity", x)


def _copy(b: Builder, x: Any, source: Any, *rest: Any) -> Any:
    shape = b.op("Shape", x)
    return b.op("Expand", b.cast(source, x.dtype), shape)


def _type_as(b: Builder, x: Any, other: Any) -> Any:
    return b.cast(x, other.dtype)


def _finite(b: Builder, x: Any) -> Any:
    return b.op("Not", b.op("Or", _odd("IsNaN")(b, x), _odd("IsInf")(b, x)))


def _odd(kind: str) -> Any:
    """``isnan`` and ``isinf``; no integer is either."""

    def translate(b: Builder, x: Any) -> Any:
        if x.dtype.is_floating_point:
            return b.op(kind, x)
        return b.op("Expand", np.array(False), b.op("Shape", x))

    return translate


def _tan(b: Builder, x: Any) -> Any:
    value = b.cast(x, b.result.dtype)
    if b.result.dtype is not dtypes.float64:
        return b.op("Tan", value)
    return b.op("Div", b.op("Sin", value), b.op("Cos", value))  # onnxruntime has no other


def _atan2(b: Builder, y: Any, x: Any) -> Any:
    """The angle in the first quadrant, turned into the one where the signs lie."""
    dtype = b.result.dtype
    shape = b.op("Shape", b.op("Add", b.cast(y, dtype), b.cast(x, dtype)))
    one, other = (b.op("Expand", b.cast(v, dtype), shape) for v in (y, x))
    up, right = b.op("Abs", one), b.op("Abs", other)
    zero, unit = b.cast(0.0, dtype), b.cast(1.0, dtype)
    both = b.op("And", b.op("Equal", up, zero), b.op("Equal", right, zero))
    infinite = b.op("And", b.op("IsInf", up), b.op("IsInf", right))
    ratio = b.op("Div", up, right)
    ratio = b.op("Where", both, zero, b.op("Where", infinite, unit, ratio))
    angle = b.op("Atan", ratio)
    # -0.0 is negative here: 1 / -0.0 is.
    left, down = (b.op("Less", b.op("Div", unit, _signed(b, v, unit)), zero) for v in (other, one))
    angle = b.op("Where", left, b.op("Sub", b.cast(math.pi, dtype), angle), angle)
    return b.op("Where", down, b.op("Neg", angle), angle)


def _signed(b: Builder, value: str, unit: str) -> Any:
    """``value``, with 1 and -1 for the infinities, whose reciprocals have lost the sign."""
    return b.op("Where", b.op("IsInf", value), b.op("Mul", b.op("Sign", value), unit), value)


def _shifted(kind: str) -> Any:
    """``bitwise_left_shift`` and ``bitwise_right_shift`` by a number of places from 0 on."""

    def translate(b: Builder, x: Any, y: Any) -> Any:
        dtype = b.result.dtype
        long = onnx_dtype(dtypes.int64)
        value, places = (b.op("Cast", b.cast(v, dtype), to=long) for v in (x, y))
        factor = b.op("Pow", np.array(2, dtype=np.int64), places)
        if kind == "Div":  # rounded down
            value = b.op("Sub", value, b.op("Mod", value, factor))
        return b.op("Cast", b.op(kind, value, factor), to=onnx_dtype(dtype))

    return translate


_UNARY = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
    "sigmoid": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "reciprocal": "Reciprocal", "softsign": "Softsign",
    "hardswish": "HardSwish", "mish": "Mish",
}  # fmt: skip
TRANSLATIONS: dict[str, Any] = {
    **{name: _one(kind) for name, kind in _UNARY.items()},
    "tan": _tan,
    "atan2": _atan2,
    "bitwise_left_shift": _shifted("Mul"),
    "bitwise_right_shift": _shifted("Div"),
    "hardsigmoid": _one("HardSigmoid", alpha=1 / 6, beta=0.5),
    "selu": _one("Selu"),
    "add": _scaled("Add"),
    "sub": _scaled("Sub"),
    "mul": _two("Mul"),
    "maximum": _two("Max"),
    "minimum": _two("Min"),
    "pow": _two("Pow"),
    "div": _div,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "eq": _compared("Equal"),
    "ne": _not_equal,
    "lt": _compared("Less"),
    "le": _compared("LessOrEqual"),
    "gt": _compared("Greater"),
    "ge": _compared("GreaterOrEqual"),
    "bitwise_and": _bits("And", "BitwiseAnd"),
    "bitwise_or": _bits("Or", "BitwiseOr"),
    "bitwise_xor": _bits("Xor", "BitwiseXor"),
    "bitwise_not": _bitwise_not,
    "logical_and": _logical("And"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    "logical_not": lambda b, x: b.op("Not", b.cast(x, dtypes.bool_)),
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "hardtanh": _hardtanh,
    "relu6": _clip(0.0, 6.0),
    "rsqrt": _rsqrt,
    "silu": _silu,
    "gelu": _gelu,
    "elu": _alpha("Elu"),
    "celu": _celu,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "to_dtype": _to_dtype,
    "type_as": _type_as,
    "isnan": _odd("IsNaN"),
    "isinf": _odd("IsInf"),
    "isfinite": _finite,
    "clone": _same,
    "detach": _same,
    "contiguous": _same,
    "positive": _same,
    "checked": _same,  # models check no values
    "copy": _copy,
}
