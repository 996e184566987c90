"""Shape rules and samples of the ops that rearrange, join and cut tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from coredispatch.ops.support.rules import normalize_dim, normalize_dims
from coredispatch.ops.support.samples import Sample
from coredispatch.registry.model.errors import ArgumentError, DimError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import (
    Symbol,
    as_int,
    as_sizes,
    expand_size,
    infer_size,
)

Shape = tuple[int, ...]


def viewed(self: Any, shape: Sequence[int], *_: Any) -> Shape:
    """``shape`` with its -1, if any, worked out; raises :class:`ShapeError` if sizes differ."""
    return infer_size(shape, prod(self.shape))


def permuted(self: Any, dims: Sequence[int], *_: Any) -> Shape:
    """The lengths in the order ``dims``, which must name every dimension once."""
    ndim = len(self.shape)
    order = [normalize_dim(d, ndim) for d in dims] if ndim else []
    if sorted(order) != list(range(ndim)) or len(dims) != ndim:
        raise DimError(
            f"dims {tuple(dims)} do not name each of {ndim} dimensions once",
            fix=f"use an order of {tuple(range(ndim))}",
        )
    return tuple(self.shape[d] for d in order)


def swapped(self: Any, dim0: int, dim1: int, *_: Any) -> Shape:
    """The lengths with those of two dimensions swapped."""
    shape = list(self.shape)
    i, j = normalize_dim(dim0, len(shape)), normalize_dim(dim1, len(shape))
    if shape:
        shape[i], shape[j] = shape[j], shape[i]
    return tuple(shape)


def expanded(self: Any, size: Sequence[int], *_: Any) -> Shape:
    """``size`` with -1 standing for the tensor's own length."""
    return expand_size(self.shape, size)


def squeezed(self: Any, dim: Any = None, *_: Any) -> Shape:
    """The lengths without those of 1, or without those of ``dim`` that are 1."""
    shape = tuple(self.shape)
    dims = normalize_dims(dim, len(shape)) if dim != () else ()
    return tuple(n for i, n in enumerate(shape) if n != 1 or i not in dims)


def unsqueezed(self: Any, dim: int, *_: Any) -> Shape:
    """The lengths with a 1 put in at ``dim``."""
    shape = tuple(self.shape)
    i = normalize_dim(dim, len(shape) + 1)
    return (*shape[:i], 1, *shape[i:])


def flattened(self: Any, start_dim: int = 0, end_dim: int = -1, *_: Any) -> Shape:
    """The lengths with those from ``start_dim`` to ``end_dim`` multiplied."""
    shape = tuple(self.shape)
    first, last = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if first > last:
        raise DimError(
            f"start_dim {start_dim} comes after end_dim {end_dim}", fix="swap start_dim and end_dim"
        )
    return (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])


def joined(tensors: Sequence[Any], dim: int = 0, *_: Any) -> Shape:
    """The common shape with the lengths along ``dim`` added up; (0,) joins anything."""
    if not tensors:
        raise ArgumentError("there is nothing to join", fix="pass at least one tensor")
    shapes = [tuple(t.shape) for t in tensors]
    counted = [s for s in shapes if s != (0,)] or [(0,)]
    first = counted[0]
    if not first:
        raise ShapeError("0-dim tensors cannot be joined", fix="use stack")
    d = normalize_dim(dim, len(first))
    for shape in counted[1:]:
        if len(shape) != len(first) or shape[:d] + shape[d + 1 :] != first[:d] + first[d + 1 :]:
            raise ShapeError(
                f"shapes {first} and {shape} differ outside dimension {dim}",
                fix="joined tensors agree in all other dimensions",
            )
    return (*first[:d], sum(s[d] for s in counted), *first[d + 1 :])


def stacked(tensors: Sequence[Any], dim: int = 0, *_: Any) -> Shape:
    """The common shape with the number of tensors put in at ``dim``."""
    if not tensors:
        raise ArgumentError("there is nothing to stack", fix="pass at least one tensor")
    first = tuple(tensors[0].shape)
    for t in tensors:
        if tuple(t.shape) != first:
            raise ShapeError(
                f"stacked tensors have one shape, got {first} and {tuple(t.shape)}",
                fix="give all tensors one shape, or use cat",
            )
    d = normalize_dim(dim, len(first) + 1)
    return (*first[:d], len(tensors), *first[d:])


def padded(self: Any, pad: Sequence[int], *_: Any, uncropped: bool = False) -> Shape:
    """The lengths grown by ``pad``: pairs from the last dimension back.

    Borders are put around what a negative number leaves, unless ``uncropped``: then the borders
    are cropped as well. Raises :class:`ShapeError` where more is cropped than there is.
    """
    shape = list(self.shape)
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise ShapeError(
            f"pad {tuple(pad)} does not fit {len(shape)} dimensions",
            fix="give a pair of numbers for each padded dimension, the last dimension first",
        )
    for i in range(len(pad) // 2):
        before, after = pad[2 * i], pad[2 * i + 1]
        left = shape[-1 - i] + (0 if uncropped else min(before, 0) + min(after, 0))
        shape[-1 - i] += before + after
        if left < 0 or shape[-1 - i] < 0:
            raise ShapeError(
                f"padding ({before}, {after}) crops more than the {self.shape[-1 - i]} elements "
                f"along dimension {len(shape) - 1 - i} of shape {tuple(self.shape)}",
                fix="crop by no more than a length",
            )
    return as_sizes(shape)


def cut(self: Any, sizes: Sequence[int], dim: int) -> list[Shape]:
    """The shapes of pieces with the given lengths along ``dim``."""
    shape = tuple(self.shape)
    d = normalize_dim(dim, len(shape))
    return [(*shape[:d], n, *shape[d + 1 :]) for n in sizes]


def split_sizes(length: int, size: Any) -> list[int]:
    """The lengths of the pieces of :func:`split`: of one size, or as listed."""
    if not isinstance(size, (list, tuple)):
        size = _piece(size)
        if size < 0 or (size == 0 and length):
            raise ArgumentError(
                f"a split size must be positive, got {size}", fix="use a positive size"
            )
        if length == 0:
            return [0]
        if isinstance(length, Symbol) or isinstance(size, Symbol):
            return _open_sizes(length, size)
        return [min(size, length - start) for start in range(0, length, size)]
    size = [_piece(n) for n in size]
    if sum(size) != length or any(n < 0 for n in size):
        raise ArgumentError(
            f"split sizes {tuple(size)} do not add up to the length {length}",
            fix="the pieces must cover the dimension",
        )
    return size


def _piece(size: Any) -> Any:
    """The length of a piece, which may stand in a tensor."""
    try:
        return as_int(size)
    except TypeError:
        raise DTypeError(
            f"split_size_or_sections must be an int or a list of them, not {size!r}",
            fix="give the size of each piece, or the list of their sizes",
        ) from None


def _open_sizes(length: Any, size: Any) -> list[Any]:
    """:func:`split_sizes` of what is not known yet: a question for each piece, no number.

    The last piece is what is left, whether it is a whole one or not.
    """
    sizes, start = [], 0
    while start + size < length:
        sizes.append(size)
        start = start + size
    return [*sizes, length - start]


def chunk_sizes(length: int, chunks: int) -> list[int]:
    """The lengths of the pieces of :func:`chunk`."""
    if chunks <= 0:
        raise ArgumentError(f"chunks must be positive, got {chunks}", fix="use at least 1")
    return [0] * chunks if length == 0 else split_sizes(length, -(-length // chunks))


# ---- samples ------------------------------------------------------------------------------------


def two_dims(make: Any) -> Iterator[Sample]:
    """``op(self, dim0, dim1)``."""
    for shape in ((5,), (4, 4), (3, 5), (2, 0, 3), (2, 3, 5), (2, 3, 4, 5)):
        yield Sample(make(shape), 0, -1)
        yield Sample(make(shape), len(shape) // 2, len(shape) - 1)


def reshapes(make: Any) -> Iterator[Sample]:
    """``op(self, shape)``."""
    for shape, new in (
        ((), (1,)),
        ((), (1, 1)),
        ((1,), ()),
        ((0,), (0, 3)),
        ((12,), (3, 4)),
        ((12,), (-1,)),
        ((4, 4), (16,)),
        ((3, 5), (5, 3)),
        ((3, 5), (-1, 1, 5)),
        ((2, 3, 4), (6, -1)),
        ((2, 3, 4, 5), (2, 12, 5)),
    ):
        yield Sample(make(shape), new)


def splits(make: Any) -> Iterator[Sample]:
    """``op(self, shape)`` where dimensions are only split: possible for any strides."""
    for shape, new in (
        ((), (1,)),
        ((), (1, 1)),
        ((1,), ()),
        ((0,), (0, 3)),
        ((12,), (3, 4)),
        ((12,), (-1, 2)),
        ((4, 4), (2, 2, 4)),
        ((3, 5), (3, 1, 5)),
        ((2, 6, 4), (2, 3, 2, 4)),
    ):
        yield Sample(make(shape), new)


def permutations(make: Any) -> Iterator[Sample]:
    """``op(self, dims)``."""
    for shape, dims in (
        ((), ()),
        ((5,), (0,)),
        ((4, 4), (1, 0)),
        ((3, 5), (-1, 0)),
        ((2, 3, 4), (1, -1, -3)),
        ((2, 0, 3), (2, 0, 1)),
        ((2, 3, 5), (2, 0, 1)),
        ((2, 3, 4, 5), (0, 2, 3, 1)),
    ):
        yield Sample(make(shape), dims)


def expansions(make: Any) -> Iterator[Sample]:
    """``op(self, size)``."""
    for shape, size in (
        ((), (3,)),
        ((), ()),
        ((1,), (0,)),
        ((1,), (257,)),
        ((5,), (4, 5)),
        ((3, 1), (3, 5)),
        ((2, 1, 5), (2, 3, 5)),
        ((1, 4, 1), (2, 3, 4, 5)),
    ):
        yield Sample(make(shape), size)


def joins(make: Any) -> Iterator[Sample]:
    """``op(tensors, dim)`` with lengths that differ along ``dim``."""
    yield Sample([make((5,))], 0)
    yield Sample([make((5,)), make((3,)), make((0,))], 0)
    yield Sample([make((3, 5)), make((2, 5))], 0)
    yield Sample([make((3, 5)), make((3, 2)), make((3, 17))], 1)
    yield Sample([make((2, 3, 4)), make((2, 1, 4))], -2)
    yield Sample([make((4, 4)), make((4, 4))], -1)


def same_joins(make: Any) -> Iterator[Sample]:
    """``op(tensors, dim)`` with equal shapes and a new dimension."""
    for shape in ((), (0,), (5,), (4, 4), (2, 3, 5)):
        for dim in range(-len(shape) - 1, len(shape) + 1):
            yield Sample([make(shape), make(shape), make(shape)], dim)


def matrices(make: Any) -> Iterator[Sample]:
    """``op(self)`` for matrices and stacks of them."""
    for shape in ((4, 4), (3, 5), (5, 3), (1, 7), (0, 3), (2, 3, 5), (2, 2, 3, 4)):
        yield Sample(make(shape))


def matrices_with_offset(make: Any) -> Iterator[Sample]:
    """``op(self, diagonal)``."""
    for sample in matrices(make):
        for diagonal in (0, 1, -2):
            yield Sample(*sample.args, diagonal)
