"""Extrema over dimensions, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, magnitude
from coredispatch.ops.elementwise.arithmetic import mul
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.sorting import picked
from coredispatch.ops.reduction.sums import kept_shape, reduction_reference, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import (
    exact,
    indices,
    normalize_dims,
    reduced,
    same,
    values_and_indices,
)
from coredispatch.ops.support.samples import (
    Sample,
    dim_reductions,
    nonempty_reductions,
    unary,
)
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.errors import DimError


def nonempty(self: Any, dim: Any = None, keepdim: bool = False, *_: Any) -> tuple[int, ...]:
    """Shape rule of reductions without a neutral element."""
    shape = reduced(self, dim, keepdim)
    _require_elements(self.shape, dim)
    return shape


def _require_elements(shape: Any, dim: Any) -> None:
    for d in normalize_dims(dim, len(shape)):
        if shape[d] == 0:
            raise DimError(
                f"dimension {d} of shape {tuple(shape)} is empty, and this reduction has no "
                "neutral element",
                fix="reduce a dimension that has elements",
            )


def _extremum_grad(grad: Any, out: Any, x: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient shared evenly among the elements that attain the extremum.

    Among none where there is a NaN: its extremum is NaN, which equals nothing, and the gradients
    are NaN.
    """
    if x.ndim and not keepdim:
        kept = kept_shape(x.shape, dim)
        out, grad = lazy.reshape(out, kept), lazy.reshape(grad, kept)
    mask = comparison.eq(x, out)
    share = div(grad, sum(mask, dim, True))
    return comparison.where(mask, share, mul(share, 0))


def attained(grad: Any, out: Any, x: Any, nan_wins: bool = True) -> Any:
    """The gradient of one element of all, shared evenly among those that equal it: NaN does NaN."""
    mask = comparison.eq(x, out)
    if x.dtype.is_floating_point:
        missing = comparison.isnan(x)
        if not nan_wins:
            missing = comparison.logical_and(missing, comparison.isnan(out))
        mask = comparison.logical_or(mask, missing)
    return comparison.where(mask, div(grad, sum(mask)), 0)


@primitive(
    out=nonempty,
    dtype=same,
    reference=reduction_reference(np.max),
    samples=nonempty_reductions,
    takes="real",
    tolerance=exact,
    smooth=False,
)
def amax(self: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
    """Largest element over ``dim``; NaN wins. Equal largest elements share the gradient evenly.

    The gradients of what holds NaN are NaN; those of :func:`max` go to the elements that are NaN.
    Raises ``DimError`` for an empty dimension.
    """


@amax.vjp
def _(grad, out, self, dim, keepdim):
    return _extremum_grad(grad, out, self, dim, keepdim)


amax.edge("ties share", [1.0, 3.0, 3.0], gradient=[0.0, 0.5, 0.5])
amax.edge("NaN at NaN", [1.0, nan], gradient=[nan, nan])


@primitive(
    out=nonempty,
    dtype=same,
    reference=reduction_reference(np.min),
    samples=nonempty_reductions,
    takes="real",
    tolerance=exact,
    smooth=False,
)
def amin(self: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
    """Smallest element over ``dim``; NaN wins. Equal smallest elements share the gradient evenly.

    The gradients of what holds NaN are NaN; those of :func:`min` go to the elements that are NaN.
    Raises ``DimError`` for an empty dimension.
    """


@amin.vjp
def _(grad, out, self, dim, keepdim):
    return _extremum_grad(grad, out, self, dim, keepdim)


amin.edge("ties share", [1.0, 1.0, 3.0], gradient=[0.5, 0.5, 0.0])
amin.edge("NaN at NaN", [1.0, nan], gradient=[nan, nan])


def _one_dim(self: Any, dim: Any = None, keepdim: bool = False, *_: Any) -> tuple[int, ...]:
    return nonempty(self, None if dim is None else (dim,), keepdim)


def _index_samples(make: Any) -> Iterator[Sample]:
    for shape in ((), (1,), (17,), (4, 4), (2, 3, 5)):
        yield Sample(make(shape))
        yield Sample(make(shape), None, True)
    yield from dim_reductions(make)


_INDEX = {
    "out": _one_dim,
    "dtype": indices,
    "samples": _index_samples,
    "dtypes": "real",
    "differentiable": False,
    "tolerance": exact,
}


@primitive(takes="real", reference=reduction_reference(np.argmax), **_INDEX)
def argmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 index of the largest element over ``dim`` (of the flattened tensor for None).

    The first one among equals; NaN wins. Raises ``DimError`` for an empty dimension.
    """


@primitive(takes="real", reference=reduction_reference(np.argmin), **_INDEX)
def argmin(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 index of the smallest element over ``dim`` (of the flattened tensor for None).

    The first one among equals; NaN wins. Raises ``DimError`` for an empty dimension.
    """


def _pair_shapes(self: Any, dim: int, keepdim: bool = False) -> Any:
    shape = _one_dim(self, dim, keepdim)
    return [shape, shape]


_PAIR = {
    "out": _pair_shapes,
    "dtype": values_and_indices,
    "samples": dim_reductions,
    "takes": "real",
    "tolerance": exact,
    "smooth": False,
    "namespace": (),
    "method": False,
    "fields": ("values", "indices"),
}


@composite(**_PAIR)
def max_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Largest elements over ``dim`` and their indices: ``max(self, dim, keepdim)``."""
    return max_dim.result_type(picked(self, dim, argmax(self, dim, True), keepdim))


max_dim.edge("the first of equal elements", [1.0, 3.0, 3.0], 0, gradient=[0.0, 1.0, 0.0])


@composite(**_PAIR)
def min_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Smallest elements over ``dim`` and their indices: ``min(self, dim, keepdim)``."""
    return min_dim.result_type(picked(self, dim, argmin(self, dim, True), keepdim))


min_dim.edge("the first of equal elements", [3.0, 1.0, 1.0], 0, gradient=[0.0, 1.0, 0.0])


_WHOLE = {
    "out": lambda self: nonempty(self),
    "dtype": same,
    "samples": lambda make: (s for s in unary(make) if s.args[0].size),
    "dtypes": "real",
    "tolerance": exact,
    "smooth": False,
}


@composite(takes="real", reference=np.max, **_WHOLE)
def max(self: Tensor) -> Tensor:
    """The largest element, 0-dim; NaN wins.

    ``max(self, dim, keepdim=False)`` gives the named tuple (values, indices) over one dim,
    ``max(self, other)`` is :func:`maximum`.
    """
    return amax(self)


@max.vjp
def _(grad, out, self):
    return attained(grad, out, self)


max.edge("NaN shares", [1.0, nan, nan], gradient=[0.0, 0.5, 0.5])


@max.overload
def _(self: Tensor, other: Tensor) -> Tensor:
    return magnitude.maximum(self, other)


@max.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return max_dim(self, dim, keepdim)


@composite(takes="real", reference=np.min, **_WHOLE)
def min(self: Tensor) -> Tensor:
    """The smallest element, 0-dim; NaN wins.

    ``min(self, dim, keepdim=False)`` gives the named tuple (values, indices) over one dim,
    ``min(self, other)`` is :func:`minimum`.
    """
    return amin(self)


@min.vjp
def _(grad, out, self):
    return attained(grad, out, self)


min.edge("NaN shares", [1.0, nan, nan], gradient=[0.0, 0.5, 0.5])


@min.overload
def _(self: Tensor, other: Tensor) -> Tensor:
    return magnitude.minimum(self, other)


@min.overload
def _(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return min_dim(self, dim, keepdim)


@composite(
    takes="real",
    samples=lambda make: (Sample(make(s)) for s in ((1,), (17,), (3, 5))),
    tolerance=exact,
    smooth=False,
    fields=("min", "max"),
)
def aminmax(
    self: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Smallest and largest elements over ``dim`` as the named tuple (min, max)."""
    dims = () if dim is None else (dim,)
    return aminmax.result_type((amin(self, dims, keepdim), amax(self, dims, keepdim)))
