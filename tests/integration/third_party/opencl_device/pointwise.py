"""Kernels element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch.plugin as cdp
from opencl_device.arrays import Array, reinterpreted, result
from opencl_device.copies import full
from opencl_device.host import on_host
from opencl_device.loop import launch


def by_zero(op: str, v: int) -> Exception:
    return ZeroDivisionError(f"{op}(...), called earlier: integer division or modulo by zero")


def negative_power(op: str, v: int) -> Exception:
    return ValueError(f"{op}(...), called earlier: an integer to the negative integer power {v}")


COMPLEX = {
    "abs": "hypot(x.s0, x.s1)", "add": "x + y", "sub": "x - y", "neg": "-x", "mul": "times(x, y)",
    "eq": "x.s0 == y.s0 && x.s1 == y.s1", "where": "x != 0 ? y : z",
}  # fmt: skip


#: operator -> expression for floats, for integers, for bool (where it is another), and its errors
POINTWISE: dict[str, tuple[Any, ...]] = {
    "abs": ("fabs(x)", "x < 0 ? (C1)-(ulong)x : x"),
    "add": ("x + y", "(ulong)x + (ulong)y", "x | y"),
    "sub": ("x - y", "(ulong)x - (ulong)y"),
    "mul": ("x * y", "(ulong)x * (ulong)y", "x & y"),
    "neg": ("-x", "-(ulong)x"),
    "div": ("x / y",),
    "floor_divide": ("floored(x, y)", "floored(x, y)", None, "y == 0", "y", by_zero),
    "remainder": ("modulo(x, y)", "modulo(x, y)", None, "y == 0", "y", by_zero),
    "pow": ("pow(x, y)", "power(x, y)", None, "y < 0", "y", negative_power),
    "bitwise_and": (None, "x & y"),
    "bitwise_or": (None, "x | y"),
    "bitwise_xor": (None, "x ^ y"),
    "bitwise_not": (None, "~x", "!x"),
    "bitwise_left_shift": (None, "(ulong)y < 64 ? (ulong)x << y : 0"),
    "bitwise_right_shift": (None, "(ulong)y < 64 ? x >> y : (C1)(x < 0 ? -1 : 0)"),
    "maximum": ("x > y || x != x ? x : y", "x > y ? x : y"),
    "minimum": ("x < y || x != x ? x : y", "x < y ? x : y"),
    "floor": ("floor(x)", "x"),
    "round": ("rint(x)", "x"),
    "where": ("x != 0 ? y : z", "x != 0 ? y : z"),
    **{
        op: (f"x {sign} y", f"x {sign} y")
        for op, sign in {"eq": "==", "lt": "<", "le": "<="}.items()
    },
    **{op: (f"{op}(x)",) for op in ("atan", "exp", "log", "sqrt", "tanh")},
    "sin": ("turn(x, 0)",),
    "cos": ("turn(x, 1)",),
    "atan2": ("atan2(x, y)",),
}


def pointwise(op: str, floats: Any, ints: Any = None, bools: Any = None, *failure: Any) -> Any:
    def kernel(*args: Any) -> Array:
        out = result(op, args)
        kind = out.dtype if op == "where" else next(a.dtype for a in args if isinstance(a, Array))
        operands = [a if isinstance(a, Array) else full((), a, kind) for a in args]
        if kind.is_complex:
            if op not in COMPLEX:
                return on_host(op)(*operands)
            return launch(f"PUT0(0, {COMPLEX[op]})", [out, *operands], out.shape)
        if kind.is_floating_point:
            return launch(f"PUT0(0, {floats})", [out, *operands], out.shape)
        body = f"PUT0(0, {bools if bools and kind.name == 'bool' else ints})"
        if not failure:
            return launch(body, [out, *operands], out.shape)
        wrong, value, error = failure
        guarded = f"if ({wrong}) FAIL({value}) else {body}"
        return launch(guarded, [out, *operands], out.shape, error=error)

    return kernel


def nextafter(x: Array, y: Array) -> Array:
    out = result("nextafter", (x, y))
    bits = {2: cdp.dtypes.int16, 4: cdp.dtypes.int32, 8: cdp.dtypes.int64}[out.dtype.itemsize]
    infinity = np.asarray(np.inf, cdp.numpy_dtype(out.dtype)).view(cdp.numpy_dtype(bits))
    numbers = [(1 << 8 * bits.itemsize - 1) - 1, int(infinity)]
    operands = [reinterpreted(a, bits) for a in (out, x, y)]
    launch("PUT0(0, next(x, y, e0, e1))", operands, out.shape, numbers=numbers)
    return out
