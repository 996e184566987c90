"""Histograms of points in several dimensions."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.reduction.histograms import counts_in_cells, even_edges, given_edges
from coredispatch.registry.model.errors import DTypeError, OpError

__all__ = ["histogramdd"]

HistogramResult = namedtuple("HistogramResult", ("hist", "bin_edges"))
_NAME = "torch.histogramdd"


def histogramdd(
    input: Tensor,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramResult:
    """``(hist, bin_edges)`` of points ``(*, D)``: counts ``(bins_0, ..., bins_D-1)``, and a
    tuple of D tensors of edges.

    ``bins`` is a number, D numbers, or D tensors of increasing edges; ``range`` holds D pairs (low,
    high), the range of each coordinate by default; ``weight`` has the shape ``(*)``; ``density``
    makes the integral 1. Raises ``RuntimeError`` for what does not fit.
    """
    if input.ndim < 2:
        raise OpError(f"{_NAME}: input tensor should have at least 2 dimensions", fix="(N, D)")
    dims = input.shape[-1]
    points = input.detach().reshape(-1, dims)
    bins = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(bins) != dims:
        raise OpError(
            f"{_NAME}: expected {dims} sequences of bin edges for a {dims}-dimensional histogram "
            f"but got {len(bins)}",
            fix="give one for each dimension",
        )
    if range is not None and len(range) != 2 * dims:
        raise OpError(
            f"{_NAME}: for a {dims}-dimensional histogram range should have {2 * dims} elements, "
            f"but got {len(range)}",
            fix="give low and high for each dimension",
        )
    edges = []
    for i, given in enumerate(bins):
        if isinstance(given, Tensor):
            edges.append(given_edges(_NAME, points, i, given))
            continue
        low, high = (None, None) if range is None else range[2 * i : 2 * i + 2]
        edges.append(even_edges(points[:, i], given, low, high, _NAME, i))
    if weight is not None:
        if not isinstance(weight, Tensor):
            raise DTypeError(
                f"{_NAME}: weight must be a Tensor, not {type(weight).__name__} ({weight!r})",
                fix="give one weight for each point",
            )
        if tuple(weight.shape) != tuple(input.shape[:-1]):
            raise OpError(
                f"{_NAME}: if weight tensor is provided it should have the same shape as the input "
                f"tensor excluding its innermost dimension, but got {tuple(weight.shape)}",
                fix="give one weight for each point",
            )
        weight = weight.detach().reshape(-1)
    return HistogramResult(counts_in_cells(_NAME, points, edges, weight, density), tuple(edges))
