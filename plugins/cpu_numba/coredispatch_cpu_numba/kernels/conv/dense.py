"""Convolutions of many channels as products of matrices; see ``loops/conv/dense.py``.

Forward and both gradients, of one to three dimensions, with any stride, padding and dilation. Sums
are made in the dtype of the arrays, in slices of 256 products that are added up: for ``K`` products
the error is within ``(256 + K / 256) eps sum |input weight|``. What is not taken goes to
``general``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS, constant
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.conv import general
from coredispatch_cpu_numba.kernels.conv.plans import Convolution, Three, phases_of
from coredispatch_cpu_numba.kernels.linalg.products import shared

__all__ = [
    "FORMS",
    "KERNELS",
    "LEAST",
    "PRIORITY",
    "WHEN",
    "backward_tables",
    "correlate",
    "forward_tables",
    "input_grad_tables",
    "multiply",
    "packed",
    "takes",
]

PRIORITY = 12  # above the general loops
_LEAST = 64
_SPLIT = 1 << 19  # multiplications
_SPLIT_LAYING = 1 << 14  # elements
_DEPTH, _CHANNELS = 256, 64  # as in the loops
_WIDTH, _SIDE = 32, 16  # of the widest panel, and of the largest square that is transposed
_lay, _pack, _part_channels, _upstream, _fold = (
    Loop("conv.dense", name, _SPLIT_LAYING)
    for name in ("lay", "pack", "part_channels", "upstream", "fold")
)
_LEAST_CHANNELS, _CHANNELS_OF_A_TAP = 24, 128
_LEAST_POSITIONS, _MOST_POSITIONS = 16, 4096  # of all images, of one
_ODD = 32
_CHUNKS, _CHUNK, _MOST_SUMS = 8, 2048, 1 << 20  # of positions; sums of all of them
_product, _weight_grad_loop = (
    Loop("conv.dense", name, _SPLIT) for name in ("product", "weight_grad")
)


@dataclass(frozen=True)
class Phase:
    """Positions of the result that have the same taps.

    Args:
        reads: by position of an image, the element at which what its window sees begins
        writes: the positions of the result
        slices: where in the window, how many elements, and from which row of the panels on
    """

    reads: np.ndarray
    writes: np.ndarray
    slices: np.ndarray


@dataclass(frozen=True)
class Tables:
    """How images of one shape are laid out, and which rows make which results.

    Args:
        channels: of a group that are read
        made: of a group that are written
        places: by position of an image, how many bytes its channels lie beyond the first ones
        gaps: pairs, between which there are zeros
        room: elements of an image that is laid out
        spatial: positions of the result of an image
        lines: rows of a panel that the elements of one line of a weight become
        phases: by remainder
        shifts: of the taps, in the order of the weight: elements from the first one
        work: multiplications for an image and a group
    """

    channels: int
    made: int
    places: np.ndarray
    gaps: np.ndarray
    room: int
    spatial: int
    lines: np.ndarray
    phases: tuple[Phase, ...]
    shifts: np.ndarray
    work: int


def _ints(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, np.int64).reshape(-1)


def _grid(sizes: Sequence[int], steps: Sequence[int], starts: Sequence[int], strides: Any) -> Any:
    """``sum((start + step * index) * stride)`` for all indices of ``sizes``."""
    total = np.zeros((), np.int64)
    for n, step, start, stride in zip(sizes, steps, starts, strides, strict=True):
        total = np.add.outer(total, (start + step * np.arange(n, dtype=np.int64)) * stride)
    return _ints(total)


def _strides(sizes: Sequence[int], unit: int) -> Three:
    return sizes[1] * sizes[2] * unit, sizes[2] * unit, unit


def _laid(given: Three, before: Three, sizes: Three, channels: int, itemsize: int) -> Any:
    """Places of the positions of an image among ``sizes`` positions, and the gaps between."""
    places = _grid(given, (1, 1, 1), before, _strides(sizes, 1))
    filled = np.zeros(prod(sizes) + 2, np.int8)
    filled[0] = filled[-1] = 1
    filled[places + 1] = 1
    gaps = np.flatnonzero(np.diff(filled))
    return places * (channels * itemsize), gaps.astype(np.int64) * channels


def _slices(shifts: Sequence[int], channels: int, first: int) -> np.ndarray:
    """Runs of taps that lie side by side, cut into slices; the panels' rows begin at ``first``."""
    runs: list[list[int]] = []
    for i, shift in enumerate(shifts):
        if runs and runs[-1][0] + runs[-1][1] == shift:
            runs[-1][1] += channels
        else:
            runs.append([shift, channels, first + i * channels])
    slices: list[int] = []
    for start, length, row in runs:
        pieces = -(-length // _DEPTH)
        cuts = [length * i // pieces for i in range(pieces + 1)]
        for low, high in zip(cuts, cuts[1:]):
            slices += [start + low, high - low, row + low]
    return _ints(slices)


@lru_cache(maxsize=64)
def forward_tables(c: Convolution, itemsize: int) -> Tables:
    """Tables of the convolution itself, and of the gradient of its weight."""
    sizes: Three = tuple(  # type: ignore[assignment]
        max((o - 1) * s + (k - 1) * d + 1, p + n)
        for o, s, k, d, p, n in zip(c.out, c.stride, c.kernel, c.dilation, c.padding, c.spatial)
    )
    places, gaps = _laid(c.spatial, c.padding, sizes, c.given, itemsize)
    strides = _strides(sizes, c.given)
    shifts = _grid(c.kernel, c.dilation, (0, 0, 0), strides)
    taps = len(shifts)
    reads = _grid(c.out, c.stride, (0, 0, 0), strides)
    phase = Phase(reads, np.arange(len(reads)), _slices(shifts.tolist(), c.given, 0))
    # Element (channel, tap) of a line of the weight becomes the row (tap, channel).
    lines = np.add.outer(np.arange(c.given), np.arange(taps) * c.given)
    work = len(reads) * c.given * c.channels * taps
    return Tables(
        c.given, c.channels, places, gaps, prod(sizes) * c.given, len(reads), _ints(lines),
        (phase,), shifts, work,
    )  # fmt: skip


@lru_cache(maxsize=64)
def backward_tables(c: Convolution, itemsize: int) -> Tables | None:
    """Tables of the gradient of the input; None where windows do not reach all of it."""
    dimensions = [list(phases_of(c, i)) for i in range(3)]
    before, reach = [], []
    for phases in dimensions:
        shifts = [shift for _, _, taps in phases for _, shift in taps]
        if not all(taps for _, _, taps in phases):
            return None
        before.append(max(0, -min(shifts)))
        reach.append(max(n + max(shift for _, shift in taps) for _, n, taps in phases))
    sizes: Three = tuple(  # type: ignore[assignment]
        b + max(r, n) for b, r, n in zip(before, reach, c.out)
    )
    places, gaps = _laid(c.out, tuple(before), sizes, c.channels, itemsize)  # type: ignore[arg-type]
    strides, own = _strides(sizes, c.channels), _strides(c.spatial, 1)
    # A tap that reaches no position keeps a row behind those of all phases.
    lines = np.full(prod(c.kernel), -1, np.int64)
    found, row, work = [], 0, 0
    for phase in product(*dimensions):
        remainders, counts, taps = zip(*phase)
        seen = []
        for tap in product(*taps):
            shift = sum((t[1] + b) * s for t, b, s in zip(tap, before, strides))
            number = (tap[0][0] * c.kernel[1] + tap[1][0]) * c.kernel[2] + tap[2][0]
            seen.append((shift, number))
        seen.sort()
        for i, (_, number) in enumerate(seen):
            lines[number] = row + i * c.channels
        reads = _grid(counts, (1, 1, 1), (0, 0, 0), strides)
        writes = _grid(counts, c.stride, remainders, own)
        found.append(Phase(reads, writes, _slices([s for s, _ in seen], c.channels, row)))
        row += len(seen) * c.channels
        work += len(reads) * len(seen) * c.channels * c.given
    lines[lines < 0] = row + np.arange(np.count_nonzero(lines < 0)) * c.channels
    return Tables(
        c.channels, c.given, places, gaps, prod(sizes) * c.channels, prod(c.spatial), lines,
        tuple(found), np.empty(0, np.int64), work,
    )  # fmt: skip


def _parts(count: int) -> int:
    """How many units one thread takes at a time."""
    return -(-count // (4 * thread_count.wanted)) if thread_count.wanted > 1 else count


def _lay_out(
    t: Tables, x: np.ndarray, images: int, run: Callable[..., None], empty: Callable[..., Any]
) -> np.ndarray:
    """``images``, times groups, with their channels side by side."""
    laid = empty(images * t.room + _WIDTH, x.dtype)
    count = images * -(-t.channels // _CHANNELS)
    run(_lay, x.dtype, x.size, count, x, t.places, t.gaps, t.channels, t.room, laid,
        grain=_parts(count))  # fmt: skip
    return laid


def packed(
    c: Convolution,
    t: Any,
    weight: np.ndarray,
    adjoint: bool,
    run: Callable[..., None],
    empty: Callable[..., np.ndarray],
) -> np.ndarray:
    """Panels of output channels, with rows (tap, channel); ``t``: tables that have ``lines``."""
    taps = prod(c.kernel)
    length = t.channels * taps
    panels = empty(c.groups * length * (t.made + _WIDTH), weight.dtype)
    lines = (taps, t.channels, c.given * taps) if adjoint else (length, 1, 0)
    count = c.groups * -(-t.made // _CHANNELS)
    run(_pack, weight.dtype, weight.size, count, weight, t.lines, t.made, length * t.made, *lines,
        panels, grain=1)  # fmt: skip
    return panels


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
) -> None:
    """``out`` as the convolution of ``x``, or where ``adjoint`` as the gradient of its input.

    Args:
        t: ``forward_tables`` or ``backward_tables``
        run: ``run(loop, *arguments)`` runs a loop, or keeps it to be run later
        empty: makes the memory that is needed only meanwhile
    """
    own, length = out.dtype, t.channels * prod(c.kernel)
    laid = _lay_out(t, x, c.images * c.groups, run, empty)
    panels = packed(c, t, weight, adjoint, run, empty)
    level = constant(c.groups * t.made, own, 0) if bias is None else bias
    pitched = empty(c.images * c.groups * t.spatial * (t.made + _WIDTH), own)
    for phase in t.phases:
        total = c.images * len(phase.reads)
        tall, pieces, grain = shared(total, c.groups)
        run(_product, own, t.work * c.images * c.groups, c.groups * pieces, laid, phase.reads,
            t.room, phase.slices, panels, length, level, pitched, phase.writes, t.spatial,
            c.groups, t.made, total, tall, grain=grain)  # fmt: skip
    count = c.images * c.groups * -(-t.made // _CHANNELS)
    run(_part_channels, own, out.size, count, pitched, t.made, t.spatial, out, grain=_parts(count))


def multiply(
    c: Convolution,
    t: Tables,
    grad: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
    empty: Callable[..., np.ndarray] = np.empty,
) -> None:
    """``out`` as the gradient of the weight; not where numbers are not finite.

    Args:
        t: ``forward_tables``
    """
    own = out.dtype
    laid = _lay_out(t, x, c.images * c.groups, run, empty)
    total, channels = c.images * t.spatial, c.groups * c.channels
    pitch = -(-total // _ODD) * _ODD + _ODD // 2  # rows do not fall on few places of the cache
    rows = empty(channels * pitch, own)
    run(_upstream, own, grad.size, channels, grad, c.images, channels, t.spatial, pitch, rows,
        grain=_parts(channels))  # fmt: skip
    taps = len(t.shifts)
    # As many chunks for any number of threads: sums are the same.
    chunks = max(1, min(_CHUNKS, total // _CHUNK, _MOST_SUMS // out.size))
    chunk = -(-total // (chunks * _DEPTH)) * _DEPTH
    chunks = -(-total // chunk)
    tall, blocks, grain = shared(c.channels, c.groups * chunks)
    sums = empty((chunks * channels * taps + _SIDE) * (c.given + _WIDTH), own)
    run(_weight_grad_loop, own, t.work * c.images * c.groups, c.groups * chunks * blocks, laid,
        t.phases[0].reads, t.room, t.shifts, rows, pitch, sums, c.groups, c.channels, c.given,
        total, chunk, tall, grain=grain)  # fmt: skip
    run(_fold, own, chunks * out.size, channels, sums, chunks, channels, c.given, taps, out,
        grain=_parts(channels))  # fmt: skip


def takes(c: Convolution) -> bool:
    """Whether the loops here take a convolution, or the gradient of its weight.

    Of large planes the general ones are as fast, without another copy; so they are of single taps,
    until channels are many.
    """
    least = _CHANNELS_OF_A_TAP if prod(c.kernel) == 1 else _LEAST_CHANNELS
    positions = prod(c.out)
    return (
        min(c.given, c.channels) >= least
        and positions <= _MOST_POSITIONS
        and c.images * positions >= _LEAST_POSITIONS
    )


@lru_cache(maxsize=64)
def input_grad_tables(c: Convolution, itemsize: int) -> Tables | None:
    """``backward_tables``, None also where the loops here do not take the gradient of the input.

    They do not where most of what they would read is padding, which NumPy's kernels leave out.
    """
    tables = backward_tables(c, itemsize) if takes(c) else None
    if tables is None or general.is_worth(c):
        return tables
    most = 2 * prod(c.out) * prod(c.kernel) * c.given * c.channels
    return tables if tables.work <= most else None


def _forward(c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    out = np.empty((c.images, c.groups * c.channels, *c.out[3 - ndim :]), x.dtype)
    correlate(c, forward_tables(c, x.itemsize), x, weight, False, bias, out)
    return out


def _backward(c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    tables = backward_tables(c, grad.itemsize)
    if tables is None:
        return NotImplemented
    out = np.empty((c.images, c.groups * c.given, *c.spatial[3 - ndim :]), grad.dtype)
    finite, tame = general.tamed(weight)
    correlate(c, tables, grad, tame, True, bias, out)
    if not finite:
        general.add_special(c, grad, weight, out, ndim)
    return out


def _weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> Any:
    out = np.empty(shape, input.dtype)
    multiply(c, forward_tables(c, grad.itemsize), grad, input, out)
    return out if general.is_finite(out) else general.exact_weight_grad(c, grad, input, shape)


def _backward_where_taken(c: Convolution, grad: np.ndarray, *rest: Any) -> Any:
    if input_grad_tables(c, grad.itemsize) is None:
        return NotImplemented
    return _backward(c, grad, *rest)


def _accepts(x: Any, *others: Any) -> bool:
    return x.dtype in FLOATS and x.ndim > 2 and x.shape[1] >= _LEAST_CHANNELS


#: the convolution, its adjoint, and the gradient of the weight, of all sizes
FORMS = _forward, _backward, _weight_grad
KERNELS: dict[str, Callable[..., Any]] = general.forms_over(
    general.fit, _forward, _backward_where_taken, _weight_grad, takes
)
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
