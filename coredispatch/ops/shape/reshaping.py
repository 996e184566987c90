"""Views in another shape: the same elements, looked at with other lengths and strides.

``view``, ``permute`` and ``expand`` are the primitives; together with basic indexing
(:mod:`.indexing`) every other view is made of them. A view shares memory with its tensor: what
is written to one is seen in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.creation import copying
from coredispatch.ops.shape.rules import (
    expanded,
    expansions,
    flattened,
    reshapes,
    splits,
    squeezed,
    unsqueezed,
    viewed,
)
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, same
from coredispatch.ops.support.samples import SHAPES, Sample, unary
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "broadcast_to",
    "expand",
    "expand_as",
    "flatten",
    "ravel",
    "reshape",
    "reshape_as",
    "squeeze",
    "unflatten",
    "unsqueeze",
    "view",
    "view_as",
]


def _bad_shapes(make: Any) -> Iterator[tuple[Sample, type[Exception]]]:
    yield Sample(make((3, 4)), (5, 2)), ShapeError
    yield Sample(make((3, 4)), (-1, -1)), ShapeError
    yield Sample(make((3, 4)), (5, -1)), ShapeError


# ---- the same elements in another shape ---------------------------------------------------------


@primitive(
    out=viewed,
    dtype=same,
    reference=np.reshape,
    samples=splits,
    errors=_bad_shapes,
    tolerance=exact,
    view=True,
    namespace=(),
)
def view(self: Tensor, shape: IntList) -> Tensor:
    """``self`` over the same memory in another ``shape``; one length may be -1.

    Raises :class:`ShapeError` where the sizes differ, or where the strides of ``self`` would
    need a copy (:func:`reshape` makes one).
    """


@view.vjp
def _(grad, self_shape):
    return reshape(grad, self_shape)


@composite(
    out=viewed,
    dtype=same,
    reference=np.reshape,
    samples=reshapes,
    errors=_bad_shapes,
    tolerance=exact,
    view="maybe",
)
def reshape(self: Tensor, shape: IntList) -> Tensor:
    """``self`` in another ``shape``, a view where the strides allow one, else a copy.

    One length may be -1. Raises :class:`ShapeError` where the number of elements differs.
    """
    shape = viewed(self, shape)
    try:
        return view(self, shape)
    except ShapeError:
        return view(copying.clone(self), shape)


@reshape.vjp
def _(grad, self_shape):
    return reshape(grad, self_shape)


@composite(
    reference=lambda self, other: self.reshape(other.shape),
    samples=lambda make: (Sample(make((12,)), make((3, 4))), Sample(make((3, 5)), make((3, 1, 5)))),
    tolerance=exact,
    view=True,
    namespace=(),
)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """``self`` viewed in the shape of ``other``."""
    return view(self, tuple(other.shape))


@composite(
    reference=lambda self, other: self.reshape(other.shape),
    samples=lambda make: (Sample(make((12,)), make((3, 4))), Sample(make((3, 5)), make((5, 3)))),
    tolerance=exact,
    view="maybe",
    namespace=(),
)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """``self`` reshaped to the shape of ``other``."""
    return reshape(self, tuple(other.shape))


@composite(
    out=flattened,
    dtype=same,
    reference=lambda self, start_dim=0, end_dim=-1: self.reshape(
        flattened(self, start_dim, end_dim)
    ),
    samples=lambda make: (
        *(Sample(make(shape)) for shape in SHAPES),
        Sample(make((2, 3, 4, 5)), 1),
        Sample(make((2, 3, 4, 5)), 1, -2),
        Sample(make((2, 3, 4, 5)), -3, 2),
    ),
    tolerance=exact,
    view="maybe",
)
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from ``start_dim`` to ``end_dim``, both included, as one.

    A 0-dim tensor becomes 1-d. A view where the strides allow one.
    """
    return reshape(self, flattened(self, start_dim, end_dim))


@flatten.vjp
def _(grad, self_shape):
    return reshape(grad, self_shape)


@composite(reference=np.ravel, samples=unary, tolerance=exact, view="maybe")
def ravel(self: Tensor) -> Tensor:
    """All elements in row-major order, 1-d; a view where the strides allow one."""
    return reshape(self, (-1,) if prod(self.shape) else (0,))


@composite(
    reference=lambda self, dim, sizes: self.reshape(
        (*self.shape[: dim % self.ndim], *sizes, *self.shape[dim % self.ndim + 1 :])
    ),
    samples=lambda make: (
        Sample(make((12,)), 0, (3, 4)),
        Sample(make((2, 6, 5)), 1, (2, 3)),
        Sample(make((0, 4)), 1, (2, 2)),
    ),
    tolerance=exact,
    view=True,
)
def unflatten(self: Tensor, dim: int, sizes: IntList) -> Tensor:
    """Dimension ``dim`` as several of ``sizes`` (one may be -1); the opposite of ``flatten``."""
    dim = normalize_dim(dim, self.ndim)
    parts = viewed(_Sized((self.shape[dim],)), sizes)
    return view(self, (*self.shape[:dim], *parts, *self.shape[dim + 1 :]))


class _Sized:
    """Something with a shape, for the shape rules."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


# ---- dimensions of length 1 ---------------------------------------------------------------------


def _squeeze_reference(self: Any, dim: Any = None) -> Any:
    return self.reshape(squeezed(self, dim))


def _squeezes(make: Any) -> Iterator[Sample]:
    for shape in ((), (1,), (5,), (1, 3, 1), (2, 1, 5)):
        yield Sample(make(shape))
    yield Sample(make((1, 3, 1)), 0)
    yield Sample(make((1, 3, 1)), -1)
    yield Sample(make((1, 3, 1)), (0, 1))
    yield Sample(make((4, 4)), 1)


@composite(
    out=squeezed,
    dtype=same,
    reference=_squeeze_reference,
    samples=_squeezes,
    tolerance=exact,
    view=True,
)
def squeeze(self: Tensor, dim: IntList | None = None) -> Tensor:
    """``self`` without its dimensions of length 1, or without those of ``dim`` of length 1."""
    return view(self, squeezed(self, dim))


@squeeze.vjp
def _(grad, self_shape):
    return reshape(grad, self_shape)


@composite(
    out=unsqueezed,
    dtype=same,
    reference=np.expand_dims,
    samples=lambda make: (
        Sample(make(shape), dim)
        for shape in ((), (0,), (5,), (4, 4), (2, 3, 5))
        for dim in range(-len(shape) - 1, len(shape) + 1)
    ),
    tolerance=exact,
    view=True,
)
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """``self`` with a new dimension of length 1 at ``dim`` (-1: last)."""
    dim = normalize_dim(dim, self.ndim + 1)
    return self[(slice(None),) * dim + (None,)]


@unsqueeze.vjp
def _(grad, self_shape):
    return reshape(grad, self_shape)


@primitive(
    out=expanded,
    dtype=same,
    reference=lambda self, size: np.broadcast_to(self, expanded(self, size)),
    samples=expansions,
    tolerance=exact,
    view=True,
    unbroadcast=True,
    namespace=(),
)
def expand(self: Tensor, size: IntList) -> Tensor:
    """``self`` with its dimensions of length 1 repeated to ``size``, without a copy.

    -1 keeps a length; more sizes than dimensions add some in front. The elements of the result
    share memory, so it cannot be written to in place. Raises :class:`ShapeError`.
    """


@expand.vjp
def _(grad):
    return grad


@composite(
    reference=lambda self, other: np.broadcast_to(self, other.shape),
    samples=lambda make: (Sample(make((3, 1)), make((3, 5))), Sample(make((5,)), make((2, 5)))),
    tolerance=exact,
    view=True,
    namespace=(),
)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """``self`` expanded to the shape of ``other``."""
    return expand(self, tuple(other.shape))


@composite(reference=np.broadcast_to, samples=expansions, tolerance=exact, view=True)
def broadcast_to(self: Tensor, size: IntList) -> Tensor:
    """``self`` expanded to ``size``."""
    return expand(self, size)
