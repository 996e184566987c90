"""Dimensions in another order: transposes and related operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.shape.rules import (
    matrices,
    permutations,
    permuted,
    swapped,
    two_dims,
)
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, normalize_dims, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "adjoint",
    "mH",
    "mT",
    "matrix_transpose",
    "movedim",
    "permute",
    "swapaxes",
    "t",
    "transpose",
]


@primitive(
    out=permuted,
    dtype=same,
    reference=np.transpose,
    samples=permutations,
    tolerance=exact,
    view=True,
)
def permute(self: Tensor, dims: IntList) -> Tensor:
    """The dimensions in the order ``dims``: dimension i of the result is ``dims[i]`` of ``self``.

    Raises :class:`DimError` unless ``dims`` names every dimension once.
    """


@permute.vjp
def _(grad, dims):
    order = [d % len(dims) for d in dims]
    return permute(grad, tuple(sorted(range(len(dims)), key=order.__getitem__)))


@composite(
    out=swapped,
    dtype=same,
    reference=np.swapaxes,
    samples=two_dims,
    tolerance=exact,
    view=True,
)
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """``self`` with two dimensions swapped."""
    order = list(range(self.ndim))
    i, j = normalize_dim(dim0, self.ndim), normalize_dim(dim1, self.ndim)
    if order:
        order[i], order[j] = j, i
    return permute(self, tuple(order))


@transpose.vjp
def _(grad, dim0, dim1):
    return transpose(grad, dim0, dim1)


@composite(
    name="swapaxes",
    reference=np.swapaxes,
    samples=two_dims,
    tolerance=exact,
    view=True,
    alias=("swapdims",),
)
def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """``self`` with two dimensions swapped; another name of :func:`transpose`."""
    return transpose(self, axis0, axis1)


def _t_shape(self: Any, *_: Any) -> tuple[int, ...]:
    if len(self.shape) > 2:
        raise ShapeError(
            f"t takes at most 2 dimensions, got {len(self.shape)}",
            fix="use mT, or permute to reverse all dimensions",
        )
    return tuple(self.shape)[::-1]


@composite(
    out=_t_shape,
    dtype=same,
    reference=np.transpose,
    samples=lambda make: (Sample(make(s)) for s in ((), (5,), (4, 4), (3, 5), (0, 3))),
    tolerance=exact,
    view=True,
)
def t(self: Tensor) -> Tensor:
    """The transpose of a matrix; a view of vectors and 0-dim tensors as they are."""
    _t_shape(self)
    return permute(self, tuple(range(self.ndim))[::-1])


@t.vjp
def _(grad):
    return t(grad)


@composite(
    name="matrix_transpose",
    reference=lambda self: np.swapaxes(self, -2, -1),
    samples=matrices,
    tolerance=exact,
    view=True,
    namespace="linalg",
)
def matrix_transpose(self: Tensor) -> Tensor:
    """The last two dimensions swapped: every matrix of a stack transposed (``x.mT``)."""
    if self.ndim < 2:
        raise ShapeError(
            f"a matrix transpose needs 2 dimensions, got {self.ndim}",
            fix="use a tensor with at least 2 dimensions",
        )
    return transpose(self, -2, -1)


def mT(x: Tensor) -> Tensor:
    """Every matrix of a stack transposed; the attribute ``x.mT``."""
    return matrix_transpose(x)


@composite(
    name="adjoint",
    reference=lambda self: np.conj(np.swapaxes(self, -2, -1)),
    samples=matrices,
    tolerance=exact,
    view="maybe",
)
def adjoint(self: Tensor) -> Tensor:
    """Every matrix of a stack transposed and conjugated (``x.mH``)."""
    self = self.conj() if self.dtype.is_complex else self
    return matrix_transpose(self) if self.ndim else self


def mH(x: Tensor) -> Tensor:
    """Every matrix of a stack transposed and conjugated; the attribute ``x.mH``."""
    return adjoint(x)


@composite(
    reference=np.moveaxis,
    samples=lambda make: (
        Sample(make((4, 4)), 0, 1),
        Sample(make((2, 3, 4, 5)), 1, -1),
        Sample(make((2, 3, 4, 5)), (0, 1), (-1, 0)),
    ),
    tolerance=exact,
    view=True,
    alias=("moveaxis",),
)
def movedim(self: Tensor, source: IntList, destination: IntList) -> Tensor:
    """``self`` with the dimensions ``source`` at the places ``destination``, the others in order.

    Raises :class:`ShapeError` when the two do not name equally many, :class:`DimError` when one
    is named twice.
    """
    ndim = self.ndim
    if len(source) != len(destination):
        raise ShapeError(
            f"source {tuple(source)} and destination {tuple(destination)} differ in length",
            fix="name as many dimensions in both",
        )
    places = dict(zip(normalize_dims(destination, ndim), normalize_dims(source, ndim)))
    others = iter([d for d in range(ndim) if d not in places.values()])
    return permute(self, tuple(places[d] if d in places else next(others) for d in range(ndim)))
