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
from coredispatch_cpu_numba.arrays import HALVES, overlap
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.elementwise import pairs, special
from coredispatch_cpu_numba.kernels.reduction import scans, sums

__all__ = ["KERNELS", "LEAST", "PRIORITY", "WHEN"]

#: below the kernels that read half precision themselves, and below those for float32, whose calls
#: therefore never meet a predicate of these
PRIORITY = 5
_LEAST, _FEW = 2048, 256
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


def _in_float32(
    name: str,
    kept: tuple[int, ...] = (),
    numbers: bool = False,
    own: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The kernels of operator ``name`` for float32; results at ``kept`` are not rounded.

    With ``numbers`` an array without dimensions is passed as a number. ``own`` is a kernel of this
    pack that takes most calls: finding it in the table takes longer than few elements.
    """

    def kernel(*args: Any) -> Any:
        dtype = next(a.dtype for a in args if _is_half(a))
        wide = [
            (float(a) if numbers and not a.ndim else widened(a)) if _is_half(a) else a for a in args
        ]
        if own is not None:
            result = own(*wide)
            if result is not NotImplemented:
                return narrowed(result, dtype)
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


def to_dtype(self: np.ndarray, dtype: Any) -> Any:
    """A copy in ``dtype``, by way of float32, which holds all numbers of half precision."""
    own, target = self.dtype, numpy_dtype(dtype)
    if own not in HALVES:
        wide = self if own == _FLOAT32 else self.astype(_FLOAT32)
        if target not in _OVERFLOWING and own.kind != "b" and own.itemsize > 2:
            # float32 has rounded what is larger, and bfloat16 would round it once more.
            if own != _FLOAT32 and not -_WHOLE < wide.min() <= wide.max() < _WHOLE:
                return NotImplemented
        return narrowed(wide, target)
    wide = widened(self)
    if target == _FLOAT32:
        return wide
    if target in HALVES:
        return narrowed(wide, target)
    with np.errstate(invalid="ignore"):  # as C converts what does not fit
        return wide.astype(target)


#: whole numbers below are float32
_WHOLE = 1 << 24
#: the dtype in which whole numbers that are not float32 are infinite
_OVERFLOWING = {np.dtype(np.float16)}
_WHOLE_NUMBERS = frozenset("?bBhHiIlLqQ")
_CONVERTED = {
    dtypes.bfloat16: frozenset("fe") | _WHOLE_NUMBERS,
    dtypes.float16: frozenset("fE") | _WHOLE_NUMBERS,
    **dict.fromkeys(
        (
            dtypes.float32, dtypes.float64, dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16,
            dtypes.int32, dtypes.int64,
        ),
        frozenset("eE"),
    ),
}  # fmt: skip


def _accepts_conversion(self: Any, dtype: Any) -> bool:
    """Half precision from and to real numbers that it has no other way to than float32."""
    if type(self) is not np.ndarray:
        return False
    given = _CONVERTED.get(dtype)
    return given is not None and self.dtype.char in given and bool(self.flags.c_contiguous)


def copy_(self: np.ndarray, src: np.ndarray, non_blocking: bool) -> Any:
    """Write ``src`` into ``self``, one of float32 and one of half precision."""
    if overlap(self, src):
        return NotImplemented
    loop, half = (_narrow, self) if src.dtype == _FLOAT32 else (_widen, src)
    loop(half.dtype, src.size, src.size, src, self)
    return None


def _accepts_copy(self: Any, src: Any, *_: Any) -> bool:
    if type(src) is not np.ndarray or src.shape != self.shape or not self.flags.writeable:
        return False
    one, other = self.dtype, src.dtype
    if not (one == _FLOAT32 and other in HALVES or other == _FLOAT32 and one in HALVES):
        return False
    return bool(self.flags.c_contiguous and src.flags.c_contiguous)


#: operators, and the results that NumPy's kernels leave in float32
_OPERATORS: dict[str, tuple[int, ...]] = {
    "adaptive_avg_pool": (),
    "adaptive_avg_pool_backward": (),
    "attention": (),
    "attention_backward": (),
    "attention_dropout": (),
    "attention_dropout_backward": (),
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
    "gru_sequence": (),
    "gru_sequence_backward": (),
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
    "rnn_sequence": (),
    "rnn_sequence_backward": (),
    "softmax": (),
    "softmax_backward": (),
}
#: where NumPy takes more than twice as long from few elements on
_REDUCTIONS = ("amax", "amin", "cumprod", "cumsum", "mean", "prod", "sum")
_OWN = {**scans.KERNELS, **{name: sums.KERNELS[name] for name in ("amax", "amin", "mean", "sum")}}

#: element by element: what is of another dtype changes that of the result
_ELEMENTWISE = (*special.KERNELS, *(name for name in pairs.KERNELS if name != "nextafter"))
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _in_float32(name, kept) for name, kept in _OPERATORS.items()},
    **{name: _in_float32(name, own=_OWN.get(name)) for name in _REDUCTIONS},
    **{name: _in_float32(name, numbers=True) for name in _ELEMENTWISE},
    "copy_": copy_,
    "to_dtype": to_dtype,
}
WHEN: dict[str, Callable[..., bool]] = {
    **dict.fromkeys((*_OPERATORS, *_REDUCTIONS), _accepts),
    **dict.fromkeys(_ELEMENTWISE, _accepts_alike),
    "copy_": _accepts_copy,
    "to_dtype": _accepts_conversion,
}
#: of attention NumPy has no kernel, only the decomposition; of a GRU's and a plain network's steps
#: it converts all arrays, too, and takes several calls for each step
LEAST: dict[str, int] = {
    name: _FEW if name in (*_ELEMENTWISE, *_REDUCTIONS, "copy_", "to_dtype") else _LEAST
    for name in KERNELS
    if not name.startswith(("attention", "gru_", "rnn_"))
}
