"""Winograd's convolution F(4 x 4, 3 x 3) of float32; see ``loops/conv/winograd.py``.

Forward, and the gradient of the input, in two dimensions, of 3 x 3 weights without strides and
dilation. Four results of a dimension take six multiplications in place of twelve. What is not taken
goes to ``dense``. Nothing here is registered: results are not as exact as direct sums, so somebody
has to choose it.

The error of a result depends on all that its tile of 4 x 4 results sees. It is within ``10 eps S``,
where ``S`` is the sum over channels of the largest input in the patch of 6 x 6 times the sum of the
weights, both without signs. That is measured, and not proven: with 24 to 512 channels, normal and
uniform numbers come to 2.3, positive ones to 5.7. In units of ``eps sum |input weight|`` of the
result itself, where no padding leaves only few of its products, the largest errors are 7.3 of
normal numbers, 4.3 of uniform ones, and 5.1 of positive ones; those of ``dense`` are 1.1, 1.0, 4.9.
On average they are three to four times those of ``dense``, or of positive numbers as large.

What is infinite or NaN in one input, and what overflows on the way, would spread over a tile. Where
a result is not finite, ``KERNELS`` therefore compute all of them by ``dense``; ``correlate`` leaves
that to its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import constant
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.conv import dense, general
from coredispatch_cpu_numba.kernels.conv.plans import Convolution, Three

__all__ = ["KERNELS", "correlate", "forward_tables", "input_grad_tables", "is_finite", "takes"]

_POINTS, _DEPTH, _CHANNELS, _ODD = 36, 64, 32, 80  # as in the loops
_WIDTH = 32  # of the widest panel
_TILE, _TAPS, _SIZE, _ROWS = 4, 9, 4, 8
_LEAST_CHANNELS, _LEAST_TILES = 24, 4
_BLOCK = 128  # tiles whose sums for a panel stay in the second cache
_inputs = Loop("conv.winograd", "inputs", 1 << 14)
_columns = Loop("conv.winograd", "columns", 1 << 19)


@dataclass(frozen=True)
class Tables:
    """How images of one shape are laid out and cut into tiles.

    Args:
        channels: of a group that are read
        made: of a group that are written
        places: by position of an image, how many bytes its channels lie beyond the first ones
        gaps: pairs, between which there are zeros
        room: elements of an image that is laid out
        line: elements of a line of it
        spatial: positions of the result of an image
        across: positions of a line of it
        lines: rows of a panel that the elements of one line of a weight become
        tiles: of an image, four numbers each: see the loops
        work: multiplications for an image and a group
    """

    channels: int
    made: int
    places: np.ndarray
    gaps: np.ndarray
    room: int
    line: int
    spatial: int
    across: int
    lines: np.ndarray
    tiles: np.ndarray
    work: int


def takes(c: Convolution) -> bool:
    """Whether the loops here take a convolution, and the gradient of its input."""
    return (
        c.kernel == (1, 3, 3)
        and c.stride == c.dilation == (1, 1, 1)
        and c.spatial[0] == c.out[0] == 1
        and min(c.given, c.channels) >= _LEAST_CHANNELS
        and c.images * prod(-(-n // _TILE) for n in c.out) >= _LEAST_TILES
    )


def _tables(
    channels: int, made: int, given: Three, results: Three, first: Three, lines: np.ndarray
) -> Tables:
    """``first``: where ``given`` is the first thing that the first result sees."""
    before: Three = tuple(max(0, -f) for f in first)  # type: ignore[assignment]
    # A patch of the last tile of a line may see two and up to three positions beyond it.
    reach = (1, *(-(-n // _TILE) * _TILE + 2 for n in results[1:]))
    sizes: Three = tuple(  # type: ignore[assignment]
        b + max(n, r + f) for b, n, r, f in zip(before, given, reach, first, strict=True)
    )
    places, gaps = dense._laid(given, before, sizes, channels, _SIZE)
    down, right = first[1] + before[1], first[2] + before[2]
    line = sizes[2] * channels
    tiles = [
        (
            (y + down) * line + (x + right) * channels, y * results[2] + x,
            min(_TILE, results[1] - y), min(_TILE, results[2] - x),
        )
        for y in range(0, results[1], _TILE)
        for x in range(0, results[2], _TILE)
    ]  # fmt: skip
    return Tables(
        channels, made, places, gaps, prod(sizes) * channels, line, prod(results), results[2],
        dense._ints(lines), dense._ints(tiles), len(tiles) * _POINTS * channels * made,
    )  # fmt: skip


@lru_cache(maxsize=64)
def forward_tables(c: Convolution) -> Tables:
    """Tables of the convolution itself."""
    lines = np.add.outer(np.arange(c.given), np.arange(_TAPS) * c.given)
    _, down, right = c.padding
    return _tables(c.given, c.channels, c.spatial, c.out, (0, -down, -right), lines)


@lru_cache(maxsize=64)
def input_grad_tables(c: Convolution) -> Tables:
    """Tables of the gradient of the input: a convolution, too, whose weights are turned."""
    lines = np.arange(_TAPS)[::-1] * c.channels
    _, down, right = c.padding
    return _tables(c.channels, c.given, c.out, c.spatial, (0, down - 2, right - 2), lines)


def _share(total: int, parts: int) -> int:
    """How many tiles a part has: the rows that a product takes at once, several times."""
    return min(total, -(-total // (parts * _ROWS)) * _ROWS)


def correlate(
    c: Convolution,
    t: Tables,
    x: np.ndarray,
    weight: np.ndarray,
    adjoint: bool,
    bias: Any,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
    empty: Callable[..., np.ndarray] = np.empty,
) -> np.ndarray:
    """``out`` as the convolution of ``x``, or where ``adjoint`` as the gradient of its input.

    Returns what :func:`is_finite` looks at once the loops have run: ``out`` is right if that holds.

    Args:
        t: ``forward_tables`` or ``input_grad_tables``
        run: ``run(loop, *arguments)`` runs a loop, or keeps it to be run later
        empty: makes the memory that is needed only meanwhile
    """
    own, groups, threads = out.dtype, c.groups, thread_count.wanted
    level = constant(groups * t.made, own, 0) if bias is None else bias

    # Few images at a time are laid out, so that they are still in a cache when they are read.
    each = t.tiles.size // 4
    parts, slices = groups * -(-t.made // _CHANNELS), groups * -(-t.channels // _DEPTH)
    shares = -(-2 * threads // parts) if threads > 1 else 1
    images = max(1, _BLOCK * shares // each)
    images = -(-c.images // -(-c.images // images))
    some = _share(images * each, -(-images * each // (_BLOCK * shares)))
    block = _share(some, shares)
    laid = empty(images * groups * t.room + _WIDTH, own)
    inputs = empty(slices * _POINTS * (some * _DEPTH + _ODD), own)
    calls = sum(
        -(-min(images, c.images - first) * each // some) for first in range(0, c.images, images)
    )
    if calls == 1 == shares:
        panels, mode = weight, 2 if adjoint else 1
    else:
        panels, mode = dense.packed(c, t, weight, adjoint, run, empty), 0
    checks = empty(calls * parts * shares, own)
    at = 0
    for first in range(0, c.images, images):
        its, made = x[first : first + images], out[first : first + images]
        units = len(its) * groups * -(-t.channels // dense._CHANNELS)
        run(dense._lay, own, its.size, units, its, t.places, t.gaps, t.channels, t.room, laid,
            grain=dense._parts(units))  # fmt: skip
        total = len(its) * each
        for start in range(0, total, some):
            count = min(some, total - start)
            blocks = -(-count // block)
            check = checks[at : at + parts * blocks]
            at += check.size
            run(_inputs, own, slices * _DEPTH * _POINTS * count, slices * blocks, laid, t.tiles,
                t.room, t.line, t.channels, groups, start, count, block, inputs,
                grain=1)  # fmt: skip
            run(_columns, own, t.work * groups * count // each, parts * blocks, inputs, t.tiles,
                t.channels, panels, mode, level, made, t.across, t.spatial, groups, t.made, start,
                count, block, check, grain=1)  # fmt: skip
    return checks[:at]


def is_finite(checks: np.ndarray) -> bool:
    """Whether all results are finite; False also where a sum of some of them overflows."""
    return general.is_finite(checks)


def _forward(c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    if not takes(c) or x.dtype != np.float32:
        return NotImplemented
    out = np.empty((c.images, c.groups * c.channels, *c.out[3 - ndim :]), x.dtype)
    if not is_finite(correlate(c, forward_tables(c), x, weight, False, bias, out)):
        dense.correlate(c, dense.forward_tables(c, _SIZE), x, weight, False, bias, out)
    return out


def _backward(c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    if not takes(c) or grad.dtype != np.float32:
        return NotImplemented
    out = np.empty((c.images, c.groups * c.given, *c.spatial[3 - ndim :]), grad.dtype)
    if not is_finite(correlate(c, input_grad_tables(c), grad, weight, True, bias, out)):
        tables = dense.backward_tables(c, _SIZE)
        assert tables is not None  # without strides, windows reach everything
        finite, tame = general.tamed(weight)
        dense.correlate(c, tables, grad, tame, True, bias, out)
        if not finite:
            general.add_special(c, grad, weight, out, ndim)
    return out


def _weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> Any:
    return NotImplemented


KERNELS: dict[str, Callable[..., Any]] = general.forms_over(
    general.fit, _forward, _backward, _weight_grad, takes
)
