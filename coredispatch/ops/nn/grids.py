"""Sampling of images at given places: grid_sample and affine_grid. Jaderberg et al., 2015."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, require_one_of, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


# ---- the reference: one place at a time -------------------------------------------------------


def _reflect(x: float, twice_low: int, twice_high: int) -> float:
    if twice_low == twice_high:
        return 0.0
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    x = abs(x - low)
    extra, flips = x % span, int(x // span)
    return extra + low if flips % 2 == 0 else span - extra + low


def _kept_inside(x: float, size: int, padding_mode: str, align_corners: bool) -> float:
    if padding_mode == "reflection":
        x = _reflect(x, *((0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)))
    return x if padding_mode == "zeros" else min(max(x, 0), size - 1)


def _cubic_weights(share: float) -> list[float]:
    weights = []
    for d in (share + 1, share, 1 - share, 2 - share):
        near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
        far = (((d - 5) * d + 8) * d - 4) * _CUBIC
        weights.append(near if d <= 1 else far)
    return weights


def _taps(at: float, size: int, mode: str, padding_mode: str, align: bool) -> list[Any]:
    """``(position, weight)`` along one dimension."""
    at = (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2
    if mode == "bicubic":
        low = int(np.floor(at))
        weights = _cubic_weights(at - low)
        near = [(_kept_inside(low + i, size, padding_mode, align)) for i in range(-1, 3)]
        return [(int(p), w) for p, w in zip(near, weights)]
    at = _kept_inside(at, size, padding_mode, align)
    if mode == "nearest":
        return [(int(np.rint(at)), 1.0)]
    low = int(np.floor(at))
    return [(low, 1 - (at - low)), (low + 1, at - low)]


def _grid_sample_reference(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Any:
    sizes = input.shape[2:]
    result = np.zeros((*input.shape[:2], *grid.shape[1:-1]))
    for where in np.ndindex(grid.shape[:-1]):
        batch, *place = where
        along = [
            _taps(float(x), size, mode, padding_mode, align_corners)
            for x, size in zip(grid[where][::-1], sizes)
        ]
        for taps in itertools.product(*along):
            position = tuple(p for p, _ in taps)
            if all(0 <= p < size for p, size in zip(position, sizes)):
                weight = np.prod([w for _, w in taps])
                result[(batch, slice(None), *place)] += (
                    input[(batch, slice(None), *position)] * weight
                )
    return result


def _grid_samples(make: Any) -> Iterator[Sample]:
    for mode, padding, align in itertools.product(_MODES, _PADDINGS, (False, True)):
        yield Sample(make((2, 3, 4, 5)), make.float((2, 3, 2, 2)), mode, padding, align)
        if mode != "bicubic":
            grid = make.float((2, 2, 1, 3, 3))
            yield Sample(make((2, 1, 3, 4, 2)), grid, mode, padding, align)


# ---- the definition ---------------------------------------------------------------------------


def _grid_shape(input: Any, grid: Any, *_: Any) -> tuple[int, ...]:
    n = input.ndim - 2
    if n not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != n:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} and a grid of shape {tuple(grid.shape)}",
            fix="use (N, C, H, W) with (N, H', W', 2), or (N, C, D, H, W) with (N, D', H', W', 3)",
        )
    if grid.shape[0] != input.shape[0]:
        raise ShapeError(
            f"{input.shape[0]} images and {grid.shape[0]} grids", fix="give one grid per image"
        )
    if 0 in input.shape[2:]:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} has no elements to sample",
            fix="use non-empty spatial dimensions",
        )
    return (*input.shape[:2], *grid.shape[1:-1])


@composite(
    out=_grid_shape,
    dtype=same,
    reference=_grid_sample_reference,
    samples=_grid_samples,
    dtypes="float",
    values=(-1.4, 1.4),
    tolerance=conditioned,
    smooth=False,
    unbroadcast=False,
    namespace=(),
)
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """``input`` ``(N, C, *spatial)`` at the places of ``grid`` ``(N, *out, n)``: ``(N, C, *out)``.

    A place is ``(x, y)`` or ``(x, y, z)``, the last dimension first, from -1 to 1 over the image:
    over the corners' centres with ``align_corners``, else over its edges. ``mode`` is
    ``bilinear``, ``nearest`` or (for images) ``bicubic``; beyond the image ``padding_mode`` gives
    ``zeros``, the ``border``, or its ``reflection``. Raises ``ShapeError``, ``ArgumentError`` and
    ``DTypeError`` for what does not fit.
    """
    shape = _grid_shape(input, grid)
    require_one_of("mode", mode, _MODES)
    require_one_of("padding_mode", padding_mode, _PADDINGS)
    n = input.ndim - 2
    if mode == "bicubic" and n != 2:
        raise ArgumentError("mode='bicubic' takes (N, C, H, W)", fix="use 'bilinear'")
    if input.dtype is not grid.dtype:
        raise DTypeError(
            f"input of dtype {input.dtype} and grid of dtype {grid.dtype}", fix="use one dtype"
        )
    x, places = wide(input), wide(grid)
    sizes = tuple(input.shape[2:])
    count = 1
    for size in shape[2:]:
        count *= size
    along = []  # of each spatial dimension: positions (float) and weights, (N, places)
    for i, size in enumerate(sizes):
        at = places[..., n - 1 - i].reshape(shape[0], count)
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        along.append(_weighted(at, size, mode, padding_mode, align_corners))
    # Rows of channels: one index per place fetches them all.
    rows = x.movedim(1, -1).reshape(-1, shape[1])
    total: Any = None
    for taps in itertools.product(*along):
        part = _one_tap(rows, taps, sizes)
        total = part if total is None else total + part
    total = total.movedim(-1, 1)
    if mode == "nearest":
        # The grid has a gradient, which is 0.
        everywhere = lazy.ones_like(places, dtype="bool")
        total = total + places.masked_fill(everywhere, 0).sum()
    return narrow(total.reshape(shape), input)


def _one_tap(rows: Tensor, taps: Any, sizes: tuple[int, ...]) -> Tensor:
    """The channels at one position per place, times their weight; 0 beyond the image."""
    index: Any = None
    weight: Any = None
    inside: Any = None
    for (position, share), size in zip(taps, sizes):
        here = (position >= 0) & (position < size)
        step = position.clamp(0, size - 1)
        index = step if index is None else index * size + step
        inside = here if inside is None else inside & here
        if share is not None:
            weight = share if weight is None else weight * share
    batch = index.shape[0]
    first = lazy.arange(batch, device=rows.device).unsqueeze(1) * (rows.shape[0] // max(batch, 1))
    picked = rows.index_select(0, (index + first).reshape(-1))
    picked = picked.reshape(*index.shape, rows.shape[1]).masked_fill(~inside.unsqueeze(2), 0)
    return picked if weight is None else picked * weight.unsqueeze(2)


def _weighted(at: Tensor, size: int, mode: str, padding_mode: str, align: bool) -> list[Any]:
    """``(positions, weights)`` of each neighbour along one dimension, both ``(N, places)``."""
    if mode == "bicubic":
        # The neighbours are brought inside one by one; the weights are those of the place itself.
        low = _whole(at, size, floor=True, margin=3 if padding_mode == "zeros" else None)
        share = at - low
        taps = []
        for offset in range(-1, 3):
            distance = share + 1 if offset == -1 else share if offset == 0 else offset - share
            if offset in (0, 1):
                weight = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
            else:
                weight = (((distance - 5) * distance + 8) * distance - 4) * _CUBIC
            near = _inside(low + offset, size, padding_mode, align)
            taps.append((_whole(near, size, floor=False).to(int64), weight))
        return taps
    at = _inside(at, size, padding_mode, align)
    if mode == "nearest":
        return [(_whole(at, size, floor=False).to(int64), None)]
    low = _whole(at, size, floor=True)
    share = at - low
    return [(low.to(int64), 1 - share), ((low + 1).to(int64), share)]


def _whole(at: Tensor, size: int, *, floor: bool, margin: int | None = 2) -> Tensor:
    """Whole positions, those far outside (and NaN) brought to just outside."""
    at = at.detach()
    whole = at.floor() if floor else at.round()
    if margin is None:
        return whole.masked_fill(whole != whole, -1)
    return whole.masked_fill(whole != whole, -margin).clamp(-margin, size + margin)


def _inside(at: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """Places outside brought to the border, where the padding mode says so."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        at = _reflected(at, *((0, 2 * (size - 1)) if align else (-1, 2 * size - 1)))
    # As in PyTorch a place on the border itself takes no gradient.
    at = lazy.where(at > 0, at, 0.0)
    return lazy.where(at < size - 1, at, float(size - 1))


def _reflected(at: Tensor, twice_low: int, twice_high: int) -> Tensor:
    if twice_low == twice_high:
        return at * 0
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (at - low).abs()
    flips = (distance.detach() / span).floor()
    extra = distance - flips * span
    return lazy.where(flips % 2 == 0, extra, span - extra) + low


# ---- affine_grid ------------------------------------------------------------------------------


def _affine_reference(theta: Any, size: Any, align_corners: bool = False) -> Any:
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        lines.append(line if align_corners else line * (n - 1) / n)
    mesh = np.meshgrid(*lines, indexing="ij")
    places = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1)
    return np.einsum("...j,nij->n...i", places, theta)


def _affine_samples(make: Any) -> Iterator[Sample]:
    for align in (False, True):
        yield Sample(make((2, 2, 3)), (2, 3, 4, 5), align)
        yield Sample(make((1, 2, 3)), (1, 1, 1, 3), align)
        yield Sample(make((2, 3, 4)), (2, 1, 2, 3, 4), align)


@composite(
    out=lambda theta, size, *_: (size[0], *size[2:], len(size) - 2),
    dtype=same,
    reference=_affine_reference,
    samples=_affine_samples,
    dtypes="float",
    tolerance=conditioned,
    namespace=(),
)
def affine_grid(theta: Tensor, size: IntList, align_corners: bool = False) -> Tensor:
    """Grids for :func:`grid_sample` from affine maps ``theta`` ``(N, 2, 3)`` or ``(N, 3, 4)``.

    ``size`` is the result's, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; the grid is
    ``(N, *spatial, n)``. Raises ``ShapeError`` for other shapes, ``DTypeError`` unless ``theta``
    is floating, and ``ArgumentError`` for sizes below 1.
    """
    size = tuple(size)
    n = len(size) - 2
    if not theta.dtype.is_floating_point:
        raise DTypeError(f"theta has dtype {theta.dtype}", fix="use a floating-point theta")
    if n not in (2, 3) or tuple(theta.shape[1:]) != (n, n + 1) or theta.shape[0] != size[0]:
        raise ShapeError(
            f"theta of shape {tuple(theta.shape)} and size {size}",
            fix="use (N, 2, 3) with (N, C, H, W), or (N, 3, 4) with (N, C, D, H, W)",
        )
    if min(size) < 1:
        raise ArgumentError(f"size {size}", fix="use sizes above 0")
    maps = wide(theta)
    where = {"dtype": maps.dtype, "device": maps.device}
    spatial = size[2:]
    total = maps[:, :, n].reshape(-1, *(1,) * n, n)
    for i, count in enumerate(spatial):
        line = lazy.linspace(-1, 1, count, **where) if count > 1 else lazy.zeros((1,), **where)
        if not align_corners:
            line = line * ((count - 1) / count)
        line = line.reshape(-1, *(1,) * (n - i))
        total = total + line * maps[:, :, n - 1 - i].reshape(-1, *(1,) * n, n)
    return narrow(total, theta)
