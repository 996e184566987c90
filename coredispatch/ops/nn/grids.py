"""Sampling of images at given places: grid_sample and affine_grid. Jaderberg et al., 2015."""

from __future__ import annotations

import itertools
from typing import Any

from coredispatch.ops.nn.grid_reference import (
    CUBIC,
    MODES,
    PADDINGS,
    affine_reference,
    affine_samples,
    grid_sample_backward_reference,
    grid_sample_reference,
    grid_samples,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, require_one_of, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, int64
from coredispatch.registry.model.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    UnsupportedShapeError,
)

# ---- the definition ---------------------------------------------------------------------------


def _grid_shape(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> tuple[int, ...]:
    require_one_of("mode", mode, MODES)
    require_one_of("padding_mode", padding_mode, PADDINGS)
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
    if mode == "bicubic" and n != 2:
        raise ArgumentError("mode='bicubic' takes (N, C, H, W)", fix="use 'bilinear'")
    if DType.of(input.dtype) is not DType.of(grid.dtype):
        raise DTypeError(
            f"input of dtype {input.dtype} and grid of dtype {grid.dtype}", fix="use one dtype"
        )
    return (*input.shape[:2], *grid.shape[1:-1])


@composite(
    out=_grid_shape,
    dtype=same,
    reference=grid_sample_reference,
    samples=grid_samples,
    takes="float",
    values=(-1.4, 1.4),
    tolerance=conditioned,
    smooth=False,
    unbroadcast=False,
    namespace=(),
    cast="widest_accelerated",
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
    shape = _grid_shape(input, grid, mode, padding_mode)
    x, sizes = wide(input), tuple(input.shape[2:])
    along = _along(wide(grid), sizes, mode, padding_mode, align_corners)
    # Rows of channels: one index per place fetches them all.
    rows = x.movedim(1, -1).reshape(-1, shape[1])
    total: Any = None
    for taps in itertools.product(*along):
        picked, _, inside = _one_tap(rows, taps, sizes)
        share = _product([weight for _, weight, _ in taps])
        part = picked * share.masked_fill(~inside, 0).unsqueeze(2)
        total = part if total is None else total + part
    return narrow(total.movedim(-1, 1).reshape(shape).contiguous(), input)


@grid_sample.vjp
def _(grad, input, grid, mode, padding_mode, align_corners):
    return grid_sample_backward(grad, input, grid, mode, padding_mode, align_corners)


@composite(
    out=lambda grad, input, grid, *_: [tuple(input.shape), tuple(grid.shape)],
    dtype=lambda grad, input, *_: input.dtype,
    reference=grid_sample_backward_reference,
    samples=lambda make: (
        Sample(make((*s.args[0].shape[:2], *s.args[1].shape[1:-1])), *s.args)
        for s in grid_samples(make)
    ),
    dtypes="float",
    values=(-1.4, 1.4),
    tolerance=conditioned,
    smooth=False,
    unbroadcast=False,
    namespace=(),
)
def grid_sample_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`grid_sample`: of the input and of the grid."""
    x, sizes, places = wide(input), tuple(input.shape[2:]), wide(grid)
    batch, channels = input.shape[:2]
    along = _along(places, sizes, mode, padding_mode, align_corners)
    rows = x.movedim(1, -1).reshape(-1, channels)
    grad = wide(grad_output).reshape(batch, channels, -1).movedim(1, -1)
    into, of_places = lazy.zeros_like(rows), [lazy.zeros_like(grad[..., 0]) for _ in sizes]
    for taps in itertools.product(*along):
        picked, index, inside = _one_tap(rows, taps, sizes)
        weights = [weight for _, weight, _ in taps]
        share = _product(weights).masked_fill(~inside, 0).unsqueeze(2)
        into = into.index_add(0, index, (grad * share).reshape(-1, channels))
        dot = (grad * picked).sum(2)
        for i, (_, _, slope) in enumerate(taps):
            change = _product([slope, *weights[:i], *weights[i + 1 :]]).masked_fill(~inside, 0)
            of_places[i] = of_places[i] + dot * change
    first = into.reshape(batch, *sizes, channels).movedim(-1, 1)
    second = lazy.stack(of_places[::-1], -1).reshape(places.shape)
    return narrow(first, input), narrow(second, grid)


def _along(
    places: Tensor, sizes: tuple[int, ...], mode: str, padding_mode: str, align: bool
) -> list[list[Any]]:
    """For each spatial dimension its neighbours: positions, weights, and their derivatives.

    All are ``(N, places)``; the derivative is the one with respect to the grid.
    """
    n, found = len(sizes), []
    for i, size in enumerate(sizes):
        at = places[..., n - 1 - i].reshape(places.shape[0], -1)
        scale = (size - 1) / 2 if align else size / 2
        at = (at + 1) * scale if align else ((at + 1) * size - 1) / 2
        taps = _weighted(at, size, mode, padding_mode, align)
        found.append([(position, weight, slope * scale) for position, weight, slope in taps])
    return found


def _product(factors: list[Any]) -> Any:
    total = factors[0]
    for factor in factors[1:]:
        total = total * factor
    return total


def _one_tap(rows: Tensor, taps: Any, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The channels at one position per place, 0 beyond the image; their rows; what is inside."""
    index: Any = None
    inside: Any = None
    for (position, _, _), size in zip(taps, sizes):
        here = (position >= 0) & (position < size)
        step = position.clamp(0, size - 1)
        index = step if index is None else index * size + step
        inside = here if inside is None else inside & here
    batch = index.shape[0]
    first = lazy.arange(batch, device=rows.device).unsqueeze(1) * (rows.shape[0] // max(batch, 1))
    index = (index + first).reshape(-1)
    picked = rows.index_select(0, index).reshape(*inside.shape, rows.shape[1])
    return picked.masked_fill(~inside.unsqueeze(2), 0), index, inside


def _weighted(at: Tensor, size: int, mode: str, padding_mode: str, align: bool) -> list[Any]:
    """``(positions, weights, slopes)`` of each neighbour along one dimension, ``(N, places)``."""
    if mode == "bicubic":
        # The neighbours are brought inside one by one; the weights are those of the place itself.
        # The polynomials are written by their factors, so that they lose no digits near zeros.
        low = _whole(at, size, floor=True, margin=3 if padding_mode == "zeros" else None)
        share = at - low
        taps = []
        for offset in range(-1, 3):
            d = share - offset if offset < 1 else offset - share
            if offset in (0, 1):
                weight = (1 - d) * (1 + d * (1 - (CUBIC + 2) * d))
                slope = (3 * (CUBIC + 2) * d - 2 * (CUBIC + 3)) * d
            else:
                weight = (d - 1) * ((d - 2) * (d - 2)) * CUBIC
                slope = (3 * d - 4) * (d - 2) * CUBIC
            near, _ = _inside(low + offset, size, padding_mode, align)
            position = _whole(near, size, floor=False).to(int64)
            taps.append((position, weight, slope if offset < 1 else -slope))
        return taps
    at, slope = _inside(at, size, padding_mode, align)
    if mode == "nearest":
        position = _whole(at, size, floor=False)
        return [(position.to(int64), lazy.ones_like(at), lazy.zeros_like(at))]
    low = _whole(at, size, floor=True)
    share = at - low
    return [(low.to(int64), 1 - share, -slope), ((low + 1).to(int64), share, slope)]


def _whole(at: Tensor, size: int, *, floor: bool, margin: int | None = 2) -> Tensor:
    """Whole positions, those far outside (and NaN) brought to just outside."""
    at = at.detach()
    whole = at.floor() if floor else at.round()
    if margin is None:
        return whole.masked_fill(whole != whole, -1)
    return whole.masked_fill(whole != whole, -margin).clamp(-margin, size + margin)


def _inside(at: Tensor, size: int, padding_mode: str, align: bool) -> tuple[Tensor, Tensor]:
    """Places outside brought to the border, where the padding mode says so; the derivative."""
    slope = lazy.ones_like(at.detach())
    if padding_mode == "zeros":
        return at, slope
    if padding_mode == "reflection":
        at, slope = _reflected(at, *((0, 2 * (size - 1)) if align else (-1, 2 * size - 1)))
    # As in PyTorch a place on the border itself takes no gradient.
    kept = (at > 0) & (at < size - 1)
    at = lazy.where(at > 0, at, 0.0)
    return lazy.where(at < size - 1, at, float(size - 1)), slope.masked_fill(~kept, 0)


def _reflected(at: Tensor, twice_low: int, twice_high: int) -> tuple[Tensor, Tensor]:
    if twice_low == twice_high:
        return at * 0, lazy.zeros_like(at.detach())
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (at - low).abs()
    flips = (distance.detach() / span).floor()
    extra = distance - flips * span
    even = flips % 2 == 0
    slope = lazy.where(even == (at >= low), 1.0, -1.0).to(at.dtype)
    return lazy.where(even, extra, span - extra) + low, slope


# ---- affine_grid ------------------------------------------------------------------------------


@composite(
    out=lambda theta, size, *_: (size[0], *size[2:], len(size) - 2),
    dtype=same,
    reference=affine_reference,
    samples=affine_samples,
    takes="float",
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
    if n not in (2, 3):
        raise UnsupportedShapeError(
            f"affine_grid makes images and volumes, not a result of size {tuple(size)}",
            fix="use a size (N, C, H, W) or (N, C, D, H, W)",
        )
    if tuple(theta.shape[1:]) != (n, n + 1) or theta.shape[0] != size[0]:
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
