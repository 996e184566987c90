"""Reading, writing and adding by indices, which are checked on the device.

An index out of range is an error at the next wait for the device (see :mod:`..device_checks`).
Subscripts of index arrays and lists, with integers, slices, None and ... around them, are taken;
masks, and what has no elements, are left to the kernels below.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import IndexParts, alert_not_deterministic, numpy_dtype
from coredispatch_cuda_cupy import device_checks as checks
from coredispatch_cuda_cupy.cuda.index_arguments import (
    Selection,
    as_index,
    fronted,
    is_index,
    selected,
    selection,
    spans,
    word_of,
)
from coredispatch_cuda_cupy.cuda.layout import along, blocks, dense
from coredispatch_cuda_cupy.cuda.loading import WORDS, Family, wide

__all__ = ["ADDED", "kernels"]

#: the dtypes that values are added in
ADDED = ("float32", "float64", "float16", "bfloat16", "int64", "int32")
#: complex dtype -> that of its parts, which rows are added by
_PARTS = {"complex64": "float32", "complex128": "float64"}
#: writers of one place are counted in 32 bits
_MOST_WRITERS = 2**31 - 2


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    rows = Rows(cupy)

    def along_dim(self: Any, dim: int, index: Any) -> tuple[int, ...] | None:
        """``(outer, n, width)`` around ``dim``, where kernels take the index vector."""
        usable = index.ndim <= 1 and is_index(index) and self.size and index.size
        return along(self.shape, dim) if usable and self.ndim else None

    def index_select(self: Any, dim: int, index: Any) -> Any:
        around = along_dim(self, dim, index)
        if around is None:
            return NotImplemented
        dim %= self.ndim
        out = cupy.empty((*self.shape[:dim], index.size, *self.shape[dim + 1 :]), self.dtype)
        rows.take("index_select", self, as_index(cupy, index), out, around)
        return out

    def take(self: Any, index: Any) -> Any:
        if not is_index(index) or not self.size or not index.size:
            return NotImplemented
        out = cupy.empty(index.shape, self.dtype)
        rows.take("take", self, as_index(cupy, index), out, (1, self.size, 1), low=-self.size)
        return out

    def index_add(self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
        around = along_dim(self, dim, index)
        if around is None or alpha != 1 or not _same_rows(self, dim, index, source):
            return NotImplemented
        return rows.added("index_add", self, as_index(cupy, index), source, around)

    def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
        around = along_dim(self, dim, index)
        if around is None or not _same_rows(self, dim, index, source):
            return NotImplemented
        return rows.put("index_copy", self, as_index(cupy, index), source, around)

    def embedding_lookup(
        input: Any, weight: Any, padding_idx: Any, scale_grad_by_freq: bool, sparse: bool
    ) -> Any:
        if sparse or weight.ndim != 2 or not is_index(input) or not weight.size or not input.size:
            return NotImplemented
        out = cupy.empty((*input.shape, weight.shape[1]), weight.dtype)
        around = (1, *weight.shape)
        index = as_index(cupy, input)
        rows.take("embedding_lookup", weight, index, out, around, kind=checks.ROW)
        return out

    def embedding_backward(
        grad_output: Any, indices: Any, num_weights: int, padding_idx: Any, scale_grad_by_freq: bool
    ) -> Any:
        width = grad_output.shape[-1] if grad_output.ndim else 0
        if scale_grad_by_freq or not width or indices.size * width != grad_output.size:
            return NotImplemented
        if not is_index(indices) or not grad_output.size or num_weights < 1:
            return NotImplemented
        out = cupy.zeros((num_weights, width), grad_output.dtype)
        skipped = -1 if padding_idx is None else padding_idx % num_weights
        options = {"kind": checks.ROW, "skipped": skipped}
        around, index = (1, num_weights, width), as_index(cupy, indices)
        return rows.added("embedding_backward", out, index, grad_output, around, **options)

    return {
        "index_select": index_select,
        "take": take,
        "index_add": index_add,
        "index_copy": index_copy,
        "embedding_lookup": embedding_lookup,
        "embedding_backward": embedding_backward,
        **_subscripts(cupy, rows),
        **_elements(cupy, rows),
    }


def _subscripts(cupy: Any, rows: Rows) -> dict[str, Callable[..., Any]]:
    """Kernels of ``x[index]``."""
    parts = IndexParts(cupy.ndarray, cupy.asarray, lambda x, dtype: x.astype(numpy_dtype(dtype)))

    def opened(op: str, shape: tuple[int, ...], index: Any) -> Any:
        """Index, ``(outer, n, width)``, shape of the slot and least index; None to reject."""
        found = selection(cupy, index, len(shape))
        if found is None or not prod(shape):
            return None
        try:
            joined = rows.joined(op, shape, found)
        except ValueError:  # the index arrays do not broadcast, which the kernel below says
            return None
        if joined is None:
            return None
        array, common, low = joined
        behind = found.dim + len(found.arrays)
        n = prod(shape[found.dim : behind])
        around = (prod(shape[: found.dim]), n, prod(shape[behind:]))
        return array, around, selected(shape, found, common), low

    def spread(values: Any, slot: tuple[int, ...]) -> Any:
        """Values for each element of the slot; None where they do not broadcast to it."""
        while values.ndim > len(slot) and values.shape[0] == 1:
            values = values[0, ...]
        if values.shape == slot or values.size == 1:
            return values
        try:
            return cupy.broadcast_to(values, slot)
        except ValueError:
            return None

    def divided(shape: tuple[int, ...], index: Any) -> Any:
        """The basic part of a subscript and the index arrays behind it; None to reject."""
        index = [cupy.asarray(x) if isinstance(x, (list, tuple)) else x for x in index]
        kinds = {item.dtype.kind for item in index if isinstance(item, cupy.ndarray)}
        if kinds != {"i"} or any(isinstance(item, bool) for item in index):
            return None
        basic, advanced = parts.split(shape, index)
        return None if advanced is None else ((*(basic or ()), ...), advanced)

    def read(x: Any, index: Any) -> Any:
        """``x[index]`` for index arrays side by side."""
        place = opened("getitem", x.shape, index)
        if place is None:
            return NotImplemented
        array, around, slot, low = place
        out = cupy.empty(slot, x.dtype)
        rows.take("getitem", x, array, out, around, low=low)
        return out

    def getitem(self: Any, index: Any) -> Any:
        if selection(cupy, index, self.ndim) is None:
            both = divided(self.shape, index)
            if both is None:
                return NotImplemented
            axes, index = fronted(both[1], self[both[0]].ndim)
            self = self[both[0]].transpose(axes)
        return read(self, index)

    def write(op: str, x: Any, index: Any, values: Any, accumulate: bool) -> Any:
        """A copy of ``x`` with values written to, or added at, index arrays side by side."""
        place = opened(op, x.shape, index)
        values = None if place is None else spread(values, place[2])
        if values is None:
            return NotImplemented
        array, around, _, low = place
        kernel = rows.added if accumulate else rows.put
        return kernel(op, x, array, values, around, low=low)

    def written(op: str, x: Any, index: Any, values: Any, accumulate: bool) -> Any:
        """A copy of ``x`` with values written to, or added at, an index."""
        if selection(cupy, index, x.ndim) is not None:
            return write(op, x, index, values, accumulate)
        both = divided(x.shape, index)
        if both is None:
            return NotImplemented
        part = x[both[0]]
        axes, index = fronted(both[1], part.ndim)
        part = write(op, part.transpose(axes), index, values, accumulate)
        if part is NotImplemented:
            return part
        out = x.copy(order="C")
        out[both[0]] = part.transpose(np.argsort(axes).tolist())
        return out

    def index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        if accumulate and self.dtype.name not in (*ADDED, *_PARTS):
            return NotImplemented
        if not isinstance(values, cupy.ndarray):
            values = cupy.full((), values, self.dtype)
        return written("index_put", self, indices, values, accumulate)

    def getitem_backward(grad: Any, index: Any, shape: Any) -> Any:
        if grad.dtype.name not in (*ADDED, *_PARTS):
            return NotImplemented
        zeros = cupy.zeros(tuple(shape), grad.dtype)
        return written("getitem_backward", zeros, index, grad, True)

    return {"getitem": getitem, "index_put": index_put, "getitem_backward": getitem_backward}


def _elements(cupy: Any, rows: Rows) -> dict[str, Callable[..., Any]]:
    """Kernels with one index for each element."""

    def narrowed(x: Any, index: Any, dim: int) -> Any:
        """``x`` cut to the lengths of ``index``, but along ``dim``."""
        if x.ndim != index.ndim or not -x.ndim <= dim < x.ndim:
            return x
        kept = [slice(n) for n in index.shape]
        kept[dim] = slice(None)
        return x if x.shape == index.shape else x[tuple(kept)]

    def gather(self: Any, dim: int, index: Any) -> Any:
        if not is_index(index) or not index.size or not self.size:
            return NotImplemented
        x = narrowed(self, index, dim)
        sizes = spans(x.shape, dim, index.shape)
        if sizes is None or x.dtype.itemsize not in WORDS:
            return NotImplemented
        out = cupy.empty(index.shape, x.dtype)
        arrays = (dense(cupy, x), as_index(cupy, index), out)
        rows.run(rows.moving, "gather_along", x.dtype.itemsize, "gather", arrays, sizes)
        return out

    def reached(x: Any, dim: int, index: Any) -> Any:
        """What of ``x`` an index reaches that is shorter outside ``dim``; None if that is all."""
        part = narrowed(x, index, dim)
        if part.shape == x.shape or spans(part.shape, dim, index.shape) is None:
            return None
        return tuple(slice(n) for n in part.shape)

    def of_part(kernel: Any, x: Any, part: Any, *rest: Any) -> Any:
        """A copy of ``x``, and what the kernel makes of a part of it in its place."""
        changed = kernel(x[part], *rest)
        if changed is NotImplemented:
            return changed
        out = x.copy(order="C")
        out[part] = changed
        return out

    def placed(self: Any, dim: int, index: Any, src: Any) -> Any:
        """Sizes, index and values of a scatter; None where it is rejected."""
        if not is_index(index) or not index.size or not self.size:
            return None
        sizes = spans(self.shape, dim, index.shape)
        if sizes is None or src.dtype != self.dtype or sizes[2] > _MOST_WRITERS:
            return None
        if src.ndim and (src.ndim != index.ndim or any(map(int.__gt__, index.shape, src.shape))):
            return None
        values = src[tuple(slice(n) for n in index.shape)] if src.ndim else src
        return sizes, as_index(cupy, index), dense(cupy, values)

    def scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
        part = reached(self, dim, index)
        if part is not None:
            return of_part(scatter, self, part, dim, index, src)
        one = not isinstance(src, cupy.ndarray)
        place = placed(self, dim, index, cupy.full((), src, self.dtype) if one else src)
        if place is None or self.dtype.itemsize not in WORDS:
            return NotImplemented
        sizes, at, values = place
        out, size = self.copy(order="C"), self.dtype.itemsize
        writers = rows.writers("scatter", at, sizes)
        given = (out, at, values, int(values.ndim > 0), writers, *sizes)
        rows.moving("scatter_along", size, blocks(index.size), 256, given)
        return out

    def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
        part = reached(self, dim, index)
        if part is not None:
            return of_part(scatter_add, self, part, dim, index, src)
        place = placed(self, dim, index, src) if self.dtype.name in ADDED else None
        if place is None or not place[2].ndim:
            return NotImplemented
        sizes, at, values = place
        _warn_of_order(self.dtype)
        out = self.astype(wide(self.dtype), order="C")
        rows.run(rows.adding, "add_along", self.dtype, "scatter_add", (out, at, values), sizes)
        return out.astype(self.dtype, copy=False)

    return {"gather": gather, "scatter": scatter, "scatter_add": scatter_add}


class Rows:
    """Launches the kernels that read, write or add rows of ``(outer, n, width)``."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.moving = Family(cupy, "moving")
        self.adding = Family(cupy, "adding")
        self.checking = Family(cupy, "checks")

    def run(
        self,
        family: Family,
        kernel: str,
        dtype: Any,
        op: str,
        arrays: tuple[Any, ...],
        sizes: tuple[int, ...],
        rest: tuple[int, ...] = (0,),
        kind: int = checks.INDEX,
    ) -> None:
        """Launch a kernel that checks indices; ``rest`` is what it takes before the flag."""
        flag, number = checks.flag(self.cupy, op)
        outer, _, m, width = sizes
        arguments = (*arrays, *sizes, *rest, flag, kind, number)
        family(kernel, dtype, blocks(outer * m * width), 256, arguments)
        checks.finish(self.cupy)

    def take(
        self,
        op: str,
        x: Any,
        index: Any,
        out: Any,
        around: tuple[int, ...],
        low: int = 0,
        kind: int = checks.INDEX,
    ) -> None:
        """The rows of ``x`` by index, into ``out``."""
        outer, n, width = around
        x = dense(self.cupy, x)
        word = word_of(width * x.dtype.itemsize, x, out)
        sizes = (outer, n, index.size, width * x.dtype.itemsize // word)
        self.run(self.moving, "take_rows", word, op, (x, index, out), sizes, (low,), kind)

    def put(
        self, op: str, x: Any, index: Any, values: Any, around: tuple[int, ...], low: int = 0
    ) -> Any:
        """A copy of ``x`` with rows replaced by values, or by the one value there is."""
        outer, n, width = around
        if index.size > _MOST_WRITERS:
            return NotImplemented
        size = x.dtype.itemsize
        values = dense(self.cupy, values.astype(x.dtype, copy=False))
        step = int(values.size > 1 or outer * index.size * width == 1)
        out = x.copy(order="C")
        word = word_of(width * size, out, values) if step else size
        writers = self.writers(op, index, (1, n, index.size, 1), low)
        sizes = (outer, n, index.size, width * size // word)
        arrays = (out, index, values, step, writers, *sizes)
        self.moving("put_rows", word, blocks(outer * index.size * sizes[3]), 256, arrays)
        return out

    def writers(self, op: str, index: Any, sizes: tuple[int, ...], low: int = 0) -> Any:
        """Which of the values for a place is the last, from 1; the index is checked by that."""
        outer, n, _, inner = sizes
        found = self.cupy.zeros(outer * n * inner, "int32")
        self.run(self.checking, "last_writers", index.dtype, op, (index, found), sizes, (low,))
        return found

    def added(
        self,
        op: str,
        x: Any,
        index: Any,
        values: Any,
        around: tuple[int, ...],
        low: int = 0,
        skipped: int = -1,
        kind: int = checks.INDEX,
    ) -> Any:
        """A copy of ``x`` with values added to rows, or the one value there is."""
        outer, n, width = around
        part = _PARTS.get(x.dtype.name)
        if part is not None:
            shape, dtype = x.shape, x.dtype
            values = values.astype(dtype, copy=False)
            if values.size == 1:
                values = self.cupy.broadcast_to(values.ravel(), (outer * index.size * width,))
            x, values = (dense(self.cupy, a).ravel().view(part) for a in (x, values))
            out = self.added(op, x, index, values, (outer, n, 2 * width), low, skipped, kind)
            return out.view(dtype).reshape(shape)
        if x.dtype.name not in ADDED:
            return NotImplemented
        _warn_of_order(x.dtype)
        out = x.astype(wide(x.dtype), order="C")
        values = dense(self.cupy, values.astype(x.dtype, copy=False))
        step = int(values.size > 1 or outer * index.size * width == 1)
        sizes = (outer, n, index.size, width)
        arrays = (out, index, values, step)
        self.run(self.adding, "add_rows", x.dtype, op, arrays, sizes, (skipped, low), kind)
        return out.astype(x.dtype, copy=False)

    def joined(self, op: str, shape: tuple[int, ...], found: Selection) -> Any:
        """One index for the dimensions of a selection: array, shape, and its least value.

        Raises ``ValueError`` for arrays that do not broadcast; None where there is nothing to
        index.
        """
        arrays = found.arrays
        if len(arrays) == 1:
            index = as_index(self.cupy, arrays[0])
            return (index, index.shape, -shape[found.dim]) if index.size else None
        spread = self.cupy.broadcast_arrays(*arrays)
        total = self.cupy.empty(spread[0].shape, "int64")
        if not total.size:
            return None
        flag, number = checks.flag(self.cupy, op)
        for k, array in enumerate(spread):
            n = shape[found.dim + k]
            given = (as_index(self.cupy, array), total, total.size, int(k == 0), n, -n)
            arguments = (*given, flag, checks.INDEX, number)
            self.checking("join_index", total.dtype, blocks(total.size), 256, arguments)
        checks.finish(self.cupy)
        return total, total.shape, 0


def _same_rows(self: Any, dim: int, index: Any, source: Any) -> bool:
    dim %= self.ndim
    shape = (*self.shape[:dim], index.size, *self.shape[dim + 1 :])
    return bool(source.shape == shape and source.dtype == self.dtype)


def _warn_of_order(dtype: Any) -> None:
    if dtype.kind not in "iu":
        alert_not_deterministic("a sum of floating-point numbers at repeated indices on CUDA")
