"""Shapes, parts, joins, and tensors made of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Length, Tensor, numpy_of
from coredispatch.frontend.onnx.translations.elementwise import common
from coredispatch.plugin import DType, dtypes

__all__ = ["TRANSLATIONS"]


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def _reshape(b: Builder, x: Any, shape: Any) -> Any:
    if isinstance(shape, DType):
        b.refuse("memory is read as another dtype, and ONNX tensors have no memory")
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return b.op("Reshape", x, b.sizes(sizes), allowzero=1 if 0 in sizes else None)


def _flatten(b: Builder, x: Any, start: int = 0, end: int = -1) -> Any:
    if x.rank == 0:
        return b.op("Reshape", x, _ints([1]))
    first, last = x.axis(start), x.axis(end)
    head = [0] * first  # as they are
    tail = [b.op("Shape", x, start=d, end=d + 1) for d in range(last + 1, x.rank)]
    sizes = [_ints([n]) for n in [*head, -1]] + tail
    return b.op("Reshape", x, b.op("Concat", *sizes, axis=0))


def _permute(b: Builder, x: Any, dims: Any) -> Any:
    return _transposed(b, x, [x.axis(d) for d in dims])


def _transposed(b: Builder, x: Any, order: list[int]) -> Any:
    return b.op("Transpose", x, perm=order) if order else b.op("Identity", x)


def _transpose(b: Builder, x: Any, one: int, other: int) -> Any:
    dims = list(range(x.rank))
    i, j = x.axis(one), x.axis(other)
    if x.rank:
        dims[i], dims[j] = dims[j], dims[i]
    return _transposed(b, x, dims)


def _t(b: Builder, x: Any) -> Any:
    return _transposed(b, x, list(range(x.rank))[::-1])


def _unsqueeze(b: Builder, x: Any, dim: int) -> Any:
    return b.op("Unsqueeze", x, _ints([dim + x.rank + 1 if dim < 0 else dim]))


def _squeeze(b: Builder, x: Any, dim: Any = None) -> Any:
    dims = range(x.rank) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    ones = [x.axis(d) for d in dims if x.rank and x.shape[x.axis(d)] == 1]
    return b.op("Squeeze", x, _ints(ones)) if ones else b.op("Identity", x)


def _expand(b: Builder, x: Any, size: Any) -> Any:
    # Where PyTorch writes -1, ONNX has 1: the size stays.
    sizes = [1 if type(n) is int and n == -1 else n for n in size]
    return b.op("Expand", x, b.sizes(sizes))


def _cat(b: Builder, tensors: Any, dim: int = 0) -> Any:
    dtype = common(*tensors)
    return b.op("Concat", *[b.cast(t, dtype) for t in tensors], axis=tensors[0].axis(dim))


def _stack(b: Builder, tensors: Any, dim: int = 0) -> Any:
    dtype, rank = common(*tensors), tensors[0].rank + 1
    axis = dim + rank if dim < 0 else dim
    return b.op(
        "Concat", *[b.op("Unsqueeze", b.cast(t, dtype), _ints([axis])) for t in tensors], axis=axis
    )


def _pieces(b: Builder, x: Any, *rest: Any) -> Any:
    """``split`` and ``chunk``: the sizes of the pieces are those of the results."""
    dim = rest[1] if len(rest) > 1 else 0
    axis = x.axis(dim)
    sizes = [info.shape[axis] for info in b.result]
    if not all(type(n) is int for n in sizes):
        return b.refuse("pieces of an open size; make the size fixed, or use narrow()")
    return (
        b.op("Split", x, _ints(sizes), outputs=len(sizes), axis=axis)
        if len(sizes) > 1
        else [b.op("Identity", x)]
    )


def _unbind(b: Builder, x: Any, dim: int = 0) -> Any:
    axis = x.axis(dim)
    return [b.op("Gather", x, np.array(i, dtype=np.int64), axis=axis) for i in range(len(b.result))]


def _flip(b: Builder, x: Any, dims: Any) -> Any:
    axes = [x.axis(d) for d in (dims if isinstance(dims, (tuple, list)) else (dims,))]
    n = len(axes)
    if not n or not x.rank:
        return b.op("Identity", x)
    low = np.iinfo(np.int64).min
    return b.op("Slice", x, _ints([-1] * n), _ints([low] * n), _ints(axes), _ints([-1] * n))


def _pad(b: Builder, x: Any, pad: Any, value: Any = 0) -> Any:
    before, after = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return b.op("Pad", x, b.sizes([*before, *after]), b.cast(value or 0, x.dtype))


def _repeat(b: Builder, x: Any, repeats: Any) -> Any:
    grown = x.name
    if len(repeats) > x.rank:
        grown = b.op("Unsqueeze", x, _ints(range(len(repeats) - x.rank)))
    return b.op("Tile", grown, b.sizes(repeats))


def _trilu(upper: int) -> Any:
    def translate(b: Builder, x: Any, diagonal: int = 0) -> Any:
        return b.op("Trilu", x, b.cast(diagonal, dtypes.int64), upper=upper)

    return translate


def _full(b: Builder, size: Any, value: Any, *rest: Any) -> Any:
    scalar = b.cast(value, b.result.dtype)
    sizes = size if isinstance(size, (tuple, list)) else (size,)
    return b.op("Expand", scalar, b.sizes(sizes))


def _filled(value: int) -> Any:
    return lambda b, size, *rest: _full(b, size, value)


def _like(value: int) -> Any:
    def translate(b: Builder, x: Any, *rest: Any) -> Any:
        return b.op("Expand", b.cast(value, b.result.dtype), b.op("Shape", x))

    return translate


def _arange(b: Builder, start: Any, end: Any = None, step: Any = 1, *rest: Any) -> Any:
    dtype = b.result.dtype
    if end is None:
        start, end = 0, start
    if not any(isinstance(n, Length) for n in (start, end, step)):
        return b.constant(np.arange(start, end, step).astype(numpy_of(dtype)))
    made = b.op("Range", *[b.cast(n, dtype) for n in (start, end, step)])
    if type(start) is int and start >= 0 and type(step) is int and step > 0:
        return made
    # onnxruntime makes a Slice of a Gather by such a node, and negative ends count from behind.
    return b.op("Reshape", made, _ints([-1]))


def _reshape_as(b: Builder, x: Any, other: Tensor) -> Any:
    return b.op("Reshape", x, b.op("Shape", other), allowzero=1)


TRANSLATIONS: dict[str, Any] = {
    "view": _reshape,
    "reshape": _reshape,
    "reshape_as": _reshape_as,
    "view_as": _reshape_as,
    "flatten": _flatten,
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "t": _t,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "cat": _cat,
    "stack": _stack,
    "split": _pieces,
    "chunk": _pieces,
    "unbind": _unbind,
    "flip": _flip,
    "constant_pad_nd": _pad,
    "repeat": _repeat,
    "tril": _trilu(0),
    "triu": _trilu(1),
    "full": _full,
    "zeros": _filled(0),
    "ones": _filled(1),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "arange": _arange,
}
