"""Elementwise kernels.

Functions whose loop beats NumPy's in one thread take over at a small size; those that are bound
by memory, or that NumPy has vectorized as well, where two threads share the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import POINTWISE, is_dense, is_like, may_write
from coredispatch_cpu_numba.entries import Loop

__all__ = ["BINARY", "COMPARISON", "KERNELS", "LEAST", "UNARY", "WHEN", "accepts_two"]

Kernel = Callable[..., Any]
Predicate = Callable[..., bool]

#: op -> (least size, size from which the work is split among threads)
UNARY = {
    "abs": (65536, 65536),
    "cos": (1024, 24576),
    "erf": (256, 16384),
    "exp": (4096, 24576),
    "log": (24576, 24576),
    "neg": (65536, 65536),
    "reciprocal": (8192, 49152),
    "relu": (1024, 65536),
    "rsqrt": (256, 32768),
    "sigmoid": (256, 24576),
    "sin": (1024, 24576),
    "silu": (256, 24576),
    "sqrt": (4096, 32768),
    "square": (65536, 65536),
    "tanh": (24576, 24576),
}
BINARY = {
    "add": (65536, 65536),
    "sub": (65536, 65536),
    "mul": (65536, 65536),
    "div": (65536, 65536),
    "maximum": (65536, 65536),
    "minimum": (65536, 65536),
    "sigmoid_backward": (1024, 65536),
    "silu_backward": (256, 24576),
    "tanh_backward": (1024, 65536),
}
COMPARISON = dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), (65536, 65536))


# ---- one array --------------------------------------------------------------------------------


def _unary(name: str, split: int) -> Kernel:
    fresh = Loop("elementwise.pointwise", name, split)
    compiled = fresh.compiled
    inplace = Loop("elementwise.pointwise", f"{name}_inplace", split)

    def kernel(self: np.ndarray, out: Any = None) -> np.ndarray:
        size, dtype = self.size, self.dtype
        if out is None:
            out = np.empty(self.shape, dtype)
            if size < split:  # Loop.__call__ written out: 0.15 us of the 0.7 for 1,000 elements
                launch, task, _ = compiled[dtype]
                launch(self, out, size, size, task, 0)
            else:
                fresh(dtype, size, size, self, out)
        elif out is self and out.flags.writeable:
            inplace(dtype, size, size, self)
        elif may_write(out, self, self):
            fresh(dtype, size, size, self, out)
        else:
            np.copyto(out, kernel(self), casting="same_kind")
        return out

    kernel.__name__ = name
    return kernel


def _accepts_one(least: int) -> Predicate:
    def accepts(self: Any, *_: Any) -> bool:
        return self.size >= least and self.dtype in POINTWISE and self.flags.c_contiguous

    return accepts


_gelu = {
    "none": Loop("elementwise.pointwise", "gelu", 16384),
    "tanh": Loop("elementwise.pointwise", "gelu_tanh", 24576),
}
_gelu_backward = {
    "none": Loop("elementwise.pointwise", "gelu_backward", 16384),
    "tanh": Loop("elementwise.pointwise", "gelu_tanh_backward", 24576),
}


def gelu(self: np.ndarray, approximate: str) -> np.ndarray:
    """``x P(N <= x)`` or its tanh form."""
    out = np.empty(self.shape, self.dtype)
    _gelu[approximate](self.dtype, self.size, self.size, self, out)
    return out


def gelu_backward(grad: np.ndarray, self: np.ndarray, approximate: str) -> np.ndarray:
    """Gradient of :func:`gelu`."""
    out = np.empty(self.shape, self.dtype)
    _gelu_backward[approximate](self.dtype, self.size, self.size, grad, self, out)
    return out


# ---- two arrays, or an array and a number -----------------------------------------------------


def _binary(name: str, split: int, result: Any = None) -> Kernel:
    """``result`` is the dtype of the result where it is not that of the operands."""
    fresh = Loop("elementwise.pointwise", name, split)
    number = Loop("elementwise.pointwise", f"{name}_scalar", split)
    row = Loop("elementwise.pointwise", f"{name}_row", split)
    inplace = Loop("elementwise.pointwise", f"{name}_inplace", split)
    inplace_number = Loop("elementwise.pointwise", f"{name}_scalar_inplace", split)

    def compute(self: np.ndarray, other: Any, out: np.ndarray) -> None:
        size, dtype = self.size, self.dtype
        if type(other) is not np.ndarray:
            number(dtype, size, size, self, float(other), out)
        elif other.shape == self.shape:
            fresh(dtype, size, size, self, other, out)
        else:
            width = other.size
            row(dtype, size, size // width, self, other, out, weight=width)

    def kernel(self: np.ndarray, other: Any, out: Any = None) -> np.ndarray:
        size, dtype = self.size, self.dtype
        if out is None:
            out = np.empty(self.shape, dtype if result is None else result)
            compute(self, other, out)
            return out
        if out is self and result is None and may_write(out, self, other):
            if type(other) is not np.ndarray:
                inplace_number(dtype, size, size, self, float(other))
                return out
            if other.shape == self.shape:
                inplace(dtype, size, size, self, other)
                return out
            return NotImplemented  # a row: the loop would read slowly what it writes
        if result is None and may_write(out, self, self, other):
            compute(self, other, out)
        else:
            np.copyto(out, kernel(self, other), casting="same_kind")
        return out

    kernel.__name__ = name
    return kernel


_EXACT = 2**53  # integers up to here are float64


def accepts_two(least: int, rows: bool, dtypes: Any = POINTWISE) -> Predicate:
    """Equal shapes, a number as second operand, or (``rows``) a row for each row of the first."""

    def accepts(self: Any, other: Any, *_: Any) -> bool:
        if type(self) is not np.ndarray or self.size < least or self.dtype not in dtypes:
            return False
        if not self.flags.c_contiguous:
            return False
        if type(other) is not np.ndarray:
            return type(other) is float or (type(other) is int and -_EXACT <= other <= _EXACT)
        if is_like(other, self):
            return True
        return bool(
            rows
            and other.ndim == 1
            and other.size >= 16
            and other.shape[0] == self.shape[-1]
            and other.dtype == self.dtype
            and other.flags.c_contiguous
        )

    return accepts


def _accepts_pair(least: int) -> Predicate:
    """Two arrays of equal shape and dtype."""

    def accepts(grad: Any, other: Any, *_: Any) -> bool:
        return is_dense(grad, least, POINTWISE) and is_like(other, grad)

    return accepts


# ---- with a parameter -------------------------------------------------------------------------

_SPLIT_LEAKY = 65536
_leaky_relu = Loop("elementwise.pointwise", "leaky_relu_scalar", _SPLIT_LEAKY)
_few_leaky_relu = _leaky_relu.compiled
_leaky_relu_inplace = Loop("elementwise.pointwise", "leaky_relu_scalar_inplace", 65536)
_leaky_relu_backward = Loop("elementwise.pointwise", "leaky_relu_backward", 65536)
_where = Loop("elementwise.pointwise", "where", 65536)
_LEAST_WHERE = 512
_threshold_backward = Loop("elementwise.pointwise", "threshold_backward", 65536)


def leaky_relu(self: np.ndarray, negative_slope: float, out: Any = None) -> np.ndarray:
    """``x`` where positive, else ``negative_slope * x``."""
    size, own = self.size, self.dtype
    if out is None and size < _SPLIT_LEAKY:  # Loop.__call__ written out
        launch, task, _ = _few_leaky_relu[own]
        out = np.empty(self.shape, own)
        launch(self, float(negative_slope), out, size, size, task, 0)
        return out
    if out is self and out.flags.writeable:
        _leaky_relu_inplace(self.dtype, size, size, self, float(negative_slope))
        return out
    fits = out is not None and may_write(out, self, self)
    result = out if fits else np.empty(self.shape, self.dtype)
    _leaky_relu(self.dtype, size, size, self, float(negative_slope), result)
    if out is None or fits:
        return result
    np.copyto(out, result, casting="same_kind")
    return out


def threshold_backward(grad: np.ndarray, self: np.ndarray, threshold: Any) -> np.ndarray:
    """``grad`` where ``self > threshold``, else 0."""
    size = grad.size
    out = np.empty(grad.shape, grad.dtype)
    _threshold_backward(grad.dtype, size, size, grad, self, float(threshold), out)
    return out


def leaky_relu_backward(grad: np.ndarray, self: np.ndarray, negative_slope: float) -> np.ndarray:
    """``grad`` where ``self > 0``, else ``negative_slope * grad``."""
    size = grad.size
    out = np.empty(grad.shape, grad.dtype)
    _leaky_relu_backward(grad.dtype, size, size, grad, self, float(negative_slope), out)
    return out


def where(condition: np.ndarray, self: np.ndarray, other: np.ndarray) -> np.ndarray:
    """``self`` where ``condition``, else ``other``."""
    size, own = self.size, self.dtype
    out = np.empty(self.shape, own)
    _where(own, size, size, condition, self, other, out)
    return out


def _accepts_where(condition: Any, self: Any, other: Any) -> bool:
    return (
        is_dense(self, _LEAST_WHERE, POINTWISE)
        and is_like(other, self)
        and type(condition) is np.ndarray
        and condition.shape == self.shape
        and condition.dtype.kind == "b"
        and bool(condition.flags.c_contiguous)
    )


KERNELS: dict[str, Kernel] = {
    "leaky_relu_backward": leaky_relu_backward,
    "where": where,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "leaky_relu": leaky_relu,
    "threshold_backward": threshold_backward,
}
WHEN: dict[str, Predicate] = {
    "gelu": _accepts_one(256),
    "gelu_backward": _accepts_pair(256),
    "leaky_relu": _accepts_one(256),
    "leaky_relu_backward": _accepts_pair(1024),
    "where": _accepts_where,
    "threshold_backward": _accepts_pair(2048),
}
for _name, (_least, _split) in UNARY.items():
    KERNELS[_name], WHEN[_name] = _unary(_name, _split), _accepts_one(_least)
for _name, (_least, _split) in BINARY.items():
    KERNELS[_name] = _binary(_name, _split)
    WHEN[_name] = _accepts_pair(_least) if _name.endswith("backward") else accepts_two(_least, True)
for _name, (_least, _split) in COMPARISON.items():
    KERNELS[_name] = _binary(_name, _split, np.bool_)
    WHEN[_name] = accepts_two(_least, False)

#: asked before any predicate: small calls must not pay for this pack
LEAST: dict[str, int] = {
    **{name: least for name, (least, _) in {**UNARY, **BINARY, **COMPARISON}.items()},
    "gelu": 256,
    "gelu_backward": 256,
    "leaky_relu": 256,
    "leaky_relu_backward": 1024,
    "where": _LEAST_WHERE,
    "threshold_backward": 2048,
}
