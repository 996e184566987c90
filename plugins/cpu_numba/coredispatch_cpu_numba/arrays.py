"""Which arrays the compiled loops take, and where they may write.

Everything here runs before Numba is imported, and on every call of the ops of this pack: one
attribute of an array costs 20 to 50 ns, so the tests stand in the order of what most often
rejects a call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from coredispatch.plugin import dtypes, numpy_dtype

__all__ = [
    "FLOATS",
    "HALVES",
    "INT64",
    "POINTWISE",
    "constant",
    "grain",
    "is_dense",
    "is_like",
    "may_write",
    "overlap",
]

#: the dtypes of the loops, in native byte order
FLOATS = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}
#: half precision, which ``kernels.halves`` brings to the loops for float32
HALVES = {numpy_dtype(dtypes.bfloat16): "E", np.dtype(np.float16): "e"}
#: the dtypes of the elementwise loops, which read half precision as it lies in memory
POINTWISE = {**FLOATS, **HALVES}
INT64 = np.dtype(np.int64)


@lru_cache(maxsize=128)
def constant(n: int, dtype: np.dtype[Any], value: float) -> np.ndarray:
    """The weight or bias that was not given. Reading it from the cache costs next to nothing."""
    return np.full(n, value, dtype)


def is_dense(x: Any, least: int, among: Any = FLOATS) -> bool:
    """Whether ``x`` is a C-contiguous array of ``least`` elements or more, of a dtype ``among``."""
    return (
        type(x) is np.ndarray
        and x.size >= least
        and x.dtype in among
        and bool(x.flags.c_contiguous)
    )


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays may share memory.

    NumPy takes 0.4 us for its answer. Two arrays that own their memory, or are views of two that
    do, have none in common.
    """
    first, second = a.base, b.base
    if first is None:
        first = a
    elif type(first) is not np.ndarray or first.base is not None:
        return bool(np.may_share_memory(a, b))
    if second is None:
        second = b
    elif type(second) is not np.ndarray or second.base is not None:
        return bool(np.may_share_memory(a, b))
    return first is second and bool(np.may_share_memory(a, b))


def is_like(x: Any, like: np.ndarray) -> bool:
    """Whether ``x`` is a C-contiguous array of the dtype and shape of ``like``."""
    return (
        type(x) is np.ndarray
        and x.shape == like.shape
        and x.dtype == like.dtype
        and bool(x.flags.c_contiguous)
    )


def may_write(out: Any, like: np.ndarray, *inputs: Any) -> bool:
    """Whether a loop may write a result shaped like ``like`` straight into ``out``.

    An input may be ``out`` itself, but must not overlap it in any other way: loops write early
    elements before they read late ones.
    """
    return (
        is_like(out, like)
        and bool(out.flags.writeable)
        and not any(x is not out and type(x) is np.ndarray and overlap(x, out) for x in inputs)
    )


def grain(size: int) -> int:
    """How many elements of ``size`` one part of a parallel job has, a multiple of 64."""
    return min(16384, ((size >> 3) + 63) & ~63)
