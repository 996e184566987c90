"""Convolutions of two dimensions whose channels are each alone or in groups of very few.

Forward and both gradients, with steps of one or two and no dilation. Sums are made in the dtype of
the arrays, one tap after the other: the error is within ``K eps sum |input weight|`` for ``K``
products. What the loops do not take goes to ``general``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, constant
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.conv import general
from coredispatch_cpu_numba.kernels.conv.plans import Convolution, overlapped, phases_of

__all__ = [
    "KERNELS",
    "LEAST",
    "PRIORITY",
    "WHEN",
    "Slides",
    "correlate",
    "forward_slides",
    "input_grad_slides",
    "multiply",
    "takes",
    "takes_weight_grad",
]

PRIORITY = 11  # above the general loops
_LEAST = 64
_SPLIT = 400_000  # multiplications
_PART = 200_000  # multiplications that one thread does at a time
_MOST = 4  # channels of a group
_LINE = 64  # bytes of a line of the cache
_STRIP = 256  # lines of a strip with its zeros, which stays in the first cache
_ROWS = 7  # of the result, which the loops compute at once
_HEIGHTS = (7, 5, 3, 2, 1)  # rows of weights that there are tiles for
_correlate = Loop("conv.depthwise", "correlate", _SPLIT)
_products = Loop("conv.depthwise", "weight_grad", _SPLIT)


@dataclass(frozen=True)
class Slides:
    """Arrays that a loop reads, and how much work there is.

    Args:
        plan: groups; channels of a group that are read and that are written; rows and columns of a
            plane that is read, and columns of it that are copied; from row to row of the copy, its
            size, and into how many it is cut; rows of zeros above it and columns before it; rows
            and columns of a plane that is written, and steps of those; rows of the result in a
            strip; from window to window, and rows of all windows at a place; weights of a group;
            from one channel that is written to the next among the weights; from the copy of one
            channel that is read to the next
        phases: for each phase of the result its first row and how many rows it has, its first
            column; rows of weights of a tile and the distance of these, where its columns begin and
            how many there are; the same of columns of single weights; and how many columns of the
            result it has
        columns: pairs: where a tile's column begins in the copy, and where its weights do
        units: pieces of work
        work: multiplications
    """

    plan: np.ndarray
    phases: np.ndarray
    columns: np.ndarray
    units: int
    work: int

    @property
    def grain(self) -> int:
        """Units that one thread does at a time, however many threads there are."""
        return max(1, min(self.units // 8, _PART * self.units // max(1, self.work)))


@dataclass(frozen=True)
class _Side:
    """What a plan needs to know of the planes that are read, and of the weights."""

    given: int
    channels: int
    spatial: tuple[int, int]
    across: int
    pitch: int
    cut: int
    before: tuple[int, int]
    reach: int
    ratio: int
    next_given: int
    next_channel: int


#: of a phase: its remainders, its sizes, and by dimension its taps: places in the copy, weights
_Phase = tuple[tuple[int, int], tuple[int, int], list[tuple[int, int]], list[tuple[int, int]]]


def takes(c: Convolution) -> bool:
    """Whether the loops here take a convolution, or the gradient of its input."""
    flat = c.kernel[0] == c.stride[0] == c.spatial[0] == c.out[0] == 1
    return (
        c.groups > 1
        and max(c.given, c.channels) <= _MOST
        and flat
        and max(c.stride) <= 2
        and c.kernel[1] * c.kernel[2] > 1
        and c.spatial[1] > 1
        and c.spatial[2] > 1
        and all(d == 1 or k == 1 for d, k in zip(c.dilation, c.kernel))
    )


def takes_weight_grad(c: Convolution) -> bool:
    """Whether they take the gradient of its weight, too.

    Of larger groups, the general loops multiply what they have read with several planes at once.
    """
    return takes(c) and c.given * c.channels <= _MOST


def _slides(
    c: Convolution,
    side: _Side,
    written: tuple[int, int],
    steps: tuple[int, int],
    found: list[_Phase],
    itemsize: int,
) -> Slides:
    line = _LINE // itemsize
    planes, across = side.given * side.cut, -(-written[1] // steps[1])
    pitch = side.pitch
    if side.ratio == 2 or pitch + across > line:  # there is but one row in a vector
        # What is copied begins with a line of the cache, and rows do not fall on few places in it.
        pitch = -(-pitch // line) * line
        pitch += line if pitch % (32 * line) == 0 else 0
    tall = -(-written[0] // steps[0])
    most = (_STRIP * line // (planes * pitch) - side.reach) // side.ratio + 1
    height = min(tall, max(most // _ROWS, 1) * _ROWS)
    rows = (height - 1) * side.ratio + side.reach
    # The even and the odd columns of a row begin with lines, too; none writes into the other.
    length = (rows * pitch // line + 2) * line + side.before[1] % side.cut
    size = -(-side.cut * length // line) * line
    phases: list[int] = []
    pairs: list[tuple[int, int]] = []
    work = 0
    for (ry, rx), (high, wide), down, aside in found:
        rise = next(n for n in _HEIGHTS if len(down) % n == 0) if down else 1
        apart = down[1][1] - down[0][1] if len(down) > 1 else 0
        phases += [ry, high, rx, rise, apart]
        for every in (rise, 1):
            first = len(pairs)
            for i, (y, ky), (x, kx) in product(range(side.given), down[::every], aside):
                # Of columns that are cut, the places count on from the even to the odd ones.
                place = i * size + x % side.cut * length + y * pitch + x // side.cut
                pairs.append((place, i * side.next_given + ky + kx))
            phases += [first, len(pairs) - first]
        phases.append(wide)
        work += (len(pairs) - first) * high * wide
    taps = prod(c.kernel)
    plan = [
        c.groups, side.given, side.channels, *side.spatial, side.across, pitch, length,
        side.cut, *side.before, *written, *steps, height, side.ratio, side.reach,
        c.channels * c.given * taps, side.next_channel, size,
    ]  # fmt: skip
    units = c.images * c.groups
    return Slides(
        np.array(plan, np.int64),
        np.array(phases, np.int64),
        np.array(pairs, np.int64).reshape(-1),
        units,
        units * side.channels * max(work, 1),
    )


@lru_cache(maxsize=256)
def forward_slides(c: Convolution, itemsize: int) -> Slides:
    """The plan of the convolution itself, and of the gradient of the weight.

    Args:
        itemsize: bytes of an element
    """
    _, high, wide = c.out
    _, kh, kw = c.kernel
    _, sh, sw = c.stride
    _, top, left = c.padding
    across = max(0, min(c.spatial[2], (wide - 1) * sw + kw - left))
    sides = {k % sw for k in range(kw)}
    pitch = overlapped((kw - 1) // sw, wide, across, sw, left, sides)
    taps = kh * kw
    side = _Side(
        c.given, c.channels, c.spatial[1:], across, pitch, sw, (top, left), kh, sh, taps,
        c.given * taps,
    )  # fmt: skip
    down, aside = [(k, k * kw) for k in range(kh)], [(k, k) for k in range(kw)]
    return _slides(c, side, (high, wide), (1, 1), [((0, 0), (high, wide), down, aside)], itemsize)


@lru_cache(maxsize=256)
def input_grad_slides(c: Convolution, itemsize: int) -> Slides:
    """The plan of the gradient of the input, or of a transposed convolution."""
    dimensions = [list(phases_of(c, i)) for i in (1, 2)]
    before, reaches = [], []
    for each in dimensions:
        shifts = [shift for _, _, taps in each for _, shift in taps]
        before.append(max(0, -min(shifts)))
        reaches.append(before[-1] + max(shifts))
    _, kh, kw = c.kernel
    _, high, wide = c.spatial
    broad = max(n for _, n, _ in dimensions[1])
    across = max(0, min(c.out[2], broad + reaches[1] - before[1]))
    pitch = overlapped(reaches[1], broad, across, 1, before[1], (0,))
    side = _Side(
        c.channels, c.given, c.out[1:], across, pitch, 1, (before[0], before[1]), reaches[0] + 1,
        1, c.given * kh * kw, kh * kw,
    )  # fmt: skip
    found = []
    for (ry, n, down), (rx, m, aside) in product(*dimensions):
        rows = sorted((shift + before[0], k * kw) for k, shift in down)
        found.append(((ry, rx), (n, m), rows, sorted((shift + before[1], k) for k, shift in aside)))
    return _slides(c, side, (high, wide), c.stride[1:], found, itemsize)


def correlate(
    slides: Slides,
    x: np.ndarray,
    weight: np.ndarray,
    bias: Any,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
) -> None:
    """``out`` as sums of windows of ``x``; ``run`` runs a loop, or keeps it to be run later."""
    if bias is None:
        bias = constant(int(slides.plan[0] * slides.plan[2]), out.dtype, 0)
    arguments = (x, weight, bias, out, slides.plan, slides.phases, slides.columns)
    run(_correlate, out.dtype, slides.work, slides.units, *arguments, grain=slides.grain)


def multiply(
    slides: Slides,
    grad: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
) -> None:
    """``out`` as the gradient of the weight, unless an element of it is not finite."""
    groups = int(slides.plan[0])
    images = slides.units // groups
    arguments = (grad, x, out, slides.plan, slides.phases, slides.columns, images)
    grain = max(1, min(groups // 8, _PART * groups // slides.work))
    run(_products, out.dtype, slides.work, groups, *arguments, grain=grain)


def _forward(c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    if not takes(c):
        return NotImplemented
    out = np.empty((c.images, c.groups * c.channels, *c.out[3 - ndim :]), x.dtype)
    correlate(forward_slides(c, x.itemsize), x, weight, bias, out)
    return out


def _backward(c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    if not takes(c):
        return NotImplemented
    out = np.empty((c.images, c.groups * c.given, *c.spatial[3 - ndim :]), grad.dtype)
    finite, tame = general.tamed(weight)
    correlate(input_grad_slides(c, grad.itemsize), grad, tame, bias, out)
    if not finite:
        general.add_special(c, grad, weight, out, ndim)
    return out


def _weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> Any:
    if not takes_weight_grad(c):
        return NotImplemented
    out = np.empty(shape, input.dtype)
    multiply(forward_slides(c, grad.itemsize), grad, input, out)
    return out if general.is_finite(out) else general.exact_weight_grad(c, grad, input, shape)


def _is_narrow(shape: Sequence[int], groups: int, x: Any, *others: Any) -> bool:
    return groups > 1 and len(shape) == 4 and shape[1] <= _MOST and x.dtype in FLOATS


def _accepts(x: Any, weight: Any, *options: Any) -> bool:
    return type(weight) is np.ndarray and _is_narrow(weight.shape, options[-1], x)


def _accepts_weight_grad(grad: Any, x: Any, shape: Any, *options: Any) -> bool:
    return _is_narrow(shape, options[-1], x)


KERNELS: dict[str, Callable[..., Any]] = general.forms_over(
    general.fit, _forward, _backward, _weight_grad
)
WHEN: dict[str, Callable[..., bool]] = {
    "convolution": _accepts,
    "conv_input_grad": _accepts,
    "conv_weight_grad": _accepts_weight_grad,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
