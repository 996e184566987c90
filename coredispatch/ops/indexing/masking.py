"""Masks: elements filled, selected and found by where something holds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.indexing.rules import count_true
from coredispatch.ops.indexing.subscripts import getitem
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.inspection import greatest, least
from coredispatch.ops.support.rules import broadcast_shapes, exact, indices, same
from coredispatch.ops.support.samples import BROADCAST_SHAPES, Sample, unary
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import DType, bool_, int64
from coredispatch.registry.model.errors import ArgumentError, DimError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import as_size
from coredispatch.registry.model.value import dtype_of

__all__ = [
    "argwhere",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "one_hot",
]


def _require_mask(mask: Any) -> None:
    if DType.of(mask.dtype) is not bool_:
        raise DTypeError(
            f"a mask has dtype bool, not {DType.of(mask.dtype)}", fix="use mask.bool()"
        )


def _masks(make: Any) -> Iterator[Sample]:
    for a, b in BROADCAST_SHAPES:
        yield Sample(make(a), make.mask(b))
    yield Sample(make((3, 5)), make.mask((3, 5)))


def _masked_shape(self: Any, mask: Any, *_: Any) -> tuple[int, ...]:
    _require_mask(mask)
    return broadcast_shapes([tuple(self.shape), tuple(mask.shape)])


def _fill_shape(self: Any, mask: Any, value: Any) -> tuple[int, ...]:
    if getattr(value, "shape", ()) != ():
        raise ShapeError("masked_fill takes a number or a 0-dim tensor", fix="use where")
    return _masked_shape(self, mask)


@composite(
    out=_fill_shape,
    dtype=same,
    reference=lambda self, mask, value: np.where(mask, value, self),
    samples=lambda make: (Sample(*s.args, 1) for s in _masks(make)),
    errors=lambda make: [(Sample(make((3,)), np.array([0, 1, 0]), 1), DTypeError)],
    tolerance=exact,
    inplace=True,
    unbroadcast=True,
    fits=("value",),
)
def masked_fill(self: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """``value`` (a number or 0-dim tensor) where ``mask`` holds, else ``self``; both broadcast."""
    _fill_shape(self, mask, value)
    if not hasattr(value, "shape"):
        value = lazy.full((), value, dtype=self.dtype, device=self.device)
    elif value.dtype is not self.dtype:
        value = value.to_dtype(self.dtype)
    return lazy.where(mask, value, self)


masked_fill.vjp(
    self=lambda grad, mask: masked_fill(grad, mask, 0),
    value=lambda grad, mask: lazy.sum(masked_fill(grad, lazy.logical_not(mask), 0)),
)


def _selected_shape(self: Any, mask: Any) -> tuple[int, ...]:
    common = _masked_shape(self, mask)
    return (count_true(mask) * prod(common) // max(prod(mask.shape), 1),)


@composite(
    out=_selected_shape,
    dtype=same,
    reference=lambda self, mask: np.broadcast_arrays(self, mask)[0][
        np.broadcast_arrays(self, mask)[1]
    ],
    samples=_masks,
    tolerance=exact,
)
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` holds, both broadcast, as a vector in row-major order."""
    common = _masked_shape(self, mask)
    if common == ():
        self, mask, common = shape.reshape(self, (1,)), shape.reshape(mask, (1,)), (1,)
    return getitem(shape.expand(self, common), (shape.expand(mask, common),))


def _masked_scatter_shape(self: Any, mask: Any, source: Any) -> tuple[int, ...]:
    own, given = DType.of(self.dtype), DType.of(source.dtype)
    if own is not given:
        raise DTypeError(
            f"source has dtype {given}, self has {own}", fix=f"use source.to({own}), or self's"
        )
    return _masked_shape(self, mask)


def _masked_scatter_reference(self: Any, mask: Any, source: Any) -> Any:
    x, mask = np.broadcast_arrays(self, mask)
    out = x.copy()
    out[mask] = source.reshape(-1)[: int(mask.sum())]
    return out


@composite(
    out=_masked_scatter_shape,
    dtype=same,
    reference=_masked_scatter_reference,
    samples=lambda make: (
        Sample(make((5,)), make.mask((5,)), make((5,))),
        Sample(make((3, 5)), make.mask((5,)), make((4, 5))),
    ),
    errors=lambda make: [
        (Sample(make((5,)), make.mask((5,)), np.zeros(5, np.complex64)), DTypeError),
    ],
    tolerance=exact,
    inplace=True,
)
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``self`` with the elements where ``mask`` holds replaced by those of ``source``, in order.

    Raises :class:`ShapeError` when ``source`` has too few, :class:`DTypeError` when it has another
    dtype.
    """
    common = _masked_scatter_shape(self, mask, source)
    mask = shape.expand(mask, common)
    whole = shape.expand(self, common)
    chosen = shape.reshape(mask, (-1,))
    number = lazy.cumsum(chosen, 0)
    place = lazy.where(chosen, number - 1, 0)
    if not source.numel():  # there is no element to read where nothing is to be replaced
        return lazy.checked(whole, number, None, 0, "mask")
    place = lazy.checked(place, number, None, source.numel(), "mask")
    values = shape.reshape(lazy.take(source, place), common)
    return lazy.where(mask, values, whole)


# ---- where things are ---------------------------------------------------------------------------


def _nonzero_shape(self: Any) -> tuple[int, ...]:
    return count_true(self), len(self.shape)


@primitive(
    out=_nonzero_shape,
    dtype=indices,
    reference=np.argwhere,
    samples=unary,
    tolerance=exact,
    differentiable=False,
)
def nonzero(self: Tensor) -> Tensor:
    """Coordinates of the elements that are not zero, (n, ndim) int64, in row-major order.

    With ``as_tuple=True`` a tuple of one vector per dimension, fit to index with.
    """


@nonzero.overload
def _(self: Tensor, *, as_tuple: bool) -> tuple[Tensor, ...]:
    if not as_tuple:
        return nonzero(self)
    found = nonzero(self if self.ndim else shape.reshape(self, (1,)))
    return tuple(lazy.unbind(found, 1))


@composite(reference=np.argwhere, samples=unary, tolerance=exact, differentiable=False)
def argwhere(self: Tensor) -> Tensor:
    """Another name of :func:`nonzero`."""
    return nonzero(self)


def _listed(self: Any, size: int, fill_value: int = -1) -> Any:
    found = np.argwhere(self)[:size]
    return np.pad(found, ((0, size - len(found)), (0, 0)), constant_values=fill_value)


@composite(
    out=lambda self, size, fill_value=-1: (as_size(size, "size"), len(self.shape)),
    dtype=indices,
    reference=_listed,
    samples=lambda make: (
        Sample(x, size=n, **filled)
        for x in (make((3, 4)), make((5,)), make((0,)), make(()))
        for n, filled in ((2, {}), (0, {}), (7, {"fill_value": 9}))
    ),
    tolerance=exact,
    differentiable=False,
)
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first ``size`` rows of :func:`nonzero`, filled up with ``fill_value``: (size, ndim)."""
    size, device, options = as_size(size, "size"), self.device, {"dtype": int64}
    if not self.ndim:
        return lazy.zeros((size, 0), device=device, **options)
    there = shape.reshape(lazy.ne(self, 0), (-1,))
    order = lazy.cumsum(there, 0) - 1
    # one place more than asked for: where all go that are not listed
    slot = lazy.where(there & lazy.lt(order, size), order, size)
    places = lazy.full((size + 1,), -1, device=device, **options)
    numbers = lazy.arange(there.shape[0], device=device)
    places = lazy.narrow(lazy.scatter(places, 0, slot, numbers), 0, 0, size)
    step: Any = 1
    found: list[Any] = []
    for length in reversed(self.shape):
        place = lazy.remainder(lazy.floor_divide(places, step), max(length, 1))
        found.insert(0, lazy.where(lazy.lt(places, 0), fill_value, place))
        step *= length or 1
    return lazy.stack(found, 1)


def _one_hot_reference(tensor: Any, num_classes: int = -1) -> Any:
    return np.eye(num_classes, dtype=np.int64)[tensor]


@composite(
    reference=_one_hot_reference,
    samples=lambda make: (
        Sample(make.index((), 3), 3),
        Sample(make.index((5,), 4), 4),
        Sample(make.index((2, 3), 4), 7),
    ),
    dtypes="int",
    tolerance=exact,
    differentiable=False,
    namespace="nn.functional",
    method=False,
)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 zeros with a 1 at each class number, in a new last dimension of ``num_classes``.

    -1 takes the greatest number plus one. Raises :class:`DimError` for a number out of range.
    """
    if not dtype_of(tensor).is_integral:
        raise DTypeError(
            f"class numbers must be integers, and have dtype {dtype_of(tensor).name}",
            fix="convert them with .long()",
        )
    if num_classes != -1:
        as_size(num_classes, "num_classes")
    if num_classes > 0:
        tensor = lazy.checked(tensor, tensor, 0, num_classes - 1, "class number")
    elif tensor.numel():  # the number of classes is a size, which is read
        low, high = int(least(tensor)), int(greatest(tensor))
        if low < 0 or num_classes == 0:
            wrong = low if low < 0 else high
            raise DimError(
                f"class {wrong} is out of range for {num_classes} classes",
                fix="use classes from 0 to num_classes - 1",
            )
        num_classes = high + 1
    elif num_classes < 1:
        raise ArgumentError("num_classes of an empty tensor must be given", fix="give num_classes")
    classes = lazy.arange(num_classes, device=tensor.device)
    return lazy.eq(shape.unsqueeze(tensor, -1), classes).to_dtype(classes.dtype)
