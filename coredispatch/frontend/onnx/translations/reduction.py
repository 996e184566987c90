"""Operators that reduce dimensions, and those that go along one.

A tensor without dimensions is taken as a vector of one element: ONNX has no axis for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Tensor, onnx_dtype
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
        return b.op("Cast", made, to=onnx_dtype(dtypes.bool_))

    return translate


def _as_bool(x: Tensor) -> Any:
    return replace(x.info, dtype=dtypes.bool_)


def _place(kind: str) -> Any:
    """``argmax`` and ``argmin``."""

    def translate(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        x = _ordered(b, x)
        if x.rank == 0:
            return b.constant(np.array(0, dtype=np.int64))
        if dim is None:
            flat = b.op("Reshape", x, np.array([-1], dtype=np.int64))
            place = b.op(kind, flat, axis=0, keepdims=0)
            if not keepdim:
                return place
            return b.op("Reshape", place, np.array([1] * x.rank, dtype=np.int64))
        return b.op(kind, x, axis=x.axis(dim), keepdims=int(keepdim))

    return translate


def _ordered(b: Builder, x: Tensor) -> Tensor:
    """``x`` in a type that ONNX compares."""
    if x.dtype not in _UNORDERED:
        return x
    made = b.op("Cast", x, to=onnx_dtype(dtypes.int32))
    return Tensor(made, replace(x.info, dtype=dtypes.int32))


_UNORDERED = (dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16)


def _along(function: Any) -> Any:
    """``function(b, x, axis, *rest)``, which gives a tensor of the shape of ``x``."""

    def translate(b: Builder, x: Any, dim: int, *rest: Any) -> Any:
        given = Tensor(b.cast(x, b.result.dtype), replace(x.info, dtype=b.result.dtype))
        if x.rank:
            return function(b, given, x.axis(dim))
        vector = Tensor(b.op("Reshape", given, _ints([1])), replace(given.info, shape=(1,)))
        return b.op("Reshape", function(b, vector, 0), _ints([]))

    return translate


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def _cumsum(b: Builder, x: Tensor, axis: int) -> Any:
    return b.op("CumSum", x, np.array(axis, dtype=np.int64))


def _cumprod(b: Builder, x: Tensor, axis: int) -> Any:
    """A ``Scan``: the product so far times the next slice."""
    from onnx import helper

    kind = onnx_dtype(x.dtype)
    before, item, after, out = (
        b.unique(f"product_{name}") for name in ("before", "item", "after", "out")
    )
    nodes = [
        helper.make_node("Mul", [before, item], [after], b.unique("Mul")),
        helper.make_node("Identity", [after], [out], b.unique("Identity")),
    ]
    sizes = [None] * (x.rank - 1)
    told = [helper.make_tensor_value_info(n, kind, sizes) for n in (before, item, after, out)]
    body = helper.make_graph(nodes, b.unique("body"), told[:2], told[2:])
    shape = b.op("Shape", x, start=0, end=axis)
    shape = b.op("Concat", shape, b.op("Shape", x, start=axis + 1), axis=0)
    ones = b.op("Expand", b.cast(1, x.dtype), shape)
    made = b.op(
        "Scan",
        ones,
        x,
        outputs=2,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
    )
    return made[1]


def _softmax(kind: str) -> Any:
    return _along(lambda b, x, axis: b.op(kind, x, axis=axis))


def _topk(b: Builder, x: Any, k: Any, dim: int = -1, largest: bool = True, *rest: Any) -> Any:
    if not x.rank:
        return [b.op("Identity", x), b.constant(np.array(0, dtype=np.int64))]
    return _ranked(b, x, b.sizes([k]), x.axis(dim), largest)


def _sort(b: Builder, x: Any, dim: int = -1, descending: bool = False, *rest: Any) -> Any:
    if not x.rank:
        return [b.op("Identity", x), b.constant(np.array(0, dtype=np.int64))]
    axis = x.axis(dim)
    return _ranked(b, x, b.op("Shape", x, start=axis, end=axis + 1), axis, descending)


def _ranked(b: Builder, x: Tensor, count: Any, axis: int, largest: bool) -> list[str]:
    given = _ordered(b, x)
    values, places = b.op("TopK", given, count, outputs=2, axis=axis, largest=int(largest))
    return [values if given is x else b.op("Cast", values, to=onnx_dtype(x.dtype)), places]


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
    "cumsum": _along(_cumsum),
    "cumprod": _along(_cumprod),
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "topk": _topk,
    "sort": _sort,
}
