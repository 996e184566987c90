"""Elements in another order, repeated, or kept on one side of a diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.ops.shape import joining
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape.rules import matrices, matrices_with_offset
from coredispatch.ops.shape.slicing import along
from coredispatch.ops.shape.strided_views import diagonal_places
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, normalize_dims, same
from coredispatch.ops.support.samples import Sample, unary
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import ArgumentError, DimError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import as_size, as_sizes, is_int
from coredispatch.registry.model.value import Value, dtype_of

__all__ = [
    "diag",
    "diag_embed",
    "diagflat",
    "flip",
    "fliplr",
    "flipud",
    "repeat",
    "repeat_interleave",
    "roll",
    "rot90",
    "tile",
    "tril",
    "triu",
]

# ---- order --------------------------------------------------------------------------------------


def _flip_shape(self: Any, dims: Any) -> tuple[int, ...]:
    if dims:
        normalize_dims(dims, len(self.shape))
    return tuple(self.shape)


@primitive(
    out=_flip_shape,
    dtype=same,
    reference=lambda self, dims: np.flip(self, dims) if self.ndim else self,
    samples=lambda make: (
        Sample(make((5,)), 0),
        Sample(make((0,)), 0),
        Sample(make(()), 0),
        Sample(make((4, 4)), (0, 1)),
        Sample(make((3, 5)), -1),
        Sample(make((2, 3, 5)), (0, 2)),
        Sample(make((3, 257)), 1),
    ),
    errors=lambda make: [
        (Sample(make((3, 4)), 2), DimError),
        (Sample(make((3, 4)), (0, 0)), DimError),
    ],
    tolerance=exact,
)
def flip(self: Tensor, dims: IntList) -> Tensor:
    """The order of the elements along ``dims`` reversed; a copy, as in PyTorch."""


@flip.vjp
def _(grad, dims):
    return flip(grad, dims)


@composite(reference=np.fliplr, samples=matrices, tolerance=exact)
def fliplr(self: Tensor) -> Tensor:
    """Columns (dimension 1) in reversed order."""
    if self.ndim < 2:
        raise ShapeError(f"fliplr needs 2 dimensions, got {self.ndim}", fix="use flipud")
    return flip(self, (1,))


@composite(reference=np.flipud, samples=matrices, tolerance=exact)
def flipud(self: Tensor) -> Tensor:
    """Rows (dimension 0) in reversed order."""
    if self.ndim < 1:
        raise ShapeError("flipud needs 1 dimension, got 0", fix="use a tensor with a dimension")
    return flip(self, (0,))


def _roll_shape(self: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> tuple[int, ...]:
    for d in dims:
        normalize_dim(d, len(self.shape))
    if len(shifts) != (len(dims) or 1):
        raise ArgumentError(
            f"shifts {tuple(shifts)} and dims {tuple(dims)} differ in length",
            fix="give one shift for each dim, or one shift and no dims",
        )
    return tuple(self.shape)


@composite(
    out=_roll_shape,
    dtype=same,
    # Without dims the elements move in the order of the flattened array.
    reference=lambda self, shifts, dims=(): np.roll(self, shifts, None if dims == () else dims),
    samples=lambda make: (
        Sample(make((5,)), 2),
        Sample(make((3, 5)), -4),
        Sample(make((4, 4)), 1, 0),
        Sample(make((2, 3, 5)), (1, -7), (0, 2)),
        Sample(make((0, 3)), 1, 0),
    ),
    tolerance=exact,
)
def roll(self: Tensor, shifts: IntList, dims: IntList = ()) -> Tensor:
    """Elements shifted by ``shifts`` along ``dims``; what leaves one end enters at the other.

    Without ``dims`` the flattened elements are shifted.
    """
    _roll_shape(self, shifts, dims)
    if not dims:
        return shape.reshape(roll(shape.reshape(self, (-1,)), shifts, (0,)), tuple(self.shape))
    out = self
    for shift, dim in zip(shifts, dims):
        d = normalize_dim(dim, self.ndim)
        cut = (-shift) % max(self.shape[d], 1)
        out = joining.cat([out[along(d, slice(cut, None))], out[along(d, slice(0, cut))]], d)
    return out


@roll.vjp
def _(grad, shifts, dims):
    return roll(grad, tuple(-s for s in shifts), dims)


@composite(
    reference=np.rot90,
    samples=lambda make: (Sample(make((3, 5)), k) for k in (-1, 0, 1, 2, 3, 5)),
    tolerance=exact,
)
def rot90(self: Tensor, k: int = 1, dims: IntList = (0, 1)) -> Tensor:
    """``k`` quarter turns in the plane of ``dims``, from the first towards the second."""
    if len(dims) != 2:
        raise ArgumentError(f"dims must be two, got {dims}", fix="name the plane by two dims")
    i, j = normalize_dims(dims, self.ndim) if self.ndim else dims
    if self.ndim < 2:
        raise ShapeError(
            f"a rotation needs at least 2 dimensions, got {self.ndim}", fix="use flip for vectors"
        )
    turns = k % 4
    if turns == 0:
        return self.clone()
    if turns == 2:
        return flip(self, (i, j))
    if turns == 1:
        return lazy.transpose(flip(self, (j,)), i, j).clone()
    return flip(lazy.transpose(self, i, j), (j,))


# ---- repetition ---------------------------------------------------------------------------------


def _repeat_shape(self: Any, repeats: Sequence[int]) -> tuple[int, ...]:
    lead = len(repeats) - len(self.shape)
    if lead < 0:
        raise ShapeError(
            f"{len(repeats)} repeats {tuple(repeats)} are too few for {len(self.shape)} dimensions",
            fix="give a number >= 0 for each dimension, with further ones in front",
        )
    counts = as_sizes(repeats, "repeats")
    return as_sizes([n * r for n, r in zip((*(1,) * lead, *self.shape), counts)], "the result")


@composite(
    out=_repeat_shape,
    dtype=same,
    reference=lambda self, repeats: np.tile(self, repeats),
    samples=lambda make: (
        Sample(make(()), (3,)),
        Sample(make((5,)), (2,)),
        Sample(make((5,)), (3, 1)),
        Sample(make((4, 4)), (2, 3)),
        Sample(make((3, 5)), (0, 2)),
        Sample(make((2, 3)), (2, 1, 3)),
    ),
    errors=lambda make: [(Sample(make((2, 3)), (2,)), ShapeError)],
    tolerance=exact,
    namespace=(),
)
def repeat(self: Tensor, repeats: IntList) -> Tensor:
    """Copies of ``self`` side by side, ``repeats[i]`` along dimension i; always a copy.

    More repeats than dimensions add some in front.
    """
    sizes = _repeat_shape(self, repeats)
    padded = (*(1,) * (len(repeats) - self.ndim), *self.shape)
    x = shape.reshape(self, tuple(n for size in padded for n in (1, size)))
    x = shape.expand(x, tuple(n for pair in zip(repeats, padded) for n in pair))
    return shape.reshape(x.clone(), sizes)


@repeat.vjp
def _(grad, self_shape, repeats):
    padded = (*(1,) * (len(repeats) - len(self_shape)), *self_shape)
    if 0 in repeats:
        return grad.new_zeros(self_shape)
    copies = shape.reshape(grad, tuple(n for pair in zip(repeats, padded) for n in pair))
    total = lazy.sum(copies, tuple(range(0, 2 * len(repeats), 2))) if repeats else copies
    return shape.reshape(total, self_shape)


@composite(
    reference=lambda self, dims: np.tile(self, dims),
    samples=lambda make: (
        Sample(make((3,)), (2,)),
        Sample(make((2, 3)), (2,)),
        Sample(make((3,)), (2, 2)),
    ),
    tolerance=exact,
)
def tile(self: Tensor, dims: IntList) -> Tensor:
    """Like :func:`repeat`, with fewer repeats than dimensions allowed (1 in front)."""
    return repeat(self, (*(1,) * (self.ndim - len(dims)), *as_sizes(dims, "dims")))


@composite(
    reference=lambda self, repeats, dim=None, output_size=None: np.repeat(self, repeats, dim),
    samples=lambda make: (
        Sample(make((5,)), 3),
        Sample(make((2, 3)), 2),
        Sample(make((2, 3)), 2, 1),
        Sample(make((3, 2)), np.array([0, 2, 1]), 0),
        Sample(make((3, 2)), np.array([0, 2, 1]), 0, output_size=3),
    ),
    dtypes="all",
    tolerance=exact,
)
def repeat_interleave(
    self: Tensor, repeats: object, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice along ``dim``) several times in a row.

    ``repeats`` is a number, or a tensor or list of one number per slice. Without ``dim`` the
    elements are flattened first. ``output_size``, the sum of the counts, is checked where it is
    given. Raises :class:`ShapeError` where the counts do not fit.
    """
    if dim is None:
        flat = shape.reshape(self, (-1,))
        return repeat_interleave(flat, repeats, 0, output_size=output_size)
    if not self.ndim:
        normalize_dim(dim, 0)
        self = shape.reshape(self, (1,))
    d = normalize_dim(dim, self.ndim)
    length = self.shape[d]
    if getattr(repeats, "ndim", 0) > 1:
        raise ShapeError(
            "repeats must be 0-dim or 1-dim tensor, got shape "
            f"{tuple(getattr(repeats, 'shape', ()))}",
            fix="give one number for each slice",
        )
    if output_size is not None and isinstance(repeats, Value):
        given: Any = shape.reshape(repeats, (-1,))
        if given.shape[0] == length and length > 1:
            return lazy.index_select(self, d, _runs_of(given, output_size))
        if given.is_meta and given.shape[0] in (1, length) and length:
            each = shape.expand(given, (length,))
            return lazy.index_select(self, d, _runs_of(each, output_size))
    counts: Any = repeats.tolist() if hasattr(repeats, "tolist") else repeats
    if isinstance(counts, list) and len(counts) == 1:
        counts = counts[0]
    if is_int(counts):
        as_size(counts, "repeats")
        _check_output_size(counts * length, output_size)
        sizes = (*self.shape[: d + 1], counts, *self.shape[d + 1 :])
        x = shape.expand(shape.unsqueeze(self, d + 1), sizes)
        return shape.flatten(x.clone(), d, d + 1)
    counts = [as_size(n, "repeats") for n in (counts if isinstance(counts, list) else [counts])]
    if len(counts) != length:
        raise ShapeError(
            f"{len(counts)} repeats do not count the {length} slices along dim {dim}",
            fix="give one number, or one for each slice",
        )
    total = sum(counts)
    _check_output_size(total, output_size)
    if isinstance(repeats, Value):
        return lazy.index_select(self, d, _places(lazy.cumsum(repeats, 0), total))
    return lazy.index_select(self, d, _runs(counts, self.device))


def _check_output_size(total: int, output_size: int | None) -> None:
    if output_size is not None and output_size != total:
        raise ShapeError(
            f"the repeats add up to {total}, not to output_size={output_size}",
            fix="leave output_size out",
        )


def _runs(counts: Sequence[int], device: Any) -> Any:
    """0 ``counts[0]`` times, 1 ``counts[1]`` times, and so on."""
    runs = [lazy.full((as_size(n, "repeats"),), i, device=device) for i, n in enumerate(counts)]
    return joining.cat(runs) if runs else lazy.arange(0, device=device)


def _runs_of(counts: Any, total: int) -> Any:
    """The runs of counts that add up to ``total``: no value is read to know how many they are."""
    ends = lazy.cumsum(counts, 0)
    ends = lazy.checked(ends, counts, 0, None, "repeats")
    return _places(lazy.checked(ends, ends[-1], total, total, "repeats"), total)


def _places(ends: Any, total: int) -> Any:
    """The runs that end where ``ends`` says, the last of them at ``total``."""
    return lazy.searchsorted(ends, lazy.arange(total, device=ends.device), right=True)


@repeat_interleave.overload
def _(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    if repeats.ndim != 1 or dtype_of(repeats).category != 1:
        raise DTypeError(
            f"repeats must be a vector of integers, not {dtype_of(repeats)} of shape "
            f"{tuple(repeats.shape)}",
            fix="use repeats.long().reshape(-1)",
        )
    if output_size is not None and repeats.numel() > 1:
        return lazy.to_dtype(_runs_of(repeats, output_size), dtype_of(repeats))
    total = sum(as_size(n, "repeats") for n in repeats.tolist())
    _check_output_size(total, output_size)
    return lazy.to_dtype(_places(lazy.cumsum(repeats, 0), total), dtype_of(repeats))


# ---- diagonals and triangles --------------------------------------------------------------------


def _matrix_shape(self: Any, *_: Any) -> tuple[int, ...]:
    if len(self.shape) < 2:
        raise ShapeError(
            f"a matrix or a stack of them is needed, got {len(self.shape)} dimensions",
            fix="use at least 2 dimensions",
        )
    return tuple(self.shape)


def _triangle(self: Any, offset: int, upper: bool) -> Any:
    rows, columns = _matrix_shape(self)[-2:]
    i = shape.unsqueeze(lazy.arange(rows, device=self.device), 1)
    j = lazy.arange(columns, device=self.device)
    inside = j - i >= offset if upper else j - i <= offset
    return lazy.where(inside, self, lazy.zeros_like(self))


@composite(
    out=_matrix_shape,
    dtype=same,
    reference=np.tril,
    samples=matrices_with_offset,
    tolerance=exact,
    inplace=True,
)
def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """Zeros above diagonal number ``diagonal`` of every matrix."""
    return _triangle(self, diagonal, upper=False)


@tril.vjp
def _(grad, diagonal):
    return tril(grad, diagonal)


@composite(
    out=_matrix_shape,
    dtype=same,
    reference=np.triu,
    samples=matrices_with_offset,
    tolerance=exact,
    inplace=True,
)
def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """Zeros below diagonal number ``diagonal`` of every matrix."""
    return _triangle(self, diagonal, upper=True)


@triu.vjp
def _(grad, diagonal):
    return triu(grad, diagonal)


@composite(
    reference=np.diag,
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((3,)), 2),
        Sample(make((3,)), -1),
        Sample(make((4, 4))),
        Sample(make((3, 5)), 1),
    ),
    tolerance=exact,
)
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix (a copy), or a matrix with a vector on its diagonal."""
    if self.ndim == 1:
        return diag_embed(self, diagonal)
    if self.ndim != 2:
        raise ShapeError(
            f"diag takes a vector or a matrix, got {self.ndim} dimensions",
            fix="use diagonal or diag_embed for more dimensions",
        )
    return lazy.diagonal(self, diagonal).clone()


def _diag_embed_reference(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    size = self.shape[-1] + abs(offset)
    rows = [np.diag(row, offset) for row in self.reshape(-1, self.shape[-1])]
    planes = np.stack(rows).reshape(*self.shape[:-1], size, size)
    return np.moveaxis(planes, (-2, -1), (dim1, dim2))


@composite(
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((2, 3)), 1),
        Sample(make((2, 3)), -2),
        Sample(make((2, 3)), 1, 0, 2),
    ),
    reference=_diag_embed_reference,
    tolerance=exact,
)
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Square matrices with the rows of ``self`` (its last dimension) on their diagonals."""
    size = self.shape[-1] + abs(offset)
    row, column, _ = diagonal_places(size, size, offset)
    i = lazy.arange(self.shape[-1], device=self.device)
    planes = self.new_zeros((*self.shape[:-1], size, size))
    planes = lazy.index_put(planes, (..., i + row, i + column), self)
    if normalize_dim(dim1, planes.ndim) == normalize_dim(dim2, planes.ndim):
        raise DimError(
            f"a diagonal needs two different dimensions, got {dim1} and {dim2}",
            fix="use two different dims of a tensor with at least 2",
        )
    return lazy.movedim(planes, (-2, -1), (dim1, dim2))


@diag_embed.vjp
def _(grad, offset, dim1, dim2):
    return lazy.diagonal(grad, offset, dim1, dim2)


@composite(reference=np.diagflat, samples=unary, tolerance=exact)
def diagflat(self: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the elements of ``self``, in row-major order, on a diagonal."""
    return diag_embed(shape.reshape(self, (self.numel(),)), offset)
