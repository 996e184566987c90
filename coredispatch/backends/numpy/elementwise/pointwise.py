"""Elementwise kernels: NumPy's ufuncs, as bare as correctness allows.

A ufunc that cannot raise a floating-point flag is the kernel itself. The others - ``add`` among
them, for infinity minus infinity is an ordinary result in a training run - go through
:mod:`.silence`, which costs 0.1 us.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.backends.dtypes import stored
from coredispatch.backends.numpy.elementwise.error_functions import erf
from coredispatch.backends.numpy.shape.views import owner_of
from coredispatch.backends.numpy.silence import silent, silent_binary, silent_unary
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import check_reinterpreted

__all__ = ["KERNELS"]


# ---- quotients --------------------------------------------------------------------------------


def _checked(ufunc: np.ufunc) -> Callable[..., Any]:
    """Integer division by zero is an error, where NumPy warns and returns 0."""
    quiet = silent_binary(ufunc)

    def kernel(a: Any, b: Any, out: Any = None) -> Any:
        array = type(b) is np.ndarray
        kind = b.dtype.kind if array else a.dtype.kind
        if kind in "iub" and not (np.all(b) if array else b) and np.size(a):
            raise ZeroDivisionError("integer division or modulo by zero")
        return quiet(a, b, out)

    kernel.__name__ = ufunc.__name__
    return kernel


@silent
def trunc_divide(a: Any, b: Any) -> Any:
    """Quotient cut off towards zero; exact for integers of any size."""
    dtype = a.dtype if type(a) is np.ndarray else b.dtype
    if dtype.kind not in "iu":
        if dtype.itemsize > 2:
            return np.trunc(np.true_divide(a, b))
        # A quotient rounded to half precision may reach the next whole number.
        wide = (x.astype(np.float32) if type(x) is np.ndarray else x for x in (a, b))
        return np.trunc(np.true_divide(*wide)).astype(dtype)
    if not np.all(b):
        raise ZeroDivisionError("integer division by zero")
    quotient = np.floor_divide(a, b)
    if dtype.kind == "u":
        return quotient
    inexact = np.multiply(quotient, b) != a
    return quotient + (inexact & (quotient < 0))


# ---- powers -----------------------------------------------------------------------------------

_power = silent_binary(np.power)


def pow(base: Any, exponent: Any, out: Any = None) -> Any:
    """Power; squares, cubes and roots without NumPy's general loop, which is ten times slower."""
    if (type(exponent) is int or type(exponent) is float) and base.dtype.kind == "f":
        if exponent == 2:
            return _square(base, out)
        if exponent == 3:
            return _cube(base, out)
        if exponent == 0.5:
            return _root(base, out)
    elif type(exponent) is np.ndarray:
        kind = exponent.dtype.kind
        if kind == "i" and (exponent < 0).any():
            return _integer_power(base, exponent)
        if kind == "b" and (type(base) is bool or base.dtype.kind == "b"):
            return _truth_power(base, exponent, out)
    elif type(exponent) is bool and base.dtype.kind == "b":
        return _truth_power(base, exponent, out)
    return _power(base, exponent, out)


def _truth_power(base: Any, exponent: Any, out: Any) -> Any:
    """Bool to the power of bool, which NumPy has as int8: false for false to the power of true."""
    return np.logical_or(base, np.logical_not(exponent), out)


def _integer_power(base: Any, exponent: np.ndarray) -> Any:
    """Integers to integer powers, the negative ones cut off to 0, 1 or -1."""
    power = np.power(base, np.maximum(exponent, 0))
    sign = np.where(exponent & 1, base, base * base)
    inverse = np.where((base == 1) | (base == -1), sign, 0)
    return np.where(exponent < 0, inverse, power).astype(power.dtype)


_square = silent_unary(np.square)


def square(x: np.ndarray, out: Any = None) -> Any:
    """``x * x``; int64 of bool."""
    return _square(x, out) if x.dtype.kind != "b" else x.astype(np.int64)


@silent
def _root(x: np.ndarray, out: Any) -> Any:
    # The power of -0.0 is 0.0, and that of -inf is inf, of which the square root is NaN.
    if x.itemsize == 2 or not x.size or not x.min() > -np.inf:
        return np.power(x, x.dtype.type(0.5), out)
    return np.sqrt(np.add(x, x.dtype.type(0), out), out)


@silent
def _cube(x: np.ndarray, out: Any) -> Any:
    if x.itemsize == 2:
        return np.power(x, x.dtype.type(3), out)
    return np.multiply(np.square(x), x, out)


@silent
def rsqrt(x: np.ndarray, out: Any = None) -> Any:
    """``1 / sqrt(x)``."""
    root = np.sqrt(x, out)
    return np.divide(root.dtype.type(1), root, root if type(root) is np.ndarray else None)


@silent
def sigmoid(x: np.ndarray, out: Any = None) -> Any:
    """``exp(x) / (exp(x) + 1)``, in float32 for half precision.

    ``1 / (1 + exp(-x))`` would be 0 where ``exp(-x)`` overflows and the result does not underflow
    yet. Where ``exp(x)`` would, the result is 1.
    """
    if x.dtype.kind == "c":
        return np.divide(1, np.add(np.exp(np.negative(x)), 1), out, dtype=x.dtype)
    wide = x.astype(np.float32) if x.itemsize == 2 else x
    limit = wide.dtype.type(700 if wide.itemsize == 8 else 80)
    if x.ndim == 0 and x.itemsize != 2:
        y = np.exp(np.minimum(x, limit))
        return np.divide(y, np.add(y, y.dtype.type(1)), out)
    fitting = out if out is not None and out.dtype == wide.dtype else None
    y = np.minimum(wide, limit, out=fitting)
    y = np.asarray(np.exp(y, y if y.ndim else None))
    np.divide(y, np.add(y, y.dtype.type(1)), y)
    if y.dtype == x.dtype:
        return y
    if out is None:
        return y.astype(x.dtype)
    np.copyto(out, y, casting="unsafe")
    return out


@silent
def sigmoid_backward(grad: np.ndarray, y: np.ndarray) -> Any:
    """``grad * y * (1 - y)`` for ``y = sigmoid(x)``."""
    one = y.dtype.type(1)
    if y.dtype.kind == "c" or y.ndim == 0:
        return grad * np.conj(y * (one - y))
    slope = np.subtract(one, y)
    np.multiply(slope, y, slope)
    return np.multiply(grad, slope, slope if slope.shape == grad.shape else None)


@silent
def tanh_backward(grad: np.ndarray, y: np.ndarray) -> Any:
    """``grad * (1 - y**2)`` for ``y = tanh(x)``."""
    one = y.dtype.type(1)
    if y.dtype.kind == "c" or y.ndim == 0:
        return grad * np.conj(one - y * y)
    slope = np.multiply(y, y)
    np.subtract(one, slope, slope)
    return np.multiply(grad, slope, slope if slope.shape == grad.shape else None)


# ---- selection and bounds ---------------------------------------------------------------------


def where(condition: np.ndarray, a: Any, b: Any) -> Any:
    """``a`` where ``condition``, else ``b``; a number takes the dtype of the other branch."""
    if condition.dtype.kind != "b":
        if condition.dtype != np.uint8:
            # A plain TypeError: the dispatcher asks first whether the shapes fit.
            raise TypeError(f"the condition must be bool, got {condition.dtype}")
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be "
            "removed in a future version of PyTorch. Use a boolean condition instead."
        )
        condition = condition != 0
    if type(a) is not np.ndarray:
        a = _number(a, b.dtype) if type(b) is np.ndarray else np.asarray(a, _common(a, b))
    if type(b) is not np.ndarray:
        b = _number(b, a.dtype)
    return np.where(condition, a, b)


def _number(number: Any, dtype: np.dtype) -> Any:
    return dtype.type(number) if dtype.names is None else stored(np.asarray(number), dtype)


def _common(a: Any, b: Any) -> Any:
    """dtype of a choice between two numbers."""
    from coredispatch.backends.dtypes import numpy_dtype
    from coredispatch.registry.model.dtypes import result_type

    return numpy_dtype(result_type(a, b))


_BLOCK = 8192
_BLOCK_OF_SMALL = 32768  # of one or two bytes each, where calls are what takes time
_NUMBERS = (float, int)
_WHOLE_BOUNDS = (int, type(None))
_clip = np._core.umath.clip  # the ufunc: the method takes 2 us for its arguments


@functools.lru_cache(maxsize=64)
def _constants(value: Any, dtype: np.dtype) -> np.ndarray:
    """A block of one value."""
    return np.full(_BLOCK if dtype.itemsize > 2 else _BLOCK_OF_SMALL, value, dtype)


def bounded(ufunc: np.ufunc, x: np.ndarray, value: Any, out: Any = None) -> Any:
    """``maximum`` or ``minimum`` of an array and a number.

    NumPy has vector code for two arrays only. Measured on 1e6 float32: 570 us with a number,
    190 us block by block with an array of it.
    """
    if x.size < 1024 or x.dtype.kind not in "fiu" or not x.flags.c_contiguous:
        return ufunc(x, x.dtype.type(value), out=out)
    if out is None:
        out = np.empty(x.shape, x.dtype)
    elif not out.flags.c_contiguous or out.dtype != x.dtype or out.shape != x.shape:
        return ufunc(x, x.dtype.type(value), out=out)
    constant = _constants(value, x.dtype)
    flat, result = x.reshape(-1), out.reshape(-1)
    block = constant.size
    for start in range(0, flat.size, block):
        part = flat[start : start + block]
        ufunc(part, constant[: part.size], out=result[start : start + block])
    return out


def _bound(ufunc: np.ufunc, x: np.ndarray, bound: Any, out: Any) -> Any:
    if type(bound) is np.ndarray:
        return ufunc(x, bound, out=out)
    if x.dtype.kind == "f" or (type(bound) is int and x.dtype.kind in "iu"):
        return bounded(ufunc, x, bound, out)
    return ufunc(x, bound, out=out)


@silent
def clamp(x: np.ndarray, low: Any, high: Any, out: Any = None) -> Any:
    """``minimum(maximum(x, low), high)``; a bound of None does nothing."""
    kind = x.dtype.kind
    if kind in "iu" and type(low) in _WHOLE_BOUNDS and type(high) in _WHOLE_BOUNDS:
        if low is None and high is None:
            raise ArgumentError("clamp needs min or max", fix="give at least one bound")
        limits, bound = np.iinfo(x.dtype), x.dtype.type
        least = bound(limits.min if low is None else low)
        most = bound(limits.max if high is None else high)
        return _clip(x, least, most, out)  # one pass, in vectors
    if type(low) in _NUMBERS and type(high) in _NUMBERS and x.size < 1024 and kind == "f":
        return x.clip(low, high, out)  # one pass over few elements
    if low is None:
        if high is None:
            raise ArgumentError("clamp needs min or max", fix="give at least one bound")
        return _bound(np.minimum, x, high, out)
    raised = _bound(np.maximum, x, low, out)
    if high is None:
        return raised
    inside = type(raised) is np.ndarray and raised.shape == np.broadcast(raised, high).shape
    if type(raised) is not np.ndarray:
        return np.minimum(raised, high)
    return _bound(np.minimum, raised, high, raised if inside else None)


def left_shift(x: Any, count: Any, out: Any = None) -> Any:
    """``x * 2**count``, in vectors where ``count`` is one number; what leaves the type is lost."""
    if type(count) is int and type(x) is np.ndarray and x.ndim and x.dtype.kind in "iu":
        if 0 <= count < 8 * x.itemsize:
            return np.multiply(x, np.left_shift(x.dtype.type(1), x.dtype.type(count)), out)
    return np.left_shift(x, count, out)


def sign(x: np.ndarray, out: Any = None) -> Any:
    """-1, 0 or 1."""
    if x.dtype.kind not in "bV":
        return np.sign(x, out)
    # ml_dtypes keeps the sign of zero.
    signs = x if x.dtype.kind == "b" else np.sign(x.astype(np.float32))
    if out is None:
        return signs.astype(x.dtype)
    np.copyto(out, signs, casting="same_kind")
    return out


def _whole(ufunc: np.ufunc) -> Callable[..., Any]:
    """Rounding leaves integers alone (``np.rint`` would make them floating)."""
    quiet = silent_unary(ufunc)

    def kernel(x: np.ndarray, out: Any = None) -> Any:
        if x.dtype.kind not in "iub":
            return quiet(x, out)
        if out is None:
            return x.copy()
        np.copyto(out, x)
        return out

    kernel.__name__ = ufunc.__name__
    return kernel


# ---- complex numbers --------------------------------------------------------------------------

_PARTS = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}
_WHOLE = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}


def conj_physical(x: np.ndarray) -> Any:
    """The complex conjugate in new memory."""
    return np.conjugate(x) if x.dtype.kind == "c" else x.copy()


def view_as_real(x: np.ndarray) -> np.ndarray:
    """The parts of ``x`` as a view with a last dimension of 2."""
    if x.dtype.kind != "c":
        raise DTypeError(f"view_as_real needs a complex tensor, got {x.dtype}")
    return x[..., None].view(_PARTS[x.dtype])


def view_as_complex(x: np.ndarray) -> np.ndarray:
    """The last dimension of ``x``, of size 2, as complex numbers over the same memory."""
    if x.dtype not in _WHOLE:
        raise DTypeError(f"view_as_complex needs float32 or float64, got {x.dtype}")
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(f"the last dimension must have size 2, got {x.shape}")
    if x.strides[-1] != x.itemsize and x.size:
        raise ShapeError("the last dimension must be contiguous", fix="call x.contiguous() first")
    if not x.size:
        x = np.ascontiguousarray(x)
    whole = np.dtype(_WHOLE[x.dtype])
    names = f"{x.dtype} as {whole}"
    check_reinterpreted(x.shape, x.strides, owner_of(x)[1], x.itemsize, whole.itemsize, names)
    return x.view(whole)[..., 0]


_UNARY = {
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.asin,
    "acos": np.acos,
    "atan": np.atan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.asinh,
    "acosh": np.acosh,
    "atanh": np.atanh,
}


def logaddexp(a: Any, b: Any, out: Any = None) -> Any:
    """``log(exp(a) + exp(b))``, which NumPy has for real numbers alone."""
    if a.dtype.kind != "c":
        return np.logaddexp(a, b, out=out)
    larger = a.real >= b.real
    high, low = np.where(larger, a, b), np.where(larger, b, a)
    rest = np.log1p(np.exp(low - high))
    return np.add(high, np.where(high == low, rest.dtype.type(math.log(2)), rest), out=out)


def nextafter(a: Any, b: Any, out: Any = None) -> Any:
    """The next number towards ``b``. Of two zeros it is ``b``; NumPy's in float16 is ``a``."""
    if a.dtype != np.float16:
        return np.nextafter(a, b, out=out)
    found = np.where(a == b, b, np.nextafter(a, b))
    if out is None:
        return found
    out[...] = found
    return out


def _plain(*arrays: Any) -> bool:
    """Whether these are arrays of one dtype that is computed in as it is."""
    dtype = getattr(arrays[0], "dtype", None)
    if dtype not in _COMPUTED:
        return False
    return all(type(x) is np.ndarray and x.dtype == dtype for x in arrays)


_COMPUTED = tuple(map(np.dtype, (np.float32, np.float64)))


def _room(x: Any) -> Any:
    """``x`` for a result of its shape; None for a scalar, which cannot be written to."""
    return x if type(x) is np.ndarray else None


@silent
def lerp(start: Any, end: Any, weight: Any, out: Any = None) -> Any:
    """``start + weight * (end - start)`` from the nearer end, by a number."""
    if not _plain(start, end) or type(weight) not in (float, int):
        return NotImplemented
    distance = np.subtract(end, start)
    if abs(weight) < 0.5:
        return np.add(start, np.multiply(distance, weight, _room(distance)), out)
    return np.subtract(end, np.multiply(distance, 1 - weight, _room(distance)), out)


def _multiple(op: np.ufunc) -> Callable[..., Any]:
    """``x + value * op(a, b)``"""

    @silent
    def kernel(x: Any, a: Any, b: Any, value: Any, out: Any = None) -> Any:
        if not _plain(x, a, b) or type(value) not in (float, int):
            return NotImplemented
        term = op(a, b)
        if value != 1:
            term = np.multiply(term, value, _room(term))
        return np.add(x, term, out)

    return kernel


_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "hypot": np.hypot,
    "atan2": np.atan2,
    "logaddexp": logaddexp,
    "logaddexp2": np.logaddexp2,
    "nextafter": nextafter,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

KERNELS: dict[str, Callable[..., Any]] = {
    **{op: silent_unary(ufunc) for op, ufunc in _UNARY.items()},
    **{op: silent_binary(ufunc) for op, ufunc in _BINARY.items()},
    "neg": np.negative,
    "abs": np.abs,
    "sign": sign,
    "signbit": np.signbit,
    "copysign": np.copysign,
    "gcd": np.gcd,
    "lcm": np.lcm,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.bitwise_not,
    "bitwise_left_shift": left_shift,
    "bitwise_right_shift": np.right_shift,
    "remainder": _checked(np.remainder),
    "floor_divide": _checked(np.floor_divide),
    "fmod": _checked(np.fmod),
    "trunc_divide": trunc_divide,
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "trunc": _whole(np.trunc),
    "round": _whole(np.rint),
    "pow": pow,
    "square": square,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "sigmoid_backward": sigmoid_backward,
    "tanh_backward": tanh_backward,
    "where": where,
    "clamp": clamp,
    "lerp": lerp,
    "addcmul": _multiple(np.multiply),
    "addcdiv": _multiple(np.true_divide),
    "view_as_real": view_as_real,
    "view_as_complex": view_as_complex,
    "conj_physical": conj_physical,
    "erf": erf,
}
