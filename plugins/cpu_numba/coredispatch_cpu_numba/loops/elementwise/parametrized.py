"""Elementwise loops with numbers beside the arrays: bounds, slopes, weights.

Most come with an in-place form, whose output is the first array; ``pointwise`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, NamedTuple

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, fabs, full_vectors
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

_SOURCE = """
def loop({parameters}, lo, hi):
    full_vectors()
    {parts}
    for i in range(x0.size):
        put({target}, i, f({values}))
"""


class Function(NamedTuple):
    """A function of one element of each of so many arrays, and of so many numbers."""

    arrays: int
    numbers: int
    scalar: Callable[[SimpleNamespace], Callable[..., Any]]


def _loop(function: Function, inplace: bool) -> Loop:
    """``(*arrays, *numbers, out)``, or without ``out``."""
    arrays = [f"x{i}" for i in range(function.arrays)]
    numbers = [f"n{i}" for i in range(function.numbers)]
    results = [] if inplace else ["out"]
    source = _SOURCE.format(
        parameters=", ".join(arrays + numbers + results),
        parts="; ".join(f"{x} = part({x}, lo, hi)" for x in arrays + results),
        target="x0" if inplace else "out",
        values=", ".join([f"item({x}, i)" for x in arrays] + numbers),
    )

    def build(char: str) -> Callable[..., None]:
        scope: dict[str, Any] = {
            "__name__": __name__,
            "f": inlined(function.scalar(elementary[char])),
            "full_vectors": full_vectors,
            "item": item,
            "part": part,
            "put": put,
        }
        exec(compile(source, __file__, "exec"), scope)
        loop: Callable[..., None] = scope["loop"]
        return loop

    letters = "a" * function.arrays + "s" * function.numbers + "a" * len(results)
    return Loop(letters, build, dtypes="fdEe")


def _clamp(e: SimpleNamespace) -> Callable[..., Any]:
    """NaN stays; where the bounds are the wrong way round it is the upper one, as in PyTorch."""

    def clamp(x, low, high):
        raised = choose(x < low, low, x)
        return choose(raised > high, high, raised)

    return clamp


def _hardtanh_backward(e: SimpleNamespace) -> Callable[..., Any]:
    zero = e.T(0.0)
    return lambda grad, x, low, high: choose((x <= low) | (x >= high), zero, grad)


def _threshold(e: SimpleNamespace) -> Callable[..., Any]:
    return lambda x, threshold, value: choose(x <= threshold, value, x)


def _hardsigmoid(e: SimpleNamespace) -> Callable[..., Any]:
    zero, three, six = e.T(0.0), e.T(3.0), e.T(6.0)

    def hardsigmoid(x):
        y = x + three
        y = choose(y < zero, zero, y)
        return choose(y > six, six, y) / six

    return hardsigmoid


def _hardswish(e: SimpleNamespace) -> Callable[..., Any]:
    hardsigmoid = inlined(_hardsigmoid(e))
    return lambda x: x * hardsigmoid(x)


def _elu(e: SimpleNamespace) -> Callable[..., Any]:
    """``e^y - 1`` is ``2 t / (1 - t)`` for ``t = tanh(y / 2)``: nothing is lost near 0."""
    tanh, zero, half, one, two = e.tanh, e.T(0.0), e.T(0.5), e.T(1.0), e.T(2.0)

    def elu(x, slope, scale, input_scale):
        t = tanh(choose(x > zero, zero, x) * input_scale * half)
        return choose(x < zero, two * t / (one - t) * slope, x * scale)

    return elu


def _elu_backward(e: SimpleNamespace) -> Callable[..., Any]:
    exp, zero = e.exp, e.T(0.0)

    def elu_backward(grad, x, slope, scale, input_scale):
        below = exp(choose(x > zero, zero, x) * input_scale) * slope
        return grad * choose(x > zero, scale, below)

    return elu_backward


def _lerp(e: SimpleNamespace) -> Callable[..., Any]:
    """From the nearer end."""
    half, one = e.T(0.5), e.T(1.0)

    def lerp(start, end, weight):
        distance = end - start
        near = (weight < half) & (weight > -half)
        return choose(near, start + weight * distance, end - (one - weight) * distance)

    return lerp


def _nan_to_num(e: SimpleNamespace) -> Callable[..., Any]:
    most = e.T(inf)

    def nan_to_num(x, nan, high, low):
        number = choose(x == x, x, nan)
        return choose(x == most, high, choose(x == -most, low, number))

    return nan_to_num


def _hardshrink_backward(e: SimpleNamespace) -> Callable[..., Any]:
    zero = e.T(0.0)
    return lambda grad, x, bound: choose(fabs(x) <= bound, zero, grad)


def _softshrink(e: SimpleNamespace) -> Callable[..., Any]:
    zero = e.T(0.0)

    def softshrink(x, bound):
        above = choose(x > bound, x - bound, x * zero)
        return choose(x < -bound, x + bound, above)

    return softshrink


def _softplus(e: SimpleNamespace) -> Callable[..., Any]:
    """``log(1 + e^y) / beta`` of ``y = beta x``, or ``x``.

    The logarithm of the sum rounded, and what was rounded off by its derivative.
    """
    exp, log, zero, one = e.exp, e.log, e.T(0.0), e.T(1.0)

    def softplus(x, beta, threshold):
        y = x * beta
        power = exp(-fabs(y))
        total = one + power
        small = log(total) + (power - (total - one)) / total
        value = (small + choose(y < zero, zero, y)) / beta
        return choose(y > threshold, x, value + zero)  # no -0.0 for a negative beta

    return softplus


def _softplus_backward(e: SimpleNamespace) -> Callable[..., Any]:
    sigmoid = e.sigmoid

    def softplus_backward(grad, x, beta, threshold):
        y = x * beta
        return choose(y > threshold, grad, grad * sigmoid(y))

    return softplus_backward


def _mish(e: SimpleNamespace) -> Callable[..., Any]:
    """``tanh(log(1 + e))`` is ``n / (n + 2)`` for ``n = e (e + 2)``."""
    exp, two, most = e.exp, e.T(2.0), e.T(40.0)

    def mish(x):
        power = exp(choose(x > most, most, x))
        n = power * (power + two)
        return x * (n / (n + two))

    return mish


def _mish_backward(e: SimpleNamespace) -> Callable[..., Any]:
    """The slope of the tangent above is ``4 e (1 + e) / (n + 2)^2``."""
    exp, one, two, four, most = e.exp, e.T(1.0), e.T(2.0), e.T(4.0), e.T(20.0)

    def mish_backward(grad, x):
        near = choose(x > most, most, x)
        power = exp(near)
        n = power * (power + two)
        inverse = one / (n + two)
        near += x - x  # NaN at infinity, as the product of the definition is
        slope = four * near * power * (one + power) * inverse * inverse
        return grad * (n * inverse + slope)

    return mish_backward


_FUNCTIONS: dict[str, Function] = {
    "addcdiv": Function(3, 1, lambda e: lambda x, a, b, value: x + value * (a / b)),
    "addcmul": Function(3, 1, lambda e: lambda x, a, b, value: x + value * (a * b)),
    "clamp": Function(1, 2, _clamp),
    "elu": Function(1, 3, _elu),
    "elu_backward": Function(2, 3, _elu_backward),
    "hardsigmoid": Function(1, 0, _hardsigmoid),
    "hardswish": Function(1, 0, _hardswish),
    "hardshrink_backward": Function(2, 1, _hardshrink_backward),
    "hardtanh_backward": Function(2, 2, _hardtanh_backward),
    "lerp": Function(2, 1, _lerp),
    "lerp_each": Function(3, 0, _lerp),
    "mish": Function(1, 0, _mish),
    "mish_backward": Function(2, 0, _mish_backward),
    "nan_to_num": Function(1, 3, _nan_to_num),
    "softplus": Function(1, 2, _softplus),
    "softplus_backward": Function(2, 2, _softplus_backward),
    "softshrink": Function(1, 1, _softshrink),
    "threshold": Function(1, 2, _threshold),
}
#: what nobody asks for in place
_FRESH_ONLY = ("mish", "nan_to_num", "softplus", "softshrink")
LOOPS: dict[str, Loop] = {}
for _name, _function in _FUNCTIONS.items():
    LOOPS[_name] = _loop(_function, False)
    if not _name.endswith("_backward") and _name not in _FRESH_ONLY:
        LOOPS[_name + "_inplace"] = _loop(_function, True)
