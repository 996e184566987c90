"""Elementwise kernels with numbers beside the arrays: bounds, slopes, weights.

NumPy has no function for most of them and goes over its arrays several times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from coredispatch.plugin import dtypes, numpy_dtype
from coredispatch_cpu_numba.arrays import POINTWISE, is_like, may_write, overlap
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST", "SELU", "SPLIT", "WHEN"]

SPLIT = 49152
_LEAST = 512
_LARGEST = {
    np.dtype(np.float32): float(np.finfo(np.float32).max),
    np.dtype(np.float64): float(np.finfo(np.float64).max),
    np.dtype(np.float16): 65504.0,
    numpy_dtype(dtypes.bfloat16): (2 - 2.0**-7) * 2.0**127,
}
SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


class _Function:
    """The loop of one function and, unless it is not wanted, its in-place form."""

    def __init__(self, name: str, inplace: bool = True) -> None:
        self.fresh = Loop("elementwise.parametrized", name, SPLIT)
        self.inplace = (
            Loop("elementwise.parametrized", f"{name}_inplace", SPLIT) if inplace else None
        )

    def __call__(self, arrays: tuple[np.ndarray, ...], numbers: tuple[float, ...], out: Any) -> Any:
        x = arrays[0]
        size, own = x.size, x.dtype
        if out is None:
            result = np.empty(x.shape, own)
            if size < SPLIT:  # Loop.__call__ written out
                launch, task, _ = self.fresh.compiled[own]
                launch(*arrays, *numbers, result, size, size, task, 0)
            else:
                self.fresh(own, size, size, *arrays, *numbers, result)
            return result
        others = arrays[1:]
        inplace = self.inplace
        alone = not any(o is x or overlap(o, x) for o in others)
        if inplace is not None and out is x and out.flags.writeable and alone:
            inplace(own, size, size, *arrays, *numbers)
        elif out is not x and may_write(out, x, *arrays):
            self.fresh(own, size, size, *arrays, *numbers, out)
        else:
            np.copyto(out, self(arrays, numbers, None), casting="same_kind")
        return out


_addcdiv, _addcmul, _lerp = _Function("addcdiv"), _Function("addcmul"), _Function("lerp")
_lerp_each = _Function("lerp_each")
_clamp, _threshold = _Function("clamp"), _Function("threshold")
_hardtanh_backward = _Function("hardtanh_backward", False)
_hardshrink_backward = _Function("hardshrink_backward", False)
_softshrink, _nan_to_num = _Function("softshrink", False), _Function("nan_to_num", False)
_softplus = _Function("softplus", False)
_softplus_backward = _Function("softplus_backward", False)
_mish, _mish_backward = _Function("mish", False), _Function("mish_backward", False)
_hardsigmoid, _hardswish = _Function("hardsigmoid"), _Function("hardswish")
_elu, _elu_backward = _Function("elu"), _Function("elu_backward", False)


def addcdiv(self: np.ndarray, a: np.ndarray, b: np.ndarray, value: Any, out: Any = None) -> Any:
    """``self + value * (a / b)``"""
    return _addcdiv((self, a, b), (float(value),), out)


def addcmul(self: np.ndarray, a: np.ndarray, b: np.ndarray, value: Any, out: Any = None) -> Any:
    """``self + value * (a * b)``"""
    return _addcmul((self, a, b), (float(value),), out)


def lerp(self: np.ndarray, end: np.ndarray, weight: Any, out: Any = None) -> Any:
    """``self + weight * (end - self)``, from the nearer end."""
    if type(weight) is np.ndarray:
        return _lerp_each((self, end, weight), (), out)
    return _lerp((self, end), (float(weight),), out)


def clamp(self: np.ndarray, low: Any, high: Any, out: Any = None) -> Any:
    """``self``, not below ``low`` and not above ``high``, where they are given."""
    bounds = -inf if low is None else float(low), inf if high is None else float(high)
    return _clamp((self,), bounds, out)


def hardtanh(self: np.ndarray, min_val: Any, max_val: Any, out: Any = None) -> Any:
    """``self`` between two bounds."""
    if min_val > max_val:
        return NotImplemented  # the definition says what is wrong
    return _clamp((self,), (float(min_val), float(max_val)), out)


def relu6(self: np.ndarray, out: Any = None) -> Any:
    """``self`` between 0 and 6."""
    return _clamp((self,), (0.0, 6.0), out)


def hardtanh_backward(grad: np.ndarray, self: np.ndarray, min_val: Any, max_val: Any) -> Any:
    """``grad`` where ``self`` is between the bounds, or NaN."""
    return _hardtanh_backward((grad, self), (float(min_val), float(max_val)), None)


def threshold(self: np.ndarray, threshold: Any, value: Any, out: Any = None) -> Any:
    """``self`` where it is above ``threshold``, or NaN, else ``value``."""
    return _threshold((self,), (float(threshold), float(value)), out)


def hardsigmoid(self: np.ndarray, out: Any = None) -> Any:
    """``min(max(self + 3, 0), 6) / 6``"""
    return _hardsigmoid((self,), (), out)


def hardswish(self: np.ndarray, out: Any = None) -> Any:
    """``self`` times its :func:`hardsigmoid`."""
    return _hardswish((self,), (), out)


def elu(self: np.ndarray, alpha: Any, out: Any = None) -> Any:
    """``self`` where positive, else ``alpha * (e^self - 1)``."""
    return _elu((self,), (float(alpha), 1.0, 1.0), out)


def celu(self: np.ndarray, alpha: Any, out: Any = None) -> Any:
    """``self`` where positive, else ``alpha * (e^(self / alpha) - 1)``."""
    if alpha == 0:
        return NotImplemented  # as above
    return _elu((self,), (float(alpha), 1.0, 1.0 / alpha), out)


def selu(self: np.ndarray, out: Any = None) -> Any:
    """A scaled :func:`elu`."""
    alpha, scale = SELU
    return _elu((self,), (alpha * scale, scale, 1.0), out)


def elu_backward(
    grad: np.ndarray, self: np.ndarray, alpha: Any, scale: Any, input_scale: Any
) -> Any:
    """Gradient of ``scale * (self if self > 0 else alpha * (e^(input_scale * self) - 1))``."""
    slopes = float(alpha * scale * input_scale), float(scale), float(input_scale)
    return _elu_backward((grad, self), slopes, None)


def hardshrink(self: np.ndarray, lambd: Any, out: Any = None) -> Any:
    """``self`` where its magnitude exceeds ``lambd``, else 0."""
    return _hardshrink_backward((self, self), (float(lambd),), out)


def hardshrink_backward(grad: np.ndarray, self: np.ndarray, lambd: Any) -> Any:
    """``grad`` where the magnitude of ``self`` exceeds ``lambd``, else 0."""
    return _hardshrink_backward((grad, self), (float(lambd),), None)


def softshrink(self: np.ndarray, lambd: Any, out: Any = None) -> Any:
    """``self`` moved towards 0 by ``lambd``, 0 where it would cross."""
    if lambd < 0:
        return NotImplemented  # as above
    return _softshrink((self,), (float(lambd),), out)


def nan_to_num(self: np.ndarray, nan: Any, posinf: Any, neginf: Any, out: Any = None) -> Any:
    """``self`` with numbers for NaN and the infinities, by default 0 and the largest there are."""
    most = _LARGEST[self.dtype]
    numbers = (
        0.0 if nan is None else float(nan),
        most if posinf is None else float(posinf),
        -most if neginf is None else float(neginf),
    )
    if any(abs(number) > most for number in numbers):
        return NotImplemented  # the definition has it rounded
    return _nan_to_num((self,), numbers, out)


def softplus(self: np.ndarray, beta: Any, threshold: Any, out: Any = None) -> Any:
    """``log(1 + e^(beta self)) / beta``, or ``self`` where ``beta self`` is above ``threshold``."""
    return _softplus((self,), (float(beta), float(threshold)), out)


def logsigmoid(self: np.ndarray, out: Any = None) -> Any:
    """``-log(1 + e^-self)``: softplus upside down."""
    return _softplus((self,), (-1.0, inf), out)


def softplus_backward(grad: np.ndarray, self: np.ndarray, beta: Any, threshold: Any) -> Any:
    """``grad * sigmoid(beta self)``, or ``grad`` where ``beta self`` is above ``threshold``."""
    return _softplus_backward((grad, self), (float(beta), float(threshold)), None)


def mish(self: np.ndarray, out: Any = None) -> Any:
    """``self * tanh(log(1 + e^self))``"""
    return _mish((self,), (), out)


def mish_backward(grad: np.ndarray, self: np.ndarray) -> Any:
    """Gradient of :func:`mish`."""
    return _mish_backward((grad, self), (), None)


def _accepts(arrays: int, numbers: int, missing: bool = False) -> Callable[..., bool]:
    """So many equal arrays, then so many numbers, of which some may be ``missing``."""

    def accepts(self: Any, *rest: Any) -> bool:
        if type(self) is not np.ndarray or self.size < _LEAST or self.dtype not in POINTWISE:
            return False
        if not self.flags.c_contiguous:
            return False
        some = not numbers
        for i in range(arrays + numbers - 1):
            x = rest[i]
            if i < arrays - 1:
                if not is_like(x, self):
                    return False
            elif type(x) is float or type(x) is int:
                if x != x:
                    return False  # a bound that is none
                some = True
            elif x is not None or not missing:
                return False
        return some

    return accepts


_one, _two_and_number = _accepts(1, 0), _accepts(2, 1)


def _accepts_replacements(self: Any, *numbers: Any) -> bool:
    """Numbers, NaN among them, or none."""
    return _one(self) and all(x is None or type(x) in (float, int) for x in numbers[:3])


def _accepts_weights(self: Any, end: Any, weight: Any, *_: Any) -> bool:
    """Two arrays, and one weight or as many."""
    if type(weight) is not np.ndarray:
        return _two_and_number(self, end, weight)
    return _one(self) and is_like(end, self) and is_like(weight, self)


KERNELS: dict[str, Callable[..., Any]] = {
    "addcdiv": addcdiv,
    "addcmul": addcmul,
    "celu": celu,
    "clamp": clamp,
    "elu": elu,
    "elu_backward": elu_backward,
    "hardshrink": hardshrink,
    "hardshrink_backward": hardshrink_backward,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "hardtanh": hardtanh,
    "hardtanh_backward": hardtanh_backward,
    "lerp": lerp,
    "logsigmoid": logsigmoid,
    "mish": mish,
    "mish_backward": mish_backward,
    "nan_to_num": nan_to_num,
    "relu6": relu6,
    "selu": selu,
    "softplus": softplus,
    "softplus_backward": softplus_backward,
    "softshrink": softshrink,
    "threshold": threshold,
}
WHEN: dict[str, Callable[..., bool]] = {
    "addcdiv": _accepts(3, 1),
    "addcmul": _accepts(3, 1),
    "celu": _accepts(1, 1),
    "clamp": _accepts(1, 2, True),
    "elu": _accepts(1, 1),
    "elu_backward": _accepts(2, 3),
    "hardshrink": _accepts(1, 1),
    "hardshrink_backward": _accepts(2, 1),
    "hardsigmoid": _accepts(1, 0),
    "hardswish": _accepts(1, 0),
    "hardtanh": _accepts(1, 2),
    "hardtanh_backward": _accepts(2, 2),
    "lerp": _accepts_weights,
    "logsigmoid": _accepts(1, 0),
    "mish": _accepts(1, 0),
    "mish_backward": _accepts(2, 0),
    "nan_to_num": _accepts_replacements,
    "relu6": _accepts(1, 0),
    "selu": _accepts(1, 0),
    "softplus": _accepts(1, 2),
    "softplus_backward": _accepts(2, 2),
    "softshrink": _accepts(1, 1),
    "threshold": _accepts(1, 2),
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
