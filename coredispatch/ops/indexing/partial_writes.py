"""Tensors with a part replaced: the counterparts of views that copy instead of writing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.indexing.rules import require_index
from coredispatch.ops.indexing.subscripts import index_put
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape.slicing import along
from coredispatch.ops.shape.strided_views import diagonal_places
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Scalar, Tensor
from coredispatch.ops.support.rules import REAL_NUMBER, dot, exact, normalize_dim, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import int32, int64
from coredispatch.registry.model.errors import ShapeError
from coredispatch.registry.model.sizes import as_sizes

__all__ = [
    "diagonal_scatter",
    "fill_diagonal_",
    "index_reduce",
    "put",
    "select_scatter",
    "slice_scatter",
    "unravel_index",
]


def _written(self: Any, index: tuple[Any, ...], values: Any) -> Any:
    out = self.copy()
    out[index] = values
    return out


@composite(
    reference=lambda self, src, dim, index: _written(self, along(dim % self.ndim, index), src),
    samples=lambda make: (
        Sample(make((3, 5)), make((5,)), 0, 1),
        Sample(make((3, 5)), make((3,)), 1, -2),
    ),
    tolerance=exact,
)
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """``self`` with slice number ``index`` along ``dim`` replaced by ``src``."""
    where = along(normalize_dim(dim, self.ndim), index)
    _require_shape(src, self[where])
    return index_put(self, where, _cast(src, self))


def _cast(src: Any, self: Any) -> Any:
    """``src`` in the dtype of ``self``, as ``copy_`` converts it; imaginary parts are warned of."""
    return src if src.dtype is self.dtype else src.to(self.dtype)


def _require_shape(src: Any, slot: Any) -> None:
    if tuple(src.shape) != tuple(slot.shape):
        raise ShapeError(
            f"src has shape {tuple(src.shape)}, the slot {tuple(slot.shape)}",
            fix=f"give src the shape {tuple(slot.shape)}",
        )


@composite(
    reference=lambda self, src, dim=0, start=None, end=None, step=1: _written(
        self, along(dim, slice(start, end, step)), src
    ),
    samples=lambda make: (
        Sample(make((5,)), make((5,))),
        Sample(make((3, 5)), make((2, 5)), 0, 1),
        Sample(make((3, 5)), make((3, 2)), 1, 0, 4, 2),
    ),
    tolerance=exact,
)
def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """``self`` with ``start:end:step`` along ``dim`` replaced by ``src``."""
    where = along(normalize_dim(dim, self.ndim), slice(start, end, step))
    _require_shape(src, self[where])
    return index_put(self, where, _cast(src, self))


def _diagonal_reference(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    out = self.copy()
    view = out.diagonal(offset, dim1, dim2)
    view.flags.writeable = True
    view[...] = src
    return out


@composite(
    reference=_diagonal_reference,
    samples=lambda make: (
        Sample(make((4, 4)), make((4,))),
        Sample(make((3, 5)), make((3,)), 1),
        Sample(make((2, 3, 4)), make((2, 2)), -1, 1, 2),
    ),
    tolerance=exact,
)
def diagonal_scatter(
    self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """``self`` with the diagonals of the planes (``dim1``, ``dim2``) replaced by ``src``."""
    planes = lazy.movedim(self, (dim1, dim2), (-2, -1))
    row, column, length = diagonal_places(planes.shape[-2], planes.shape[-1], offset)
    i = lazy.arange(length, device=self.device)
    where = (..., i + row, i + column)
    _require_shape(src, lazy.diagonal(self, offset, dim1, dim2))
    return lazy.movedim(index_put(planes, where, _cast(src, self)), (-2, -1), (dim1, dim2))


@composite(
    samples=lambda make: (
        Sample(make((4, 4)), 1),
        Sample(make((7, 3)), 1),
        Sample(make((7, 3)), 0, True),
        Sample(make((3, 3, 3)), 1),
    ),
    mutates=("self",),
    namespace=(),
    tolerance=exact,
    fits=("fill_value",),
)
def fill_diagonal_(self: Tensor, fill_value: Scalar, wrap: bool = False) -> Tensor:
    """Write ``fill_value`` to the main diagonal (all indices equal), in place.

    ``wrap`` goes on below the square part of a tall matrix, one row apart. Raises
    :class:`ShapeError` for fewer than 2 dimensions, and for more of different lengths.
    """
    if self.ndim < 2:
        raise ShapeError(
            f"fill_diagonal_ needs 2 dimensions, got {self.ndim}",
            fix="give a matrix, or a tensor of equal lengths",
        )
    if self.ndim > 2 and any(length != self.shape[0] for length in self.shape):
        raise ShapeError(
            f"all dimensions must be of equal length, got {tuple(self.shape)}",
            fix="write to x.diagonal(dim1=..., dim2=...)",
        )
    if wrap and self.ndim == 2:
        rows, columns = self.shape
        flat = lazy.arange(0, rows * columns, columns + 1, device=self.device)
        where = (flat // columns, flat % columns)
    else:
        i = lazy.arange(min(self.shape), device=self.device)
        where = (i,) * self.ndim
    return lazy.index_put_(self, where, fill_value)


def _puts(make: Any) -> Iterator[Sample]:
    yield Sample(make((3, 5)), np.array([1, 14, 7]), make((3,)))
    yield Sample(make((3, 5)), make.index((2, 2), 15), make((2, 2)), True)


def _put_reference(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    out = self.copy()
    # NumPy writes in the order in which the index lies in memory, were it not made flat.
    index, source = index.reshape(-1), source.reshape(-1)
    if accumulate:
        np.add.at(out.reshape(-1), index, source)
    else:
        out.reshape(-1)[index] = source
    return out


@composite(reference=_put_reference, samples=_puts, tolerance=dot, inplace=True, stores=("source",))
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """``self`` with ``source`` written (or added) at the numbers of its flattened elements."""
    require_index(index)
    if index.numel() != source.numel():
        raise ShapeError(
            f"index has {index.numel()} elements, source has {source.numel()}",
            fix="give index and source as many elements",
        )
    flat = shape.reshape(self, (self.numel(),))
    where = (shape.reshape(index, (-1,)),)
    written = index_put(flat, where, shape.reshape(source, (-1,)), accumulate)
    return shape.reshape(written, tuple(self.shape))


@composite(
    samples=lambda make: (
        Sample(make(s), 0, make.index((3,), 4), make((3, *s[1:])), reduce, include_self=own)
        for reduce in ("prod", "mean", "amax", "amin")
        for own in (True, False)
        for s in ((4, 3), (4,))
    ),
    dtypes="float",
    takes=REAL_NUMBER,
    tolerance=dot,
    smooth=False,
    inplace=True,
    stores=("source",),
)
def index_reduce(
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Like ``scatter_reduce`` with one index for each slice of ``source`` along ``dim``."""
    require_one_of("reduce", reduce, ("prod", "mean", "amax", "amin"))
    d = normalize_dim(dim, self.ndim)
    wide = shape.reshape(index, tuple(-1 if i == d else 1 for i in range(self.ndim)))
    wide = shape.expand(wide, tuple(source.shape))
    return lazy.scatter_reduce(self, d, wide, source, reduce, include_self=include_self)


@composite(
    reference=lambda indices, shape: np.unravel_index(indices, shape),
    samples=lambda make: (
        Sample(make.index(s, 24).astype(make.dtype), (2, 3, 4)) for s in ((), (5,), (2, 3), (0,))
    ),
    dtypes=(int32, int64),
    differentiable=False,
    method=False,
    tolerance=exact,
)
def unravel_index(indices: Tensor, shape: IntList) -> tuple[Tensor, ...]:
    """Coordinates, int64, one tensor per dimension, of element numbers of a tensor of ``shape``.

    Raises :class:`ArgumentError` for an element number that the tensor does not have.
    """
    require_index(indices)
    sizes, parts, rest = as_sizes(shape, "shape"), [], lazy.to_dtype(indices, int64)
    for n in reversed(sizes):
        parts.append(lazy.remainder(rest, n))
        rest = lazy.floor_divide(rest, n)
    return tuple(reversed(parts))
