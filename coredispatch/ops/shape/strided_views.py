"""Diagonals, windows and strided views."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape.slicing import along
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import DType, IntList, Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import float32, int32
from coredispatch.registry.model.errors import ArgumentError, DimError, ShapeError
from coredispatch.registry.model.sizes import as_sizes, contiguous_strides, lesser

__all__ = [
    "as_strided",
    "diagonal",
    "diagonal_places",
    "unfold",
]


def _reinterpreted_shape(self: Any, dtype: Any) -> tuple[int, ...]:
    sizes, old, new = tuple(self.shape), DType.of(self.dtype).itemsize, DType.of(dtype).itemsize
    if old == new:
        return sizes
    if not sizes or sizes[-1] * old % new:
        raise ShapeError(
            f"a tensor of shape {sizes} with {old} bytes an element has no whole number of "
            f"elements of {new} bytes in its last dimension",
            fix="view it in a dtype that divides it",
        )
    return (*sizes[:-1], sizes[-1] * old // new)


@primitive(
    out=_reinterpreted_shape,
    dtype=lambda self, dtype: DType.of(dtype),
    samples=lambda make: (Sample(make((3, 4)), int32), Sample(make(()), int32)),
    dtypes=(float32,),
    tolerance=exact,
    view=True,
    differentiable=False,
    namespace=(),
    method=False,
)
def view_dtype(self: Tensor, dtype: DType) -> Tensor:
    """The same memory read as elements of ``dtype``: ``self.view(dtype)``.

    Where the sizes of the elements differ the last dimension changes, and has to lie without gaps.
    Raises :class:`ShapeError` where its bytes are no whole number of elements.
    """


@shape.view.overload
def _(self: Tensor, dtype: DType) -> Tensor:
    return self if dtype is self.dtype else view_dtype(self, dtype)


def diagonal_places(rows: int, columns: int, offset: int) -> tuple[int, int, int]:
    """First row, first column and length of a diagonal."""
    row, column = min(max(-offset, 0), rows), min(max(offset, 0), columns)
    return row, column, max(lesser(rows - row, columns - column), 0)


def _diagonal_shape(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> tuple[int, ...]:
    sizes = tuple(self.shape)
    i, j = normalize_dim(dim1, len(sizes)), normalize_dim(dim2, len(sizes))
    if i == j or len(sizes) < 2:
        raise DimError(
            f"a diagonal needs two different dimensions, got {dim1} and {dim2}",
            fix="use two different dims of a tensor with at least 2",
        )
    rest = [n for d, n in enumerate(sizes) if d not in (i, j)]
    return (*rest, diagonal_places(sizes[i], sizes[j], offset)[2])


@composite(
    out=_diagonal_shape,
    dtype=same,
    reference=np.diagonal,
    samples=lambda make: (
        Sample(make((4, 4))),
        Sample(make((3, 5)), 1),
        Sample(make((3, 5)), -2),
        Sample(make((3, 5)), 7),
        Sample(make((2, 3, 4, 5)), -1, 1, 3),
        Sample(make((2, 3, 5)), 0, -1, 0),
    ),
    tolerance=exact,
    view=True,
)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of the planes (``dim1``, ``dim2``), as the last dimension.

    ``offset`` > 0 lies above the main diagonal. Raises :class:`DimError` for equal dims.
    """
    _diagonal_shape(self, offset, dim1, dim2)
    planes = lazy.movedim(self, (dim1, dim2), (-2, -1))
    row, column, length = diagonal_places(planes.shape[-2], planes.shape[-1], offset)
    i = lazy.arange(length, device=self.device)
    return planes[..., i + row, i + column]


@diagonal.vjp
def _(grad, self_shape, offset, dim1, dim2):
    i, j = normalize_dim(dim1, len(self_shape)), normalize_dim(dim2, len(self_shape))
    row, column, length = diagonal_places(self_shape[i], self_shape[j], offset)
    rest = [n for d, n in enumerate(self_shape) if d not in (i, j)]
    k = lazy.arange(length, device=grad.device)
    where = (..., k + row, k + column)
    planes = lazy.getitem_backward(grad, where, (*rest, self_shape[i], self_shape[j]))
    return lazy.movedim(planes, (-2, -1), (i, j))


def _unfold_shape(self: Any, dimension: int, size: int, step: int) -> tuple[int, ...]:
    sizes = list(self.shape) or [1]
    d = normalize_dim(dimension, len(self.shape))
    if not 0 <= size <= sizes[d] or step <= 0:
        raise ArgumentError(
            f"windows of size {size} and step {step} do not fit dimension {dimension} of length "
            f"{sizes[d]}",
            fix="use 0 <= size <= length and step > 0",
        )
    sizes[d] = (sizes[d] - size) // step + 1
    return (*(sizes if self.shape else ()), size)


def _unfold_reference(self: Any, dimension: int, size: int, step: int) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(self, size, dimension)
    # The windows lie along their own last dimension: seen from the end, dimension is one further.
    along = dimension % max(self.ndim, 1)
    return np.take(windows, range(0, windows.shape[along], step), along)


def _windows(dim: int, length: int, size: int, step: int, device: Any) -> tuple[Any, ...]:
    """The index that reads all windows; the new dimension follows ``dim``."""
    starts = lazy.arange(0, length - size + 1, step, device=device)
    places = shape.unsqueeze(starts, 1) + lazy.arange(size, device=device)
    return along(dim, places)


@composite(
    out=_unfold_shape,
    dtype=same,
    reference=_unfold_reference,
    samples=lambda make: (
        Sample(make((5,)), 0, 2, 1),
        Sample(make((17,)), 0, 4, 3),
        Sample(make((4, 4)), 1, 3, 2),
        Sample(make((2, 3, 5)), -1, 5, 1),
    ),
    tolerance=exact,
    view=True,
    namespace=(),
)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of ``size`` along ``dimension``, ``step`` apart, as a new last dimension.

    The windows of one tensor share memory where they overlap.
    """
    _unfold_shape(self, dimension, size, step)
    x = self if self.ndim else shape.reshape(self, (1,))
    d = normalize_dim(dimension, x.ndim)
    out = lazy.movedim(x[_windows(d, x.shape[d], size, step, x.device)], d + 1, -1)
    return out if self.ndim else lazy.select(out, 0, 0)


@unfold.vjp
def _(grad, self_shape, dimension, size, step):
    sizes = self_shape or (1,)
    d = normalize_dim(dimension, len(sizes))
    if not self_shape:
        grad = shape.unsqueeze(grad, 0)
    where = _windows(d, sizes[d], size, step, grad.device)
    out = lazy.getitem_backward(lazy.movedim(grad, -1, d + 1), where, sizes)
    return shape.reshape(out, self_shape)


def _positions(size: Any, stride: Any, offset: int, device: Any) -> Any:
    """The place in memory, counted in elements, of every element of a strided view."""
    places = lazy.full((), offset, device=device)
    for n, s in zip(size, stride):
        places = shape.unsqueeze(places, -1) + lazy.arange(n, device=device) * s
    return places


def _reach(size: Any, stride: Any, offset: int) -> int:
    """How many elements a storage needs to hold this strided view, which is not empty."""
    return offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1


def _strided_shape(
    self: Any, size: Any, stride: Any, storage_offset: int | None = None
) -> tuple[int, ...]:
    if len(size) != len(stride):
        raise ArgumentError(
            f"size {tuple(size)} has {len(size)} lengths, stride {tuple(stride)} has {len(stride)}",
            fix="give one stride for each length",
        )
    if min((*stride, storage_offset or 0), default=0) < 0:
        raise ArgumentError(
            f"stride {tuple(stride)} or offset {storage_offset} is negative",
            fix="use flip to read backwards",
        )
    return as_sizes(size)


@composite(
    out=_strided_shape,
    dtype=same,
    reference=lambda self, size, stride, storage_offset=0: np.lib.stride_tricks.as_strided(
        np.ascontiguousarray(self).reshape(-1)[storage_offset:],
        size,
        [s * self.itemsize for s in stride],
    ),
    samples=lambda make: (
        Sample(make((12,)), (3, 4), (4, 1)),
        Sample(make((12,)), (3, 3), (1, 2), 2),
        Sample(make((4, 4)), (4,), (5,)),
    ),
    errors=lambda make: [(Sample(make((4,)), (5,), (1,)), ArgumentError)],
    tolerance=exact,
    view=True,
)
def as_strided(
    self: Tensor, size: IntList, stride: IntList, storage_offset: int | None = None
) -> Tensor:
    """A view of the memory of ``self`` with any ``size``, ``stride`` and offset, in elements.

    The offset counts from the start of the storage; None keeps that of ``self``. Raises
    :class:`ArgumentError` for what reaches beyond the storage. A backend without strided views
    sees ``self`` as its own row-major storage.
    """
    _strided_shape(self, size, stride, storage_offset)
    offset = storage_offset or 0
    if 0 not in size and _reach(size, stride, offset) > self.numel():
        raise ArgumentError(
            f"size {size} with stride {stride} from offset {offset} needs "
            f"{_reach(size, stride, offset)} elements, the storage has {self.numel()}",
            fix="use smaller sizes, strides or offset",
        )
    places = _positions(size, stride, offset, self.device)
    return shape.reshape(self, (-1,))[places]


@as_strided.vjp
def _(grad, self_shape, self_strides, size, stride, storage_offset):
    # Both tensors are places in one storage: gradients add up there, then self reads its own.
    own_stride, own_offset = self_strides or (contiguous_strides(tuple(self_shape)), 0)
    offset = own_offset if storage_offset is None else storage_offset
    if 0 in size or 0 in self_shape:
        return grad.new_zeros(self_shape)
    count = max(_reach(self_shape, own_stride, own_offset), _reach(size, stride, offset))
    theirs = _positions(size, stride, offset, grad.device)
    storage = lazy.getitem_backward(grad, (theirs,), (count,))
    return storage[_positions(self_shape, own_stride, own_offset, grad.device)]
