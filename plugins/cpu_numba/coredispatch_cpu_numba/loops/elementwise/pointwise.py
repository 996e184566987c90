"""Elementwise loops: ``put(out, i, f(item(x, i)))`` and ``put(out, i, f(item(x, i), item(y, i)))``.

Each comes with an in-place form in which the output is the first input. It is a loop of its
own because LLVM guards the other form with a run-time overlap check and falls back to scalar
code when input and output coincide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, fabs, full_vectors
from coredispatch_cpu_numba.spans import item, part, put, row_of

__all__ = ["LOOPS"]

Scalar = Callable[[SimpleNamespace], Callable[..., Any]]
_ALL = "fdEe"


def unary(scalar: Scalar) -> Loop:
    """``(x, out)``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, out, lo, hi):
            full_vectors()
            x, out = part(x, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, f(item(x, i)))

        return loop

    return Loop("aa", build, dtypes=_ALL)


def unary_inplace(scalar: Scalar) -> Loop:
    """``(x)``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, lo, hi):
            full_vectors()
            x = part(x, lo, hi)
            for i in range(x.size):
                put(x, i, f(item(x, i)))

        return loop

    return Loop("a", build, dtypes=_ALL)


#: elements that are looked through for one that is far away
_BLOCK = 256


def _periodic(name: str) -> Callable[[str], Any]:
    """``(near, each, beyond)``: the function of what is near 0; of all elements of a block; whether
    one of a block is far away.
    """
    of_library = getattr(math, name)

    def build(char: str) -> Any:
        own, double = elementary[char], elementary["d"]
        near, wide, T = getattr(own, name), getattr(double, name), own.T
        far, reach = own.FAR, double.FAR

        @inlined
        def any_size(x):
            value = np.float64(x)
            if fabs(value) <= reach:
                return T(wide(value))
            return T(of_library(value))

        @compiled(fastmath={"contract"})
        def each(x, out):
            for i in range(x.size):
                value = item(x, i)
                put(out, i, any_size(value) if fabs(value) > far else near(value))

        @inlined
        def beyond(x):
            found = np.int32(0)
            for i in range(x.size):
                found |= np.int32(fabs(item(x, i)) > far)
            return found != 0

        return near, each, beyond

    return build


def periodic(name: str) -> Loop:
    """``(x, out)``"""
    parts = _periodic(name)

    def build(char: str) -> Callable[..., None]:
        near, each, beyond = parts(char)

        def loop(x, out, lo, hi):
            full_vectors()
            for start in range(lo, hi, _BLOCK):
                stop = min(start + _BLOCK, hi)
                a, o = part(x, start, stop), part(out, start, stop)
                if beyond(a):
                    each(a, o)
                else:
                    for i in range(a.size):
                        put(o, i, near(item(a, i)))

        return loop

    return Loop("aa", build, dtypes=_ALL)


def periodic_inplace(name: str) -> Loop:
    """``(x)``"""
    parts = _periodic(name)

    def build(char: str) -> Callable[..., None]:
        near, each, beyond = parts(char)

        def loop(x, lo, hi):
            full_vectors()
            for start in range(lo, hi, _BLOCK):
                a = part(x, start, min(start + _BLOCK, hi))
                if beyond(a):
                    each(a, a)
                else:
                    for i in range(a.size):
                        put(a, i, near(item(a, i)))

        return loop

    return Loop("a", build, dtypes=_ALL)


def binary(scalar: Scalar, out: str = "a") -> Loop:
    """``(x, y, out)``; ``out="b"`` for a bool result"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, y, out, lo, hi):
            full_vectors()
            x, y, out = part(x, lo, hi), part(y, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, f(item(x, i), item(y, i)))

        return loop

    return Loop("aa" + out, build, dtypes=_ALL)


def binary_inplace(scalar: Scalar) -> Loop:
    """``(x, y)``, the result in ``x``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, y, lo, hi):
            full_vectors()
            x, y = part(x, lo, hi), part(y, lo, hi)
            for i in range(x.size):
                put(x, i, f(item(x, i), item(y, i)))

        return loop

    return Loop("aa", build, dtypes=_ALL)


def with_scalar(scalar: Scalar, out: str = "a") -> Loop:
    """``(x, number, out)``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, y, out, lo, hi):
            full_vectors()
            x, out = part(x, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, f(item(x, i), y))

        return loop

    return Loop("as" + out, build, dtypes=_ALL)


def with_scalar_inplace(scalar: Scalar) -> Loop:
    """``(x, number)``, the result in ``x``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, y, lo, hi):
            full_vectors()
            x = part(x, lo, hi)
            for i in range(x.size):
                put(x, i, f(item(x, i), y))

        return loop

    return Loop("as", build, dtypes=_ALL)


def with_row(scalar: Scalar) -> Loop:
    """``(x, row, out)``: ``row`` is repeated along ``x``; counts rows"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, row, out, lo, hi):
            full_vectors()
            n = row.size
            for r in range(lo, hi):
                a, o = row_of(x, r, n), row_of(out, r, n)
                for i in range(n):
                    put(o, i, f(item(a, i), item(row, i)))

        return loop

    return Loop("aaa", build, dtypes=_ALL)


def with_two_arrays_and_scalar(scalar: Scalar) -> Loop:
    """``(x, y, number, out)``"""

    def build(char: str) -> Callable[..., None]:
        f = scalar(elementary[char])

        def loop(x, y, z, out, lo, hi):
            full_vectors()
            x, y, out = part(x, lo, hi), part(y, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, f(item(x, i), item(y, i), z))

        return loop

    return Loop("aasa", build, dtypes=_ALL)


def _plain(function: Callable[..., Any]) -> Scalar:
    compiled = inlined(function)
    return lambda e: compiled


def _maximum(x, y):
    """NaN if either is; of 0.0 and -0.0 the second operand, as in NumPy."""
    larger = x if x > y else y
    return larger if x == x else x


def _minimum(x, y):
    smaller = x if x < y else y
    return smaller if x == x else x


def _rsqrt(e: SimpleNamespace) -> Callable[..., Any]:
    one = e.T(1.0)
    return inlined(lambda x: one / math.sqrt(x))


def _reciprocal(e: SimpleNamespace) -> Callable[..., Any]:
    one = e.T(1.0)
    return inlined(lambda x: one / x)


UNARY: dict[str, Scalar] = {
    "abs": _plain(lambda x: fabs(x)),
    "erf": lambda e: e.erf,
    "exp": lambda e: e.exp,
    "gelu": lambda e: e.gelu,
    "gelu_tanh": lambda e: e.gelu_tanh,
    "log": lambda e: e.log,
    "neg": _plain(lambda x: -x),
    "reciprocal": _reciprocal,
    "relu": lambda e: e.relu,
    "rsqrt": _rsqrt,
    "sigmoid": lambda e: e.sigmoid,
    "silu": lambda e: e.silu,
    "sqrt": _plain(lambda x: math.sqrt(x)),
    "square": _plain(lambda x: x * x),
    "tanh": lambda e: e.tanh,
}

BINARY: dict[str, Scalar] = {
    "add": _plain(lambda x, y: x + y),
    "sub": _plain(lambda x, y: x - y),
    "mul": _plain(lambda x, y: x * y),
    "div": _plain(lambda x, y: x / y),
    "maximum": _plain(_maximum),
    "minimum": _plain(_minimum),
    "gelu_backward": lambda e: e.gelu_backward,
    "gelu_tanh_backward": lambda e: e.gelu_tanh_backward,
    "sigmoid_backward": lambda e: e.sigmoid_backward,
    "silu_backward": lambda e: e.silu_backward,
    "tanh_backward": lambda e: e.tanh_backward,
}

COMPARISON: dict[str, Scalar] = {
    "eq": _plain(lambda x, y: x == y),
    "ne": _plain(lambda x, y: x != y),
    "lt": _plain(lambda x, y: x < y),
    "le": _plain(lambda x, y: x <= y),
    "gt": _plain(lambda x, y: x > y),
    "ge": _plain(lambda x, y: x >= y),
}


def _leaky_relu(x, slope):
    scaled = x * slope
    return x if x > 0.0 else scaled


def _threshold_backward(e: SimpleNamespace) -> Callable[..., Any]:
    zero = e.T(0.0)
    return inlined(lambda grad, x, threshold: zero if x <= threshold else grad)


def _leaky_relu_backward(grad, x, slope):
    scaled = grad * slope
    return grad if x > 0.0 else scaled


def _chosen(char: str) -> Callable[..., None]:
    def loop(condition, x, y, out, lo, hi):
        full_vectors()
        c, a = part(condition, lo, hi), part(x, lo, hi)
        b, result = part(y, lo, hi), part(out, lo, hi)
        for i in range(result.size):
            put(result, i, choose(c[i], item(a, i), item(b, i)))

    return loop


LOOPS: dict[str, Loop] = {
    "where": Loop("baaa", _chosen, dtypes=_ALL),
    "leaky_relu_backward": with_two_arrays_and_scalar(_plain(_leaky_relu_backward)),
    "leaky_relu_scalar": with_scalar(_plain(_leaky_relu)),
    "leaky_relu_scalar_inplace": with_scalar_inplace(_plain(_leaky_relu)),
    "threshold_backward": with_two_arrays_and_scalar(_threshold_backward),
}
for _name, _scalar in UNARY.items():
    LOOPS[_name] = unary(_scalar)
    LOOPS[_name + "_inplace"] = unary_inplace(_scalar)
for _name in ("cos", "sin"):
    LOOPS[_name] = periodic(_name)
    LOOPS[_name + "_inplace"] = periodic_inplace(_name)
for _name, _scalar in BINARY.items():
    LOOPS[_name] = binary(_scalar)
    LOOPS[_name + "_inplace"] = binary_inplace(_scalar)
    LOOPS[_name + "_row"] = with_row(_scalar)
    LOOPS[_name + "_scalar"] = with_scalar(_scalar)
    LOOPS[_name + "_scalar_inplace"] = with_scalar_inplace(_scalar)
for _name, _scalar in COMPARISON.items():
    LOOPS[_name] = binary(_scalar, "b")
    LOOPS[_name + "_scalar"] = with_scalar(_scalar, "b")
