"""NumPy references and samples of grid_sample and affine_grid: one place at a time.

They compute in the precision of their arrays: run in single precision they show what rounding
does where weights cancel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.samples import Sample

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
#: the parameter of the cubic kernel. Keys, 1981
CUBIC = -0.75


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
        near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
        far = (((d - 5) * d + 8) * d - 4) * CUBIC
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


def grid_sample_reference(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Any:
    sizes = input.shape[2:]
    result = np.zeros((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    for where in np.ndindex(grid.shape[:-1]):
        batch, *place = where
        along = [
            _taps(x, size, mode, padding_mode, align_corners)
            for x, size in zip(grid[where][::-1], sizes)
        ]
        for taps in itertools.product(*along):
            position = tuple(p for p, _ in taps)
            if all(0 <= p < size for p, size in zip(position, sizes)):
                weight = math.prod(w for _, w in taps)
                result[(batch, slice(None), *place)] += (
                    input[(batch, slice(None), *position)] * weight
                )
    return result


def _slopes(at: float, size: int, mode: str, padding_mode: str, align: bool) -> list[float]:
    """The derivatives of the weights of :func:`_taps`, along the segment that ``at`` lies in."""
    scale = (size - 1) / 2 if align else size / 2
    if mode == "nearest":
        return [0.0]
    place = (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2
    if mode == "bicubic":
        share = place - np.floor(place)
        far, near = _far_slope, _near_slope
        return [scale * k for k in (far(share + 1), near(share), -near(1 - share), -far(2 - share))]
    inside = _kept_inside(place, size, padding_mode, align)
    direction = 1.0
    if padding_mode != "zeros":
        if inside <= 0 or inside >= size - 1:
            direction = 0.0
        elif padding_mode == "reflection":
            low, span = (0, size - 1) if align else (-0.5, size)
            even = abs(place - low) // span % 2 == 0
            direction = 1.0 if even == (place >= low) else -1.0
    return [-direction * scale, direction * scale]


def _far_slope(d: float) -> float:
    return ((3 * d - 10) * d + 8) * CUBIC


def _near_slope(d: float) -> float:
    return (3 * (CUBIC + 2) * d - 2 * (CUBIC + 3)) * d


def grid_sample_backward_reference(
    grad_output: Any, input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool
) -> Any:
    """One place at a time."""
    sizes = input.shape[2:]
    into, of_grid = np.zeros_like(input), np.zeros_like(grid)
    for where in np.ndindex(grid.shape[:-1]):
        batch, *place = where
        options = mode, padding_mode, align_corners
        given = grid[where][::-1]
        along = [
            [(p, w, s) for (p, w), s in zip(_taps(x, n, *options), _slopes(x, n, *options))]
            for x, n in zip(given, sizes)
        ]
        arriving = grad_output[(batch, slice(None), *place)]
        for taps in itertools.product(*along):
            position = tuple(p for p, _, _ in taps)
            if not all(0 <= p < n for p, n in zip(position, sizes)):
                continue
            there = (batch, slice(None), *position)
            into[there] += arriving * math.prod(w for _, w, _ in taps)
            dot = arriving @ input[there]
            for i, (_, _, slope) in enumerate(taps):
                others = [w for k, (_, w, _) in enumerate(taps) if k != i]
                of_grid[where][len(sizes) - 1 - i] += dot * slope * math.prod(others)
    return into, of_grid


def grid_samples(make: Any) -> Iterator[Sample]:
    for mode, padding, align in itertools.product(MODES, PADDINGS, (False, True)):
        yield Sample(make((2, 3, 4, 5)), make.float((2, 3, 2, 2)), mode, padding, align)
        if mode != "bicubic":
            grid = make.float((2, 2, 1, 3, 3))
            yield Sample(make((2, 1, 3, 4, 2)), grid, mode, padding, align)


def affine_reference(theta: Any, size: Any, align_corners: bool = False) -> Any:
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        lines.append(line if align_corners else line * (n - 1) / n)
    mesh = np.meshgrid(*lines, indexing="ij")
    places = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1)
    return np.einsum("...j,nij->n...i", places, theta)


def affine_samples(make: Any) -> Iterator[Sample]:
    for align in (False, True):
        yield Sample(make((2, 2, 3)), (2, 3, 4, 5), align)
        yield Sample(make((1, 2, 3)), (1, 1, 1, 3), align)
        yield Sample(make((2, 3, 4)), (2, 1, 2, 3, 4), align)
