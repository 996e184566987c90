"""Elementwise kernels with numbers beside the arrays: bounds, slopes, weights.

NumPy has no function for most of them and goes over its arrays several times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import POINTWISE, is_like, may_write, overlap
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST", "WHEN"]

_SPLIT = 49152
_LEAST = 512
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


class _Function:
    """The loop of one function and its in-place form."""

    def __init__(self, name: str) -> None:
        self.fresh = Loop("elementwise.parametrized", name, _SPLIT)
        self.inplace = Loop("elementwise.parametrized", f"{name}_inplace", _SPLIT)

    def __call__(self, arrays: tuple[np.ndarray, ...], numbers: tuple[float, ...], out: Any) -> Any:
        x = arrays[0]
        size, own = x.size, x.dtype
        if out is None:
            result = np.empty(x.shape, own)
            if size < _SPLIT:  # Loop.__call__ written out
                launch, task, _ = self.fresh.compiled[own]
                launch(*arrays, *numbers, result, size, size, task, 0)
            else:
                self.fresh(own, size, size, *arrays, *numbers, result)
            return result
        others = arrays[1:]
        if out is x and out.flags.writeable and not any(o is x or overlap(o, x) for o in others):
            self.inplace(own, size, size, *arrays, *numbers)
        elif out is not x and may_write(out, x, *arrays):
            self.fresh(own, size, size, *arrays, *numbers, out)
        else:
            np.copyto(out, self(arrays, numbers, None), casting="same_kind")
        return out


_addcdiv, _addcmul, _lerp = _Function("addcdiv"), _Function("addcmul"), _Function("lerp")
_clamp, _threshold = _Function("clamp"), _Function("threshold")
_hardtanh_backward = _Function("hardtanh_backward")
_hardsigmoid, _hardswish = _Function("hardsigmoid"), _Function("hardswish")
_elu, _elu_backward = _Function("elu"), _Function("elu_backward")


def addcdiv(self: np.ndarray, a: np.ndarray, b: np.ndarray, value: Any, out: Any = None) -> Any:
    """``self + value * (a / b)``"""
    return _addcdiv((self, a, b), (float(value),), out)


def addcmul(self: np.ndarray, a: np.ndarray, b: np.ndarray, value: Any, out: Any = None) -> Any:
    """``self + value * (a * b)``"""
    return _addcmul((self, a, b), (float(value),), out)


def lerp(self: np.ndarray, end: np.ndarray, weight: Any, out: Any = None) -> Any:
    """``self + weight * (end - self)``, from the nearer end."""
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
    alpha, scale = _SELU
    return _elu((self,), (alpha * scale, scale, 1.0), out)


def elu_backward(
    grad: np.ndarray, self: np.ndarray, alpha: Any, scale: Any, input_scale: Any
) -> Any:
    """Gradient of ``scale * (self if self > 0 else alpha * (e^(input_scale * self) - 1))``."""
    slopes = float(alpha * scale * input_scale), float(scale), float(input_scale)
    return _elu_backward((grad, self), slopes, None)


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


KERNELS: dict[str, Callable[..., Any]] = {
    "addcdiv": addcdiv,
    "addcmul": addcmul,
    "celu": celu,
    "clamp": clamp,
    "elu": elu,
    "elu_backward": elu_backward,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "hardtanh": hardtanh,
    "hardtanh_backward": hardtanh_backward,
    "lerp": lerp,
    "relu6": relu6,
    "selu": selu,
    "threshold": threshold,
}
WHEN: dict[str, Callable[..., bool]] = {
    "addcdiv": _accepts(3, 1),
    "addcmul": _accepts(3, 1),
    "celu": _accepts(1, 1),
    "clamp": _accepts(1, 2, True),
    "elu": _accepts(1, 1),
    "elu_backward": _accepts(2, 3),
    "hardsigmoid": _accepts(1, 0),
    "hardswish": _accepts(1, 0),
    "hardtanh": _accepts(1, 2),
    "hardtanh_backward": _accepts(2, 2),
    "lerp": _accepts(2, 1),
    "relu6": _accepts(1, 0),
    "selu": _accepts(1, 0),
    "threshold": _accepts(1, 2),
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
