"""Views, copies, joins and pads: sizes and dimensions with the samples' in front."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.ops.shape.rules import expanded, viewed
from coredispatch.plugin import ShapeError, dispatch
from coredispatch.registry.model.sizes import normalize_dim
from coredispatch.registry.model.value import dtype_of

__all__ = ["RULES"]


def unchanged(batch: Batch, self: Any, *args: Any) -> Any:
    """The operator does not look at dimensions."""
    return dispatch(batch.op, (batch.front(self), *args))


def view(batch: Batch, self: Any, shape: Any) -> Any:
    """``view``: the same elements of each sample."""
    return op("view")(batch.front(self), (batch.size, *viewed(self, shape)))


def reshape(batch: Batch, self: Any, shape: Any) -> Any:
    """``reshape``: a view where the strides behind the samples allow one."""
    return op("reshape")(batch.front(self), (batch.size, *viewed(self, shape)))


def expand(batch: Batch, self: Any, size: Any) -> Any:
    """``expand``: new dimensions come between the samples and theirs."""
    target = expanded(self, size)
    value = batch.front(self)
    missing = len(target) - len(self.raw.shape)
    if missing:
        index = (slice(None), *(None,) * missing)
        value = op("getitem")(value, index)
    return op("expand")(value, (batch.size, *target))


def permute(batch: Batch, self: Any, dims: Any) -> Any:
    """``permute``: the samples stay in front."""
    rank = len(self.raw.shape)
    moved = tuple([normalize_dim(d, rank) + 1 for d in dims])
    if len(moved) != rank:
        return dispatch(batch.op, (op("getitem")(batch.front(self), (0,)), dims))  # its error
    return op("permute")(batch.front(self), (0, *moved))


def clone(batch: Batch, self: Any, memory_format: Any) -> Any:
    """A copy, or what is ``contiguous``; orders of four dimensions there are none behind the
    samples'."""
    named = "" if memory_format is None else str(memory_format)
    kept = None if "channels_last" in named else memory_format
    return dispatch(batch.op, (batch.front(self), kept))


def pad(batch: Batch, self: Any, pad: Any, value: Any) -> Any:
    """``constant_pad_nd``: pads count from the last dimension."""
    if len(pad) > 2 * len(self.raw.shape):
        return dispatch(batch.op, (op("getitem")(batch.front(self), (0,)), pad, value))
    return dispatch(batch.op, (batch.front(self), pad, batch.open(value)))


def cat(batch: Batch, tensors: Any, dim: int) -> Any:
    """``cat``: all with samples in front."""
    rank = max(len(t.raw.shape) for t in tensors)
    kept = [t for t in tensors if len(t.raw.shape) == rank or tuple(t.raw.shape) != (0,)]
    return op("cat")([batch.front(t) for t in kept], normalize_dim(dim, rank) + 1)


def stack(batch: Batch, tensors: Any, dim: int) -> Any:
    """``stack``: all with samples in front."""
    rank = max(len(t.raw.shape) for t in tensors)
    return op("stack")([batch.front(t) for t in tensors], normalize_dim(dim, rank + 1) + 1)


def pairs(batch: Batch, self: Any) -> Any:
    """``view_as_complex``: of a copy, where the samples' dimension is the innermost in memory."""
    value = batch.front(self)
    try:
        return dispatch(batch.op, (value,))
    except ShapeError:
        return dispatch(batch.op, (op("clone")(value, memory_format="contiguous_format"),))


def reinterpret(batch: Batch, self: Any, dtype: Any) -> Any:
    """``view_dtype``: of samples in memory one after the other."""
    value = batch.front(self)
    if not self.raw.shape and dtype.itemsize != dtype_of(value).itemsize:
        raise ShapeError("a number has no dimension that another size of elements could change")
    try:
        return dispatch(batch.op, (value, dtype))
    except ShapeError:
        return dispatch(batch.op, (op("clone")(value, memory_format="contiguous_format"), dtype))


RULES: dict[str, Any] = {
    **dict.fromkeys(["detach", "view_as_real", "conj", "positive", "to_device"], unchanged),
    "view": view,
    "view_as_complex": pairs,
    "view_dtype": reinterpret,
    "reshape": reshape,
    "expand": expand,
    "permute": permute,
    "clone": clone,
    "contiguous": clone,
    "constant_pad_nd": pad,
    "cat": cat,
    "stack": stack,
}
