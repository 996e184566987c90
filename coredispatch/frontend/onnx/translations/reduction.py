"""Operators that reduce dimensions, and those that go along one."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Tensor
from coredispatch.plugin import dtypes

__all__ = ["TRANSLATIONS"]


def _dims(x: Tensor, dim: Any) -> Any:
    """The axes as a constant, None for all of them."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return np.array([x.axis(d) for d in dims], dtype=np.int64)


def _reduced(kind: str) -> Any:
    def translate(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, *rest: Any) -> Any:
        if x.rank == 0:
            return b.cast(x, b.result.dtype)
        return b.op(kind, b.cast(x, b.result.dtype), _dims(x, dim), keepdims=int(keepdim))

    return translate


def _truth(kind: str) -> Any:
    """``any`` and ``all``."""

    def translate(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, *rest: Any) -> Any:
        if x.rank == 0:
            return b.cast(x, dtypes.bool_)
        numbers = b.cast(Tensor(b.cast(x, dtypes.bool_), _as_bool(x)), dtypes.int32)
        made = b.op(kind, numbers, _dims(x, dim), keepdims=int(keepdim))
        from coredispatch.frontend.onnx.builder import onnx_dtype

        return b.op("Cast", made, to=onnx_dtype(dtypes.bool_))

    return translate


def _as_bool(x: Tensor) -> Any:
    import dataclasses

    return dataclasses.replace(x.info, dtype=dtypes.bool_)


def _place(kind: str) -> Any:
    """``argmax`` and ``argmin``."""

    def translate(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            flat = b.op("Reshape", x, np.array([-1], dtype=np.int64))
            place = b.op(kind, flat, axis=0, keepdims=0)
            if not keepdim:
                return place
            return b.op("Reshape", place, np.array([1] * x.rank, dtype=np.int64))
        return b.op(kind, x, axis=x.axis(dim), keepdims=int(keepdim))

    return translate


def _cumsum(b: Builder, x: Any, dim: int, *rest: Any) -> Any:
    return b.op("CumSum", b.cast(x, b.result.dtype), np.array(x.axis(dim), dtype=np.int64))


def _softmax(kind: str) -> Any:
    def translate(b: Builder, x: Any, dim: int, dtype: Any = None) -> Any:
        return b.op(kind, b.cast(x, b.result.dtype), axis=x.axis(dim))

    return translate


def _topk(b: Builder, x: Any, k: Any, dim: int = -1, largest: bool = True, *rest: Any) -> Any:
    count = b.sizes([k])
    return b.op("TopK", x, count, outputs=2, axis=x.axis(dim), largest=int(largest))


def _sort(b: Builder, x: Any, dim: int = -1, descending: bool = False, *rest: Any) -> Any:
    axis = x.axis(dim)
    count = b.op("Shape", x, start=axis, end=axis + 1)
    return b.op("TopK", x, count, outputs=2, axis=axis, largest=int(descending))


TRANSLATIONS: dict[str, Any] = {
    "sum": _reduced("ReduceSum"),
    "mean": _reduced("ReduceMean"),
    "prod": _reduced("ReduceProd"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    "logsumexp": _reduced("ReduceLogSumExp"),
    "any": _truth("ReduceMax"),
    "all": _truth("ReduceMin"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "cumsum": _cumsum,
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "topk": _topk,
    "sort": _sort,
}
