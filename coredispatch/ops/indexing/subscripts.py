"""Indexing: ``x[...]`` for reading and writing, and the ops that take index tensors.

``getitem`` and ``index_put`` are the primitives. With integers, slices, None and Ellipsis alone
``getitem`` is a view; an index tensor, a list or a mask anywhere makes it a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.indexing.rules import indexed
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Index, IntList, Scalar, Tensor
from coredispatch.ops.support.rules import broadcast_shapes, dot, exact, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import DType, bool_, uint8
from coredispatch.registry.model.errors import (
    ArgumentError,
    DataDependentError,
    DimError,
    ShapeError,
)

__all__ = ["getitem", "getitem_backward", "index_put"]

# ---- x[index] -----------------------------------------------------------------------------------


def _indexed_shape(self: Any, index: Any) -> tuple[int, ...]:
    return indexed(tuple(self.shape), index)


def _indices(make: Any) -> Iterator[Sample]:
    x = make((4, 5, 6))
    for index in (
        (2,),
        (-1,),
        (slice(1, 3),),
        (slice(None, None, 2), 3),
        (Ellipsis, 2),
        (None, 1, slice(2, None)),
        (slice(5, 2),),
        (1, 2, 3),
        (make.index((3,), 4),),
        (slice(None), make.index((2, 2), 5)),
        (make.index((3,), 4), make.index((3,), 5)),
        (make.index((3,), 4), slice(None), make.index((3,), 6)),
        (slice(1, 3), make.index((3, 1), 5), make.index((1, 4), 6)),
        (slice(-3, None, 2), slice(None, -1, 3)),
        (make.mask((4,)),),
        (make.mask((4, 5)),),
        (make.mask((4, 5, 6)),),
        (slice(None), make.mask((5, 6))),
        (None, make.index((3,), 4)),
        (np.array([-1, 3, 0, -4]),),  # places that are named twice, from either end
        (np.array([1, -3, 1]), np.array([2, -3, -3])),
        ([0, 2, 1],),
        (True,),
        (False,),
    ):
        yield Sample(x, index)
    yield Sample(make((5,)), (3,))
    yield Sample(make((5,)), (make.index((0,), 5),))
    yield Sample(make((5,)), (make.index((7,), 5),))
    yield Sample(make(()), (Ellipsis,))
    yield Sample(make((0, 3)), (slice(None), 1))


def _bad_indices(make: Any) -> Iterator[tuple[Sample, type[Exception]]]:
    yield Sample(make((3, 4)), (3,)), DimError
    yield Sample(make((3, 4)), (0, -5)), DimError
    yield Sample(make((3, 4)), (0, 0, 0)), DimError
    yield Sample(make((3, 4)), (slice(None, None, -1),)), ArgumentError
    yield Sample(make((3, 4)), (np.array([0, 3]),)), DimError
    yield Sample(make((3, 4)), (np.array([True, False]),)), DimError
    yield Sample(make((3, 4)), (np.array([0.5]),)), DimError


@primitive(
    out=_indexed_shape,
    dtype=same,
    reference=lambda self, index: self[index],
    samples=_indices,
    errors=_bad_indices,
    tolerance=exact,
    view="maybe",
    namespace=(),
    method=False,
)
def getitem(self: Tensor, index: Index) -> Tensor:
    """``self[index]``: what Python's brackets mean, ``index`` always a tuple.

    Integers, slices (of positive step), None and Ellipsis give a view. Index tensors (int64,
    int32) and masks (bool, uint8) give a copy: the tensors broadcast, and their dimensions stand
    where the indexed ones stood, or in front where something lies between them. A 0-dim integer
    tensor counts as an integer.

    Raises :class:`DimError` for what is out of range or no index, :class:`ArgumentError` for a
    negative step.
    """


@getitem.vjp
def _(grad, self_shape, index):
    return getitem_backward(grad, index, self_shape)


def _unindexes(make: Any) -> Iterator[Sample]:
    for sample in _indices(make):
        x, index = sample.args
        yield Sample(make(x[index].shape), index, x.shape)


def _unindex_reference(grad: Any, index: Any, shape: Any) -> Any:
    out = np.zeros(shape, grad.dtype)
    # np.add.at reads beyond values that do not fit.
    np.add.at(out, index, np.broadcast_to(grad, out[index].shape))
    return out


def _has_own_shape(item: Any) -> bool:
    """Whether what an index item selects has a shape that no values of a tensor decide."""
    if hasattr(item, "dtype"):
        return DType.of(item.dtype).kind == "i" and len(item.shape) > 0
    return not isinstance(item, (list, tuple))


def _unindex_shape(grad: Any, index: Any, shape: Any) -> tuple[int, ...]:
    if all(map(_has_own_shape, index)):
        slot = indexed(tuple(shape), index)
        if broadcast_shapes([tuple(grad.shape), slot]) != slot:
            raise ShapeError(
                f"a gradient of shape {tuple(grad.shape)} does not expand to the indexed {slot}",
                fix=f"give a gradient of shape {slot}",
            )
    return tuple(shape)


@composite(
    out=_unindex_shape,
    dtype=same,
    reference=_unindex_reference,
    samples=_unindexes,
    dtypes="float+complex",
    tolerance=dot,
    namespace=(),
)
def getitem_backward(grad: Tensor, index: Index, shape: IntList) -> Tensor:
    """Zeros of ``shape`` with ``grad`` added at ``index``: the derivative of :func:`getitem`."""
    zeros = lazy.zeros(shape, dtype=grad.dtype, device=grad.device)
    return index_put(zeros, index, grad, True)


@getitem_backward.vjp
def _(grad, index):
    return getitem(grad, index)


def _put_shape(self: Any, indices: Any, values: Any, *_: Any) -> tuple[int, ...]:
    own, shape = tuple(getattr(values, "shape", ())), tuple(self.shape)
    if _one_mask(indices) and _expands(own, indexed(shape, indices, lambda mask: 1)):
        return shape  # to however many places: a device need not be waited for
    try:
        slot = indexed(shape, indices)
    except DataDependentError:  # a mask without values: the call that has them compares
        return shape
    if not _expands(own, slot):
        raise ShapeError(
            f"values of shape {own} do not expand to the indexed shape {slot}",
            fix=f"give values of shape {slot}, or one that expands to it",
        )
    return shape


def _one_mask(indices: Any) -> bool:
    """Whether a mask is the only item that is not basic."""
    items = [i for i in indices if not (i is None or i is Ellipsis or type(i) in (int, slice))]
    return len(items) == 1 and _is_mask(items[0])


def _expands(own: tuple[int, ...], slot: tuple[int, ...]) -> bool:
    """Whether values of shape ``own``, without leading ones, expand to ``slot``."""
    while len(own) > len(slot) and own[0] == 1:
        own = own[1:]
    try:
        return broadcast_shapes([own, slot]) == slot
    except ShapeError:
        return False


def _puts(make: Any) -> Iterator[Sample]:
    x = make((4, 5))
    yield Sample(x, (1,), make((5,)))
    yield Sample(x, (1,), 2)
    yield Sample(x, (slice(1, 3), slice(None, None, 2)), make((2, 3)))
    yield Sample(x, (Ellipsis, 0), make((4,)))
    yield Sample(x, (make.mask((4, 5)),), make(()))
    yield Sample(x, (make.mask((4,)),), 1)
    yield Sample(x, (make.distinct((4,), 4),), make((4, 5)))
    yield Sample(x, (make.distinct((2,), 4), make.index((2,), 5)), make((1,)))
    yield Sample(x, (slice(None), make.distinct((2,), 5)), make((4, 2)))
    yield Sample(x, (make.index((3,), 4),), make((3, 5)), True)
    yield Sample(x, (make.index((3,), 4), make.index((3,), 5)), make((3,)), True)
    yield Sample(x, (np.array([-1, 3, 0, -4]),), make((4, 5)), True)  # one place, named twice
    # Sizes that differ: one that occurs twice would grow twice.
    yield Sample(make((2, 3, 7)), (slice(None), make.index((6,), 3)), make((2, 6, 7)), True)
    yield Sample(x, (np.array([1, 1, 0]), np.array([2, 2, 2])), make(()), True)
    apart = (make.index((6,), 2), slice(None), make.index((6,), 7))  # which come in front
    yield Sample(make((2, 3, 7)), apart, make((6, 3)), True)
    yield Sample(make((2, 3, 7)), (make.distinct((2,), 2), slice(1, None), 5), make((2, 2)))


def _put_reference(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    out = self.copy()
    if accumulate:
        np.add.at(out, indices, values)
    else:
        out[indices] = values
    return out


@primitive(
    out=_put_shape,
    dtype=same,
    reference=_put_reference,
    samples=_puts,
    tolerance=dot,
    inplace=True,
    stores=("values",),
    cast="widest_accelerated",
)
def index_put(
    self: Tensor, indices: Index, values: Tensor | Scalar, accumulate: bool = False
) -> Tensor:
    """``self`` with ``values`` (broadcast, converted) written at ``indices``.

    ``indices`` is a tuple of whatever may stand in ``x[...]``. With ``accumulate`` values are
    added, also several to one place; without, which of several stays is undefined. The in-place
    form is ``x[indices] = values``.
    """


index_put.vjp(
    self=lambda grad, indices, accumulate: grad if accumulate else index_put(grad, indices, 0),
    values=lambda grad, indices, values_shape: _of_values(grad, indices, values_shape),
)


def _of_values(grad: Any, indices: Any, wanted: tuple[int, ...]) -> Any:
    """The gradient of values of shape ``wanted``, which may tell how much a mask selects."""
    masks = [item for item in indices if _is_mask(item)]
    if masks and prod(wanted) == 1:
        return _summed_at(grad, indices, wanted)
    if not masks or len(indices) > 1:
        return _summed_to(getitem(grad, indices), wanted)
    mask: Any = masks[0]
    rest = grad.shape[mask.ndim :]
    if len(wanted) > 1 + len(rest):  # what leads is 1
        return shape.reshape(_of_values(grad, indices, wanted[-1 - len(rest) :]), wanted)
    if len(wanted) == 1 + len(rest) and wanted[0] != 1:
        return _summed_to(masked_rows(grad, mask, wanted[0]), wanted)
    there = shape.reshape(mask.bool(), (*mask.shape, *[1] * len(rest)))
    total = lazy.sum(lazy.where(there, grad, 0), tuple(range(mask.ndim)), True)
    return _summed_to(shape.reshape(total, (1, *rest)), wanted)


def _rows_reference(self: Any, mask: Any, count: int) -> Any:
    return self[mask]


@composite(
    out=lambda self, mask, count: (count, *self.shape[len(mask.shape) :]),
    dtype=same,
    reference=_rows_reference,
    samples=lambda make: (
        Sample(make(size), mask, int(mask.sum()))
        for size, mask in (((4, 5), make.mask((4,))), ((4, 5), make.mask((4, 5))))
    ),
    dtypes="float+complex",
    tolerance=exact,
    namespace=(),
    method=False,
)
def masked_rows(self: Tensor, mask: Tensor, count: int) -> Tensor:
    """``self[mask]`` where ``count`` is known: a shape that no elements of ``mask`` decide.

    ``mask`` lies over the first dimensions. Raises :class:`ShapeError` where it selects another
    number of places.
    """
    found = getitem(self, (mask,))
    if found.shape[0] != count:
        raise ShapeError(
            f"the mask selects {found.shape[0]} places, not {count}", fix="give one value for each"
        )
    return found


masked_rows.vjp(
    self=lambda grad, self_shape, mask: getitem_backward(grad, (mask,), self_shape),
)


def _is_mask(item: Any) -> bool:
    return hasattr(item, "dtype") and DType.of(item.dtype) in (bool_, uint8)


def _summed_at(grad: Any, indices: Any, wanted: tuple[int, ...]) -> Any:
    """The sum of ``grad`` at places that are named once; how many they are need not be known."""
    nowhere = lazy.zeros_like(grad, dtype=bool_)
    there = index_put(nowhere, indices, True)
    return shape.reshape(lazy.sum(lazy.where(there, grad, 0)), wanted)


def _summed_to(grad: Any, wanted: tuple[int, ...]) -> Any:
    """``grad`` summed over the dimensions along which a tensor of shape ``wanted`` expanded."""
    inner = wanted
    while len(inner) > grad.ndim:
        inner = inner[1:]  # assignment takes more dimensions of length 1 in front
    lead = grad.ndim - len(inner)
    dims = [i for i in range(grad.ndim) if i < lead or inner[i - lead] == 1 != grad.shape[i]]
    total = lazy.sum(grad, tuple(dims), True) if dims else grad
    return shape.reshape(total, wanted)
