"""``gather``, and the ``scatter`` family: one index for every element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.indexing.rules import gathered, require_index, scattered, within_bounds
from coredispatch.ops.reduction.sums import product_of_others
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.rules import (
    broadcast_shapes,
    dot,
    exact,
    normalize_dim,
    require_one_of,
    same,
)
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import ALL_DTYPES, DType, bool_, uint16, uint32, uint64
from coredispatch.registry.model.errors import DimError, DTypeError, ShapeError

__all__ = [
    "gather",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "take_along_dim",
]


def _open_index(index: Any, dim: int) -> tuple[Any, ...]:
    """The NumPy index of all places that ``index`` names along ``dim``."""
    places = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


def _gathers(make: Any) -> Iterator[Sample]:
    yield Sample(make((5,)), 0, make.index((7,), 5))
    yield Sample(make((4, 4)), 1, make.index((4, 2), 4))
    yield Sample(make((3, 5)), 0, make.index((2, 4), 3))
    yield Sample(make((2, 3, 5)), -1, make.index((2, 3, 257), 5))
    yield Sample(make((3, 5)), 0, make.index((0, 5), 3))
    yield Sample(make((1,)), 0, make.index((1,), 1))
    yield Sample(make((2, 3, 4)), 2, make.index((2, 2, 3), 4))


def _bad_gathers(make: Any) -> Iterator[tuple[Sample, type[Exception]]]:
    yield Sample(make((3, 4)), 0, np.array([[3]])), DimError
    yield Sample(make((3, 4)), 0, np.array([[-1]])), DimError
    yield Sample(make((3, 4)), 0, np.array([0])), ShapeError
    yield Sample(make((3, 4)), 0, np.zeros((1, 5), np.int64)), ShapeError


@primitive(
    out=gathered,
    dtype=same,
    reference=lambda self, dim, index: self[_open_index(index, dim)],
    samples=_gathers,
    errors=_bad_gathers,
    tolerance=exact,
)
def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """``out[i][j] = self[index[i][j]][j]`` for dim 0 of two, and so on; shaped like ``index``.

    ``index`` (int64 or int32, not negative) has as many dimensions as ``self`` and is nowhere
    longer, except along ``dim``. Raises :class:`ShapeError`, :class:`DimError`.
    """


@gather.overload
def _(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool) -> Tensor:
    return gather(self, dim, index)


gather.vjp(
    self=lambda grad, self_shape, dim, index: lazy.scatter_add(
        lazy.zeros(self_shape, dtype=grad.dtype, device=grad.device), dim, index, grad
    ),
)


def _scatter_reference(self: Any, dim: int, index: Any, src: Any) -> Any:
    out = self.copy()
    if np.ndim(src):
        src = src[tuple(slice(n) for n in index.shape)]
    out[_open_index(index, dim)] = src
    return out


def _scatters(make: Any) -> Iterator[Sample]:
    """Without repeated places: which of several values stays is not defined."""
    yield Sample(make((5,)), 0, make.distinct((5,), 5), make((5,)))
    yield Sample(make((5,)), 0, make.index((2,), 5), 2)
    yield Sample(make((4, 4)), 1, make.distinct((2, 2), 4, 1), make((3, 3)))
    yield Sample(make((3, 5)), 0, make.distinct((1, 5), 3, 0), make((1, 5)))
    yield Sample(make((2, 3, 5)), -2, make.distinct((1, 2, 1), 3, -2), make((2, 3, 5)))


def _scatter_adds(make: Any) -> Iterator[Sample]:
    for sample in _scatters(make):
        if np.ndim(sample.args[3]):
            yield sample
    yield Sample(make((3, 5)), 0, make.index((4, 5), 3), make((4, 5)))
    yield Sample(make((5,)), 0, make.index((257,), 5), make((257,)))


@primitive(
    out=scattered,
    dtype=same,
    reference=_scatter_reference,
    samples=_scatters,
    errors=lambda make: [(Sample(make((3,)), 0, np.array([3]), make((1,))), DimError)],
    tolerance=exact,
    inplace=True,
    stores=("src",),
)
def scatter(self: Tensor, dim: int, index: Tensor, src: Tensor | Scalar) -> Tensor:
    """``self`` with ``src`` (a tensor or a number) written where :func:`gather` would read.

    ``index`` may be shorter than ``src``, whose rest is not used. Where several values go to one
    place it is undefined which one stays, and the gradient is that of all of them. The keyword
    ``reduce`` (``"add"`` or ``"multiply"``) combines with what is there.
    """


scatter.vjp(
    self=lambda grad, dim, index: scatter(grad, dim, index, 0),
    src=lambda grad, dim, index, src_shape: _read_back(grad, dim, index, src_shape),
)


def _read_back(grad: Any, dim: int, index: Any, src_shape: tuple[int, ...]) -> Any:
    """The gradient of ``src``: zero where ``index`` did not reach."""
    part = gather(grad, dim, index)
    if tuple(part.shape) == tuple(src_shape):
        return part
    if not src_shape:
        return lazy.sum(part)
    pad = [n for a, b in zip(reversed(src_shape), reversed(part.shape)) for n in (0, a - b)]
    return lazy.constant_pad_nd(part, tuple(pad))


@scatter.overload
def _(self: Tensor, dim: int, index: Tensor, *, value: Scalar) -> Tensor:
    return scatter(self, dim, index, value)


@scatter.overload
def _(self: Tensor, dim: int, index: Tensor, src: Tensor | Scalar, *, reduce: str | None) -> Tensor:
    if reduce is None:
        return scatter(self, dim, index, src)
    return _combined(self, dim, index, src, reduce)


@scatter.overload
def _(self: Tensor, dim: int, index: Tensor, *, value: Scalar, reduce: str) -> Tensor:
    return _combined(self, dim, index, value, reduce)


def _combined(self: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    require_one_of("reduce", reduce, ("add", "multiply"))
    if not hasattr(src, "shape"):
        src = lazy.full(tuple(index.shape), src, dtype=self.dtype, device=self.device)
    if reduce == "add":
        return scatter_add(self, dim, index, src)
    return scatter_reduce(self, dim, index, src, "prod")


def _scatter_add_reference(self: Any, dim: int, index: Any, src: Any) -> Any:
    out = self.copy()
    np.add.at(out, _open_index(index, dim), src[tuple(slice(n) for n in index.shape)])
    return out


@primitive(
    out=scattered,
    dtype=same,
    reference=_scatter_add_reference,
    samples=_scatter_adds,
    tolerance=dot,
    inplace=True,
    stores=("src",),
    cast="widest_accelerated",
)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``self`` with ``src`` added where :func:`gather` would read; repeated places add up."""


scatter_add.vjp(
    self=lambda grad: grad,
    src=lambda grad, dim, index, src_shape: _read_back(grad, dim, index, src_shape),
)


#: what PyTorch reduces: neither booleans, wide unsigned integers nor complex numbers
REDUCIBLE = tuple(
    d for d in ALL_DTYPES if d not in (bool_, uint16, uint32, uint64) and not d.is_complex
)
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _scatter_reduce_reference(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    out = self.copy()
    groups: dict[tuple[int, ...], list[Any]] = {}
    for place in np.ndindex(index.shape):
        target = list(place)
        target[dim] = int(index[place])
        groups.setdefault(tuple(target), []).append(src[place])
    for cell, sources in groups.items():
        values = np.array(([self[cell]] if include_self else []) + sources, out.dtype)
        if reduce in ("amax", "amin"):
            out[cell] = values.max() if reduce == "amax" else values.min()
        elif reduce == "mean":
            total = np.sum(values, dtype=out.dtype)
            out[cell] = total // len(values) if out.dtype.kind in "iu" else total / len(values)
        else:
            out[cell] = getattr(np, reduce)(values, dtype=out.dtype)
    return out


def _scatter_reductions(make: Any) -> Iterator[Sample]:
    for reduce in _REDUCTIONS:
        for include_self in (True, False):
            yield Sample(
                make((3, 5)),
                0,
                make.index((4, 5), 3),
                make((4, 5)),
                reduce,
                include_self=include_self,
            )
    yield Sample(make((5,)), 0, make.index((7,), 5), make((7,)), "sum")
    x, source, index = make((2, 3, 5)), make((2, 3, 7)), make.index((2, 3, 7), 5)
    yield Sample(x, 2, index, source, "amax", include_self=False)


def _reduced_shape(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *_: Any
) -> tuple[int, ...]:
    require_one_of("reduce", reduce, _REDUCTIONS)
    dtype = DType.of(self.dtype)
    if reduce in ("amax", "amin") and dtype.is_complex:
        raise DTypeError(
            f"reduce={reduce!r} is not defined for {dtype}: complex numbers have no order",
            fix="reduce x.abs(), or use sum, prod or mean",
        )
    return scattered(self, dim, index, src)


@composite(
    out=_reduced_shape,
    dtype=same,
    reference=_scatter_reduce_reference,
    samples=_scatter_reductions,
    dtypes=REDUCIBLE,
    tolerance=dot,
    smooth=False,
    inplace=True,
    stores=("src",),
)
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``self`` where all of ``src`` that go to one place are reduced: sum, prod, mean, amax, amin.

    ``include_self`` counts the value that was there; without it places that nothing goes to keep
    theirs. The mean of integers is rounded down. Raises :class:`ArgumentError` for another
    ``reduce``.
    """
    _reduced_shape(self, dim, index, src, reduce)
    if 0 in index.shape:
        return self.clone()
    d = normalize_dim(dim, self.ndim)
    if self.ndim == 0:
        wide = [shape.reshape(x, (1,)) for x in (self, index, src)]
        out = scatter_reduce(wide[0], 0, wide[1], wide[2], reduce, include_self=include_self)
        return shape.reshape(out, ())
    index = within_bounds(index, self.shape[d])
    # Places outside the index keep their value.
    block = _block(index, d)
    own = self[block]
    values, hits = _pairs(self, d, index, src, include_self)
    reduced = _reduced(values, hits, reduce)
    kept = lazy.movedim(lazy.any(hits, -1), -1, d)
    return lazy.index_put(self, block, lazy.where(kept, lazy.movedim(reduced, -1, d), own))


def _block(index: Any, d: int) -> tuple[slice, ...]:
    """Where ``index`` lies in a tensor that it is scattered to along dimension ``d``."""
    return tuple(slice(None) if i == d else slice(n) for i, n in enumerate(index.shape))


def _pairs(self: Any, d: int, index: Any, src: Any, include_self: bool) -> tuple[Any, Any]:
    """All pairs of a place and a source along ``d``, sources last: the values, and which meet."""
    own = self[_block(index, d)]
    src = src[tuple(slice(n) for n in index.shape)]
    index, src = lazy.movedim(index, d, -1), lazy.movedim(src, d, -1)
    places = shape.unsqueeze(lazy.arange(self.shape[d], device=self.device), 1)
    hits = lazy.eq(shape.unsqueeze(index, -2), places)
    values = shape.unsqueeze(src, -2)
    if include_self:
        mine = shape.unsqueeze(lazy.movedim(own, d, -1), -1)
        sizes = (*hits.shape[:-1], src.shape[-1])
        values = lazy.cat([mine, shape.expand(values, sizes)], -1)
        hits = lazy.cat([lazy.ones_like(mine, dtype=hits.dtype), hits], -1)
    return values, hits


def _reduced_self_grad(
    grad: Any, self: Any, dim: int, index: Any, src: Any, out: Any, reduce: str, include_self: bool
) -> Any:
    if 0 in index.shape:
        return grad
    if not self.ndim:
        tensors = [shape.reshape(x, (1,)) for x in (grad, self, index, src, out)]
        grad, self, index, src, out = tensors
        one = _reduced_self_grad(grad, self, 0, index, src, out, reduce, include_self)
        return shape.reshape(one, ())
    if not include_self:  # only of places that nothing went to
        return scatter(grad, dim, index, 0)
    if reduce == "sum":
        return grad
    if reduce == "prod":
        d = normalize_dim(dim, self.ndim)
        own = lazy.select(_product_grads(grad, self, d, index, src, True), -1, 0)
        return lazy.index_put(grad, _block(index, d), lazy.movedim(own, -1, d))
    share, mine = _shares(grad, self, dim, index, src, out, reduce, True)
    return share if mine is None else share * mine


def _reduced_src_grad(
    grad: Any, self: Any, dim: int, index: Any, src: Any, out: Any, reduce: str, include_self: bool
) -> Any:
    if 0 in index.shape:
        return lazy.zeros_like(src)
    if not self.ndim:
        tensors = [shape.reshape(x, (1,)) for x in (grad, self, index, src, out)]
        grad, self, index, wide, out = tensors
        one = _reduced_src_grad(grad, self, 0, index, wide, out, reduce, include_self)
        return shape.reshape(one, src.shape)
    sizes = tuple(src.shape)
    if reduce == "sum":
        return _read_back(grad, dim, index, sizes)
    if reduce == "prod":
        d = normalize_dim(dim, self.ndim)
        pairs = _product_grads(grad, self, d, index, src, include_self)
        each = lazy.sum(pairs, -2)
        each = lazy.movedim(lazy.narrow(each, -1, int(include_self), index.shape[d]), -1, d)
        return lazy.index_put(lazy.zeros_like(src), tuple(slice(n) for n in index.shape), each)
    share, mine = _shares(grad, self, dim, index, src, out, reduce, include_self)
    back = _read_back(share, dim, index, sizes)
    return back if mine is None else back * _alike(src, _read_back(out, dim, index, sizes))


def _alike(x: Any, out: Any) -> Any:
    """1 where ``x`` is the extremum ``out``, else 0."""
    return lazy.eq(x, out).to_dtype(x.dtype)


def _shares(
    grad: Any, self: Any, dim: int, index: Any, src: Any, out: Any, reduce: str, include_self: bool
) -> tuple[Any, Any]:
    """What each value gets that a mean or an extremum is made of; of an extremum also which of
    ``self`` it is.
    """
    mine, theirs = None, lazy.ones_like(index, dtype=self.dtype)
    if reduce == "mean":
        own = lazy.ones_like(self)
    else:
        part = src[tuple(slice(n) for n in index.shape)]
        theirs = _alike(part, lazy.gather(out, dim, index))
        own = mine = _alike(self, out)
    if not include_self:
        own = scatter(own, dim, index, 0)
    # An extremum that is NaN equals none of its values: the count is 0, and their gradients NaN.
    return grad / scatter_add(own, dim, index, theirs), mine


def _product_grads(grad: Any, self: Any, d: int, index: Any, src: Any, include_self: bool) -> Any:
    """The gradient of each factor at each place of a product; exact with zeros."""
    values, hits = _pairs(self, d, index, src, include_self)
    others = product_of_others(lazy.masked_fill(values, lazy.logical_not(hits), 1))
    grad = shape.unsqueeze(lazy.movedim(grad[_block(index, d)], d, -1), -1)
    return lazy.masked_fill(others * grad, lazy.logical_not(hits), 0)


scatter_reduce.vjp(self=_reduced_self_grad, src=_reduced_src_grad)


def _neutral(reduce: str, dtype: Any) -> Any:
    """What changes no reduction of numbers of ``dtype``."""
    if reduce not in ("amax", "amin"):
        return 1 if reduce == "prod" else 0
    if dtype.kind == "f":
        return float("-inf") if reduce == "amax" else float("inf")
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    lowest = -(1 << bits) if dtype.kind == "i" else 0
    return lowest if reduce == "amax" else (1 << bits) - 1


def _reduced(values: Any, hits: Any, reduce: str) -> Any:
    """``values`` reduced along the last dimension, over the elements where ``hits`` holds."""
    values = lazy.where(
        hits,
        values,
        lazy.full((), _neutral(reduce, values.dtype), dtype=values.dtype, device=values.device),
    )
    if reduce in ("amax", "amin"):
        return (lazy.amax if reduce == "amax" else lazy.amin)(values, -1)
    if reduce == "prod":
        return lazy.prod(values, -1).to_dtype(values.dtype)
    total = lazy.sum(values, -1).to_dtype(values.dtype)
    if reduce == "sum":
        return total
    count = lazy.clamp(lazy.sum(hits, -1), 1)
    if not values.dtype.is_floating_point:
        return lazy.floor_divide(total, count).to_dtype(values.dtype)
    return total / count.to_dtype(values.dtype)


def _counted_from_the_front(indices: Any, size: int) -> Any:
    """``indices`` with ``size`` added to the negative ones."""
    return lazy.where(lazy.lt(indices, 0), indices + size, indices)


@composite(
    reference=lambda self, indices, dim=None: np.take_along_axis(self, indices, dim),
    samples=lambda make: (
        Sample(make((3, 5)), make.index((3, 2), 5), 1),
        Sample(make((3, 5)), make.index((1, 5), 3), 0),
        Sample(make((3, 5)), make.index((7,), 15)),
    ),
    tolerance=exact,
)
def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Like :func:`gather`, with ``self`` and ``indices`` broadcast outside ``dim``.

    Without ``dim`` both are flattened. Fit for the results of ``argsort`` and ``argmax``.
    """
    require_index(indices)
    if dim is None:
        places = _counted_from_the_front(shape.reshape(indices, (-1,)), self.numel())
        return gather(shape.reshape(self, (-1,)), 0, places)
    if self.ndim != indices.ndim:
        raise ShapeError(
            f"self has {self.ndim} dimensions, indices has {indices.ndim}",
            fix="give both the same number of dimensions",
        )
    d = normalize_dim(dim, self.ndim)
    indices = _counted_from_the_front(indices, self.shape[d] if self.ndim else 1)
    common = broadcast_shapes(
        [(*s[:d], 1, *s[d + 1 :]) for s in (tuple(self.shape), tuple(indices.shape))]
    )
    wide = [(*common[:d], x.shape[d], *common[d + 1 :]) for x in (self, indices)]
    return gather(shape.expand(self, wide[0]), d, shape.expand(indices, wide[1]))
