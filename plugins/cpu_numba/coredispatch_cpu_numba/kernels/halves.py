"""Half precision: operators that compute in float32, and conversions.

A kernel here takes bfloat16 and float16 arrays where no loop reads them as they are: it converts
them, has the float32 kernels of the table compute (this pack's or NumPy's), and rounds the results
once. What NumPy's own kernels do for half precision is the same, but their conversions take three
to twenty times as long, and none of this pack's loops serves them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DType, OpError, call_raw, dtypes, numpy_dtype
from coredispatch_cpu_numba.arrays import HALVES
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.elementwise import pairs, special

__all__ = ["KERNELS", "LEAST", "PRIORITY", "WHEN"]

#: below the kernels that read half precision themselves, and below those for float32, whose calls
#: therefore never meet a predicate of these
PRIORITY = 5
_LEAST = 2048
_FLOAT32 = np.dtype(np.float32)
_narrow = Loop("halves", "narrow", 65536)
_widen = Loop("halves", "widen", 65536)


def widened(x: np.ndarray) -> np.ndarray:
    """``x``, of half precision, in float32 and the same order of dimensions."""
    if x.dtype.kind == "f" and x.flags.c_contiguous and x.size >= 64:
        out = np.empty(x.shape, _FLOAT32)
        _widen(x.dtype, x.size, x.size, x, out)
        return out
    return x.astype(_FLOAT32)  # ml_dtypes shifts bits, too


def narrowed(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """``x``, of float32, in ``dtype``, rounded to the nearest."""
    if x.size < 64 or not x.flags.c_contiguous:
        with np.errstate(over="ignore"):  # what is too large becomes infinite
            return x.astype(dtype)
    out = np.empty(x.shape, dtype)
    _narrow(dtype, x.size, x.size, x, out)
    return out


def _is_half(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in HALVES


def _in_float32(name: str, kept: tuple[int, ...] = (), numbers: bool = False) -> Callable[..., Any]:
    """The kernels of operator ``name`` for float32; results at ``kept`` are not rounded.

    With ``numbers`` an array without dimensions is passed as a number.
    """

    def kernel(*args: Any) -> Any:
        dtype = next(a.dtype for a in args if _is_half(a))
        wide = [
            (float(a) if numbers and not a.ndim else widened(a)) if _is_half(a) else a for a in args
        ]
        try:
            result = call_raw(name, "cpu", *wide)
        except OpError:
            return NotImplemented  # NumPy's kernel says what is wrong, with the dtypes as given
        if type(result) is tuple:
            return tuple(
                narrowed(r, dtype) if r.dtype == _FLOAT32 and i not in kept else r
                for i, r in enumerate(result)
            )
        return narrowed(result, dtype)

    kernel.__name__ = name
    return kernel


def _accepts(*args: Any) -> bool:
    """Whether the first array is of half precision, and the others of it, float32 or no floats.

    Where a dtype is asked for, the result is not to be rounded: that is left to NumPy's kernels.
    """
    found = None
    for x in args:
        if type(x) is np.ndarray:
            dtype = x.dtype
            if found is None:
                if dtype not in HALVES:
                    return False
                found = dtype
            elif dtype != found and dtype != _FLOAT32 and dtype.kind not in "iub":
                return False
        elif type(x) is DType:
            return False
    return found is not None


def _accepts_alike(*args: Any) -> bool:
    """Whether all arrays are of one half-precision dtype, the first of contiguous memory."""
    first = args[0]
    if not _is_half(first) or not first.flags.c_contiguous:
        return False
    return not any(type(x) is np.ndarray and x.dtype != first.dtype for x in args)


def to_dtype(self: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy in ``dtype``."""
    target = numpy_dtype(dtype)
    return widened(self) if target == _FLOAT32 else narrowed(self, target)


def _accepts_conversion(self: Any, dtype: Any) -> bool:
    """float32 to half precision and back, of contiguous arrays."""
    if type(self) is not np.ndarray or not self.flags.c_contiguous:
        return False
    if self.dtype == _FLOAT32:
        return dtype is dtypes.bfloat16 or dtype is dtypes.float16
    return dtype is dtypes.float32 and self.dtype in HALVES


#: operators, and the results that NumPy's kernels leave in float32
_OPERATORS: dict[str, tuple[int, ...]] = {
    "adaptive_avg_pool": (),
    "adaptive_avg_pool_backward": (),
    "attention": (),
    "attention_backward": (),
    "avg_pool": (),
    "avg_pool_backward": (),
    "batch_norm_inference": (),
    "batch_norm_train": (1, 2),
    "batch_norm_train_backward": (1, 2),
    "bmm": (),
    "conv_input_grad": (),
    "conv_weight_grad": (),
    "convolution": (),
    "cross_entropy": (),
    "cross_entropy_backward": (),
    "group_norm": (),
    "group_norm_backward": (),
    "layer_norm": (),
    "layer_norm_backward": (),
    "linear": (),
    "linear_weight_grad": (),
    "log_softmax": (),
    "log_softmax_backward": (),
    "lstm_sequence": (),
    "lstm_sequence_backward": (),
    "matmul": (),
    "max_pool": (),
    "max_pool_backward": (),
    "mm": (),
    "rms_norm": (),
    "rms_norm_backward": (),
    "softmax": (),
    "softmax_backward": (),
    "sum": (),
    "mean": (),
}
#: where NumPy takes more than twice as long from few elements on
_REDUCTIONS = ("amax", "amin", "cumprod", "cumsum", "prod")

#: element by element: what is of another dtype changes that of the result
_ELEMENTWISE = (*special.KERNELS, *(name for name in pairs.KERNELS if name != "nextafter"))
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _in_float32(name, kept) for name, kept in _OPERATORS.items()},
    **{name: _in_float32(name) for name in _REDUCTIONS},
    **{name: _in_float32(name, numbers=True) for name in _ELEMENTWISE},
    "to_dtype": to_dtype,
}
WHEN: dict[str, Callable[..., bool]] = {
    **dict.fromkeys((*_OPERATORS, *_REDUCTIONS), _accepts),
    **dict.fromkeys(_ELEMENTWISE, _accepts_alike),
    "to_dtype": _accepts_conversion,
}
#: of attention NumPy has no kernel, only the decomposition
LEAST: dict[str, int] = {
    name: 256 if name in (*_ELEMENTWISE, *_REDUCTIONS) else _LEAST
    for name in KERNELS
    if name not in ("attention", "attention_backward")
}
