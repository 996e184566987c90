"""Parts of tensors: slices along one dimension, diagonals, windows, strided views."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.shape.rules import chunk_sizes, cut, split_sizes
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, DimError, ShapeError

__all__ = [
    "chunk",
    "dsplit",
    "hsplit",
    "narrow",
    "select",
    "split",
    "tensor_split",
    "unbind",
    "vsplit",
]


def along(dim: int, item: Any) -> tuple[Any, ...]:
    """The index that applies ``item`` to dimension ``dim`` (not negative)."""
    return (*(slice(None),) * dim, item)


# ---- one slice ----------------------------------------------------------------------------------


def _select_shape(self: Any, dim: int, index: int) -> tuple[int, ...]:
    length = tuple(self.shape)
    if not length:
        raise DimError("a 0-dim tensor has no dimension to select from", fix="use x.item()")
    d = normalize_dim(dim, len(length))
    if not -length[d] <= index < length[d]:
        raise DimError(
            f"index {index} is out of bounds for dimension {dim} with size {length[d]}",
            fix=f"use an index from {-length[d]} to {length[d] - 1}",
        )
    return length[:d] + length[d + 1 :]


@composite(
    out=_select_shape,
    dtype=same,
    reference=lambda self, dim, index: np.take(self, index, dim),
    samples=lambda make: (
        Sample(make((5,)), 0, 2),
        Sample(make((4, 4)), 1, -1),
        Sample(make((2, 3, 5)), -2, 0),
        Sample(make((2, 3, 4, 5)), 2, 3),
    ),
    errors=lambda make: [
        (Sample(make((3, 4)), 0, 3), DimError),
        (Sample(make((3, 4)), 2, 0), DimError),
    ],
    tolerance=exact,
    view=True,
)
def select(self: Tensor, dim: int, index: int) -> Tensor:
    """Slice number ``index`` along ``dim``, without that dimension. Raises :class:`DimError`."""
    _select_shape(self, dim, index)
    return self[along(normalize_dim(dim, self.ndim), index)]


@select.vjp
def _(grad, self_shape, dim, index):
    where = along(normalize_dim(dim, len(self_shape)), index)
    return lazy.getitem_backward(grad, where, self_shape)


def _narrow_shape(self: Any, dim: int, start: Any, length: int) -> tuple[int, ...]:
    sizes = list(self.shape)
    d = normalize_dim(dim, len(sizes))
    if not sizes:
        raise DimError(
            "a tensor without dimensions has none to narrow", fix="reshape it to (1,) first"
        )
    first = start + sizes[d] if start < 0 else start
    if length < 0 or not 0 <= first <= sizes[d] - length:
        raise DimError(
            f"start {start} with length {length} is out of bounds for dimension {dim} with "
            f"size {sizes[d]}",
            fix="use a start and a length inside the dimension",
        )
    sizes[d] = length
    return tuple(sizes)


@composite(
    out=_narrow_shape,
    dtype=same,
    reference=lambda self, dim, start, length: np.take(
        self, range(start % (self.shape[dim] + 1), start % (self.shape[dim] + 1) + length), dim
    ),
    samples=lambda make: (
        Sample(make((5,)), 0, 1, 3),
        Sample(make((5,)), 0, 5, 0),
        Sample(make((4, 4)), 1, 2, 2),
        Sample(make((2, 3, 5)), -1, 0, 4),
    ),
    errors=lambda make: [(Sample(make((3, 4)), 0, 2, 2), DimError)],
    tolerance=exact,
    view=True,
)
def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` slices along ``dim`` from ``start`` (negative: from the end)."""
    _narrow_shape(self, dim, start, length)
    d = normalize_dim(dim, self.ndim)
    first = start + self.shape[d] if start < 0 else start
    return self[along(d, slice(first, first + length))]


@narrow.vjp
def _(grad, self_shape, dim, start, length):
    d = normalize_dim(dim, len(self_shape))
    first = start + self_shape[d] if start < 0 else start
    return lazy.getitem_backward(grad, along(d, slice(first, first + length)), self_shape)


# ---- several pieces -----------------------------------------------------------------------------


def _split_shapes(self: Any, split_size_or_sections: Any, dim: int = 0) -> list[Any]:
    length = self.shape[normalize_dim(dim, len(self.shape))]
    return cut(self, split_sizes(length, split_size_or_sections), dim)


def _same_each(self: Any, *args: Any) -> Any:
    return same(self)


def _pieces(x: Any, sizes: list[int], dim: int) -> tuple[Any, ...]:
    d, start, pieces = normalize_dim(dim, x.ndim), 0, []
    for n in sizes:
        pieces.append(x[along(d, slice(start, start + n))])
        start += n
    return tuple(pieces)


@composite(
    out=_split_shapes,
    dtype=_same_each,
    reference=lambda self, split_size_or_sections, dim=0: np.split(
        self,
        np.cumsum(split_sizes(self.shape[dim], split_size_or_sections))[:-1],
        dim,
    ),
    samples=lambda make: (
        Sample(make((5,)), 2),
        Sample(make((5,)), 5),
        Sample(make((4, 4)), [1, 3], 1),
        Sample(make((2, 0, 3)), 2, 1),
        Sample(make((2, 3, 5)), [2, 0, 3], -1),
    ),
    errors=lambda make: [(Sample(make((5,)), [2, 2]), ArgumentError)],
    tolerance=exact,
    view=True,
)
def split(self: Tensor, split_size_or_sections: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces along ``dim``: of one size (the last may be less), or of the sizes listed.

    Raises :class:`ArgumentError` when the sizes do not add up.
    """
    length = self.shape[normalize_dim(dim, self.ndim)]
    return _pieces(self, split_sizes(length, split_size_or_sections), dim)


@split.vjp
def _(grad, dim):
    return lazy.cat(list(grad), dim)


@composite(
    out=lambda self, chunks, dim=0: cut(
        self, chunk_sizes(self.shape[normalize_dim(dim, len(self.shape))], chunks), dim
    ),
    dtype=_same_each,
    reference=lambda self, chunks, dim=0: np.split(
        self, np.cumsum(chunk_sizes(self.shape[dim], chunks))[:-1], dim
    ),
    samples=lambda make: (
        Sample(make((5,)), 2),
        Sample(make((5,)), 4),
        Sample(make((4, 4)), 2, 1),
        Sample(make((2, 3, 6)), 3, -1),
    ),
    tolerance=exact,
    view=True,
)
def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most ``chunks`` pieces of equal size along ``dim``; the last may be less."""
    length = self.shape[normalize_dim(dim, self.ndim)]
    return _pieces(self, chunk_sizes(length, chunks), dim)


@chunk.vjp
def _(grad, dim):
    return lazy.cat(list(grad), dim)


def _section_sizes(length: int, sections: int) -> list[int]:
    if sections <= 0:
        raise ArgumentError(
            f"the number of sections must be positive, got {sections}", fix="use at least 1"
        )
    return [(length + sections - 1 - k) // sections for k in range(sections)]


@composite(
    reference=np.array_split,
    samples=lambda make: (
        Sample(make((5,)), 3),
        Sample(make((7, 2)), [1, 4]),
        Sample(make((4, 4)), 3, 1),
    ),
    tolerance=exact,
    view=True,
    host=("indices_or_sections",),
)
def tensor_split(self: Tensor, indices_or_sections: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces along ``dim``: a number of nearly equal ones, or cut at the indices.

    Both may be a tensor; it may be on the CPU wherever ``self`` is.
    """
    where: Any = indices_or_sections
    if hasattr(where, "tolist"):
        where = where.tolist()
    d = normalize_dim(dim, self.ndim)
    if isinstance(where, int):
        return _pieces(self, _section_sizes(self.shape[d], where), dim)
    bounds = [min(max(i + self.shape[d] if i < 0 else i, 0), self.shape[d]) for i in where]
    edges = zip([0, *bounds], [*bounds, self.shape[d]])
    return tuple(self[along(d, slice(start, max(start, end)))] for start, end in edges)


def _evenly(self: Tensor, where: Any, dim: int) -> tuple[Tensor, ...]:
    """:func:`tensor_split` into sections of one size."""
    count = isinstance(where, int) and where
    if count and self.shape[dim] % count:
        raise ShapeError(
            f"dimension {dim} of size {self.shape[dim]} does not divide into {where} sections",
            fix="use tensor_split, whose sections may differ",
        )
    return tensor_split(self, where, dim)


@composite(
    reference=lambda self, indices_or_sections: np.hsplit(self, indices_or_sections),
    samples=lambda make: (Sample(make(s), [1, 3]) for s in ((7,), (3, 6))),
    tolerance=exact,
    view=True,
)
def hsplit(self: Tensor, indices_or_sections: object) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 1 (0 for vectors)."""
    if self.ndim < 1:
        raise ShapeError("hsplit needs 1 dimension, got 0", fix="use a tensor with a dimension")
    return _evenly(self, indices_or_sections, int(self.ndim > 1))


@composite(
    reference=lambda self, indices_or_sections: np.vsplit(self, indices_or_sections),
    samples=lambda make: (Sample(make(s), [1, 3]) for s in ((7, 2), (6, 3))),
    tolerance=exact,
    view=True,
)
def vsplit(self: Tensor, indices_or_sections: object) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 0."""
    if self.ndim < 2:
        raise ShapeError(f"vsplit needs 2 dimensions, got {self.ndim}", fix="use tensor_split")
    return _evenly(self, indices_or_sections, 0)


@composite(
    reference=lambda self, indices_or_sections: np.dsplit(self, indices_or_sections),
    samples=lambda make: (Sample(make(s), [1, 3]) for s in ((2, 3, 6), (2, 1, 4))),
    tolerance=exact,
    view=True,
)
def dsplit(self: Tensor, indices_or_sections: object) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 2."""
    if self.ndim < 3:
        raise ShapeError(f"dsplit needs 3 dimensions, got {self.ndim}", fix="use tensor_split")
    return _evenly(self, indices_or_sections, 2)


@composite(
    out=lambda self, dim=0: [
        _select_shape(self, dim, i) for i in range(self.shape[normalize_dim(dim, len(self.shape))])
    ],
    dtype=_same_each,
    reference=lambda self, dim=0: list(np.moveaxis(self, dim, 0)),
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((4, 4)), 1),
        Sample(make((2, 3, 5)), -1),
    ),
    tolerance=exact,
    view=True,
)
def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all slices along ``dim``, without that dimension."""
    if self.ndim == 0:
        raise DimError("a 0-dim tensor has no dimension to unbind", fix="reshape it to (1,) first")
    d = normalize_dim(dim, self.ndim)
    return tuple(self[along(d, i)] for i in range(self.shape[d]))


@unbind.vjp
def _(grad, dim):
    return lazy.stack(list(grad), dim)


# ---- diagonals and windows ----------------------------------------------------------------------
