"""Histograms with edges: of numbers, and (see ``frontend/histogramdd.py``) of points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import FloatList, Tensor
from coredispatch.ops.support.rules import conditioned, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import DType, composite
from coredispatch.registry.model.dtypes import float32, float64, int64
from coredispatch.registry.model.errors import DTypeError, OpError

__all__ = ["counts_in_cells", "even_edges", "given_edges"]


@composite(
    out=lambda self, bins, *_: (bins + 1,),
    dtype=same,
    reference=lambda self, bins, low, high, *_: np.linspace(low, high, bins + 1),
    samples=lambda make: (
        Sample(make((17,)), 4, -2.5, 2.5, "histogram", 0),
        Sample(make((3, 5)), 5, -1.0, 1.5, "histogram", 0),
    ),
    takes=(float32, float64),
    dtypes=(float64,),
    differentiable=False,
    tolerance=conditioned,
    namespace=(),
    method=False,
)
def even_edges(
    self: Tensor, bins: int, low: float | None, high: float | None, op: str, place: int
) -> Tensor:
    """``bins + 1`` edges over ``[low, high]``, or over the range of the elements.

    ``op`` and ``place``, the number of a coordinate, are what errors name: a ``RuntimeError`` for
    no bins, and for ranges that are not finite or fall.
    """
    if bins <= 0:
        raise OpError(
            f"{op}: bins must be > 0, but got {bins} for dimension {place}", fix="bins=10"
        )
    if low is None or high is None:
        low, high = (0.0, 1.0)
        if self.numel():
            low, high = lazy.amin(self).item(), lazy.amax(self).item()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise OpError(
            f"{op}: dimension {place}'s range [{low}, {high}] is not finite", fix="range="
        )
    if low > high:
        raise OpError(
            f"{op}: min should not exceed max, but got min {low} max {high} for dimension {place}",
            fix="swap them",
        )
    if low == high:
        low, high = low - 0.5, high + 0.5
    return lazy.linspace(low, high, bins + 1, dtype=self.dtype, device=self.device)


def given_edges(op: str, x: Any, dim: int, edges: Any) -> Any:
    """The edges that the caller gave, checked."""
    if edges.ndim != 1 or not edges.numel():
        raise OpError(
            f"{op}: bins tensor should have one dimension, but got {edges.ndim} dimensions in the "
            f"bins tensor for dimension {dim}",
            fix="give a 1-d tensor of edges",
        )
    if edges.dtype is not x.dtype:
        raise OpError(
            f"{op}: input tensor and bins tensors should have the same dtype, but got input with "
            f"dtype {x.dtype} and bins for dimension {dim} with dtype {edges.dtype}",
            fix="convert the edges",
        )
    return edges


def counts_in_cells(op: str, points: Any, edges: list[Any], weight: Any, density: bool) -> Any:
    """How many of the points ``(N, D)`` lie in each cell of the grid of ``edges``.

    Cells include their lower edge, the last of each dim its upper one; what lies outside is not
    counted.
    """
    _check_dtypes(op, points, weight)
    sizes = tuple(e.shape[0] - 1 for e in edges)
    count = points.shape[0]
    place = lazy.zeros((count,), dtype=int64, device=points.device)
    inside = lazy.ones((count,), device=points.device).bool()
    for i, (e, size) in enumerate(zip(edges, sizes)):
        x = lazy.contiguous(points[:, i])
        cell = lazy.searchsorted(e, x, right=True) - 1
        cell = comparison.where(comparison.eq(x, e[-1]), size - 1, cell)
        inside = inside & (cell >= 0) & (cell < size) & comparison.le(x, e[-1])
        place = place * size + lazy.clamp(cell, 0, max(size - 1, 0))
    values = lazy.ones_like(points[:, 0]) if weight is None else weight
    values = comparison.where(inside, values, 0.0)
    total = lazy.zeros((math.prod(sizes),), dtype=points.dtype, device=points.device)
    if math.prod(sizes):
        total = lazy.scatter_add(total, 0, place, values)
    total = lazy.reshape(total, sizes)
    return _densities(total, edges) if density else total


def _check_dtypes(op: str, points: Any, weight: Any) -> None:
    if points.dtype not in (float32, float64):
        raise DTypeError(f"{op} is not implemented for {points.dtype}", fix="use x.float()")
    if weight is not None and weight.dtype is not points.dtype:
        raise OpError(
            f"{op}: if weight tensor is provided, input tensor and weight tensor should have the "
            f"same dtype, but got {points.dtype} and {weight.dtype}",
            fix="convert the weights",
        )


def _densities(total: Any, edges: list[Any]) -> Any:
    total = total / lazy.sum(total)
    for i, e in enumerate(edges):
        width = lazy.reshape(lazy.diff(e), (-1,) + (1,) * (len(edges) - 1 - i))
        total = total / width
    return total


def _reference(self: Any, bins: int, *, range: Any = None, weight: Any = None,
               density: bool = False) -> Any:  # fmt: skip
    span = range or ((self.min(), self.max()) if self.size else (0, 1))
    hist, edges = np.histogram(self, bins, span, density, weight)
    return hist.astype(self.dtype), edges.astype(self.dtype)


@composite(
    reference=_reference,
    samples=lambda make: (
        Sample(make((17,)), 4, range=(-2.5, 2.5)),
        Sample(make((17,)), 4, range=(-2.5, 2.5), weight=make.positive((17,))),
        Sample(make((3, 5)), 5, range=(-1.0, 1.5)),
        Sample(np.round(make((12,)) * 2), 4, range=(-4.0, 4.0), density=True),
    ),
    out=lambda self, bins, *_: [(bins,), (bins + 1,)],
    dtype=lambda self, *_: (DType.of(self.dtype),) * 2,
    takes=(float32, float64),
    dtypes=(float64,),
    differentiable=False,
    tolerance=conditioned,
    fields=("hist", "bin_edges"),
)
def histogram(
    self: Tensor,
    bins: int,
    *,
    range: FloatList | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """``(hist, bin_edges)``: how many elements lie in each of ``bins`` cells, ``(bins,)``, and
    the edges of the cells, ``(bins + 1,)``, both of the dtype of ``self``.

    ``bins`` may be a 1-d tensor of increasing edges. ``range`` (low, high) is that of the elements
    by default; ``weight`` has the shape of ``self``; ``density`` makes the integral 1. Raises
    ``RuntimeError`` for what does not fit.
    """
    low, high = (None, None) if range is None else _pair(range)
    edges = even_edges(self, bins, low, high, "torch.histogram()", 0)
    return _of_numbers(self, edges, weight, density)


def _pair(range: Any) -> tuple[float, float]:
    if len(range) != 2:
        raise OpError(f"range should have 2 elements, got {len(range)}", fix="range=(low, high)")
    return range[0], range[1]


def _of_numbers(x: Any, edges: Any, weight: Any, density: bool) -> Any:
    if weight is not None and tuple(weight.shape) != tuple(x.shape):
        raise OpError(
            f"torch.histogram(): weight has the shape {tuple(weight.shape)}, input "
            f"{tuple(x.shape)}",
            fix="give one weight for each element",
        )
    _check_dtypes("torch.histogram()", x, weight)
    x, cells = lazy.reshape(x, (-1,)), edges.shape[0] - 1
    # Cell 0 is what lies below the first edge; what lies above the last one, and NaN, goes there.
    cell = lazy.searchsorted(lazy.narrow(edges, 0, 0, cells), x, right=True)
    cell = comparison.where(comparison.le(x, lazy.narrow(edges, 0, cells, 1)), cell, 0)
    values = lazy.ones_like(x) if weight is None else lazy.reshape(weight, (-1,))
    total = lazy.zeros((cells + 1,), dtype=x.dtype, device=x.device)
    total = lazy.clone(lazy.narrow(lazy.scatter_add(total, 0, cell, values), 0, 1, cells))
    return histogram.result_type((_densities(total, [edges]) if density else total, edges))


@histogram.overload
def _(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    edges = given_edges("torch.histogram()", self, 0, bins)
    return _of_numbers(self, edges, weight, density)
