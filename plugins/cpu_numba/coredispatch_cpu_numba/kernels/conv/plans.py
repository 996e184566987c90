"""What the loops of ``loops/conv/general.py`` need to know about one shape of convolution.

A plan is made once for each shape and kept. Everything has three spatial dimensions here; missing
ones come first and have size 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

__all__ = [
    "Convolution",
    "Plan",
    "forward_plan",
    "input_grad_plans",
    "overlapped",
    "phases_of",
    "weight_grad_plan",
]

Three = tuple[int, int, int]

_POSITIONS = 1024  # of a chunk, whose results stay in the first cache
_CHUNK = 1 << 17  # elements of the planes of a chunk, which stay in the second one
_SCRATCH = 1 << 17  # elements of the planes of one block of images
_BLOCKS = 16  # at most this many sums of weight gradients are added up in the end
_TAPS_OF_A_TILE = 12  # a multiple of those of each tile of scalar products
_OVERREAD = 256  # positions that a tile may read beyond the last one


@dataclass(frozen=True)
class Convolution:
    """The shapes and options of a convolution from ``given`` to ``out``.

    Args:
        images: the size of the batch
        groups: how many groups of channels there are
        given: input channels of a group
        channels: output channels of a group
        spatial: spatial sizes of the input
        out: spatial sizes of the output
        kernel, stride, padding, dilation: as the operator has them
    """

    images: int
    groups: int
    given: int
    channels: int
    spatial: Three
    out: Three
    kernel: Three
    stride: Three
    padding: Three
    dilation: Three


@dataclass(frozen=True)
class Plan:
    """Arrays that a loop reads, and how much work there is.

    Args:
        source: where the planes come from: channels, sizes, sizes of a plane, steps, padding
        phases: the remainder of every phase in each dimension
        taps: where the plane of each tap starts
        weights: where the weight of each tap lies
        target: what is written where; see the loops
        units: pieces of work
        work: multiplications
        blocks: of images, each with sums of its own that are added up in the end
    """

    source: np.ndarray
    phases: np.ndarray
    taps: np.ndarray
    weights: np.ndarray
    target: np.ndarray
    units: int
    work: int
    blocks: int = 1


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _room(images: int, plane: int, planes: int, blocks: int) -> int:
    """Images of a block: enough positions for long vectors, few enough for the cache."""
    wanted = -(-_POSITIONS // plane)
    most = max(1, _SCRATCH // max(1, plane * planes))
    room = max(1, min(images // blocks, wanted, most))
    return -(-images // -(-images // room))  # blocks of nearly the same size


def _height(pitch: int, rows: int, planes: int) -> int:
    """Rows of a chunk, so that the positions of a chunk nearly fill its tiles of 48."""
    most = max(1, min(rows, _POSITIONS // pitch, _CHUNK // (pitch * planes)))
    waste = {n: -(-n * pitch // 48) * 48 / (n * pitch) for n in range((most + 1) // 2, most + 1)}
    return min(waste, key=lambda n: (waste[n], -n))


@dataclass(frozen=True)
class _Planes:
    """The planes of one channel: their sizes, phases, and where each tap starts."""

    sizes: Three
    phases: list[Three]
    starts: list[tuple[int, int]]  # phase and position, by kernel position

    @property
    def plane(self) -> int:
        return prod(self.sizes)


def _place(offset: Sequence[int], sizes: Three) -> int:
    return (offset[0] * sizes[1] + offset[1]) * sizes[2] + offset[2]


def overlapped(
    reach: int, out: int, given: int, step: int, before: int, remainders: Iterable[int]
) -> int:
    """The size of a plane whose zeros behind the elements are those in front of the next row.

    What is read from it has ``out + reach`` positions, of which position ``j`` of the phase of a
    remainder is element ``j step + remainder - before`` of ``given`` ones, or 0 where there is no
    such element. What is computed is ``out`` long, and what is computed between is thrown away.
    """
    needed = out + reach
    ends, leads = [out], []
    for r in remainders:
        leads.append(max(0, -((r - before) // step)))
        ends.append(min(needed, -((r - before - given) // step)))
    return max(*ends, needed - min(leads))


def _forward_planes(c: Convolution) -> _Planes:
    moved = [[k * d for k in range(n)] for n, d in zip(c.kernel, c.dilation)]
    sizes: Three = tuple(  # type: ignore[assignment]
        overlapped(m[-1] // s, o, n, s, p, {k % s for k in m})
        for m, o, n, s, p in zip(moved, c.out, c.spatial, c.stride, c.padding)
    )
    phases: list[Three] = []
    starts = []
    for position in product(*moved):
        phase: Three = tuple(m % s for m, s in zip(position, c.stride))  # type: ignore[assignment]
        if phase not in phases:
            phases.append(phase)
        offset = [m // s for m, s in zip(position, c.stride)]
        starts.append((phases.index(phase), _place(offset, sizes)))
    return _Planes(sizes, phases, starts)


def _length(planes: _Planes, room: int) -> int:
    """Elements from one channel to the next: an odd number of cache lines.

    At a distance of 4096 bytes, all channels would compete for a few places in the cache: 64
    channels of 1024 positions take 1.4 times longer.
    """
    return room * planes.plane // 32 * 32 + 48


def _taps(planes: _Planes, channels: int, room: int) -> np.ndarray:
    """Where each tap starts, the kernel positions of a channel side by side."""
    length = _length(planes, room)
    phase, place = _ints(planes.starts).reshape(-1, 2).T
    channel = np.arange(channels, dtype=np.int64)[:, None] * len(planes.phases)
    return np.ascontiguousarray(((channel + phase) * length + place).reshape(-1))


def _source(
    channels: int, spatial: Three, planes: _Planes, step: Three, before: Three, room: int
) -> np.ndarray:
    return _ints([channels, *spatial, *planes.sizes, *step, *before, _length(planes, room)])


def _slack(planes: _Planes) -> int:
    return _OVERREAD + max((place for _, place in planes.starts), default=0)


def _parts(channels: int, units: int, threads: int) -> int:
    """Parts of the output channels, so that threads find enough to do.

    Each part lays out all planes anew, which one thread does for nothing.
    """
    wanted = 1 if threads == 1 else 2 * threads
    return max(1, min(channels // 32, wanted // units))


def _shared(
    c: Convolution, planes: _Planes, given: int, channels: int, threads: int
) -> tuple[int, int, int]:
    """Images of a block, parts of the output channels, rows of a chunk."""
    room = _room(c.images, planes.plane, given * len(planes.phases), min(c.images, 4))
    blocks = -(-c.images // room)
    parts = _parts(channels, blocks * c.groups, threads)
    pd, ph, pw = planes.sizes
    return room, parts, _height(pw, room * pd * ph, given * len(planes.phases))


@lru_cache(maxsize=256)
def forward_plan(c: Convolution, threads: int) -> Plan:
    """The plan of the convolution itself."""
    planes = _forward_planes(c)
    room, parts, height = _shared(c, planes, c.given, c.channels, threads)
    taps = _taps(planes, c.given, room)
    target = [c.images, c.groups, c.given, c.channels, room, parts, height]
    target += [*c.out, *c.out, 1, 1, 1, 0, 0, 0, _slack(planes)]
    return Plan(
        _source(c.given * c.groups, c.spatial, planes, c.stride, c.padding, room),
        _ints(planes.phases).reshape(-1),
        taps,
        np.arange(len(taps), dtype=np.int64),
        _ints(target),
        -(-c.images // room) * c.groups * parts,
        c.images * prod(c.out) * c.groups * c.channels * len(taps),
    )


def phases_of(c: Convolution, i: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Phases of dimension ``i`` of the input: remainder, size, and ``(tap, shift)`` of its taps.

    Position ``r + s j`` of the input meets tap ``k`` at position ``j + shift`` of the output.
    """
    s, p, d = c.stride[i], c.padding[i], c.dilation[i]
    for r in range(min(s, c.spatial[i])):
        moved = ((k, r + p - k * d) for k in range(c.kernel[i]))
        yield r, -(-(c.spatial[i] - r) // s), [(k, m // s) for k, m in moved if m % s == 0]


@lru_cache(maxsize=256)
def input_grad_plans(c: Convolution, threads: int) -> tuple[Plan, ...]:
    """One plan for each phase of the input: sums of moved planes of the output's gradient."""
    plans = []
    for phase in product(*(list(phases_of(c, i)) for i in range(3))):
        remainder, size, found = zip(*phase)
        lowest = [min((shift for _, shift in taps), default=0) for taps in found]
        highest = [max((shift for _, shift in taps), default=0) for taps in found]
        before: Three = tuple(-low for low in lowest)  # type: ignore[assignment]
        sizes: Three = tuple(  # type: ignore[assignment]
            overlapped(high - low, n, out, 1, -low, (0,))
            for high, low, n, out in zip(highest, lowest, size, c.out)
        )
        starts, positions = [], []
        for taps in product(*found):
            starts.append((0, _place([t[1] - low for t, low in zip(taps, lowest)], sizes)))
            positions.append(_place([t[0] for t in taps], c.kernel))
        planes = _Planes(sizes, [(0, 0, 0)], starts)
        room, parts, height = _shared(c, planes, c.channels, c.given, threads)
        row = c.given * prod(c.kernel)
        weights = np.arange(c.channels, dtype=np.int64)[:, None] * row + _ints(positions)
        target = [c.images, c.groups, c.channels, c.given, room, parts, height, *size]
        target += [*c.spatial, *c.stride, *remainder, _slack(planes)]
        plans.append(
            Plan(
                _source(c.channels * c.groups, c.out, planes, (1, 1, 1), before, room),
                np.zeros(3, np.int64),
                _taps(planes, c.channels, room),
                np.ascontiguousarray(weights.reshape(-1)),
                _ints(target),
                -(-c.images // room) * c.groups * parts,
                c.images * prod(size) * c.groups * c.given * weights.size,
            )
        )
    return tuple(plans)


@lru_cache(maxsize=256)
def weight_grad_plan(c: Convolution, exact: bool, threads: int, whole: bool = False) -> Plan:
    """The plan of the weight's gradient: scalar products that are as long as a block of images.

    Each ends in a sum across a vector, so they should be long. The planes of so many images lie in
    the second cache for some input channels at a time (*whole*: for all of them at once).
    """
    planes = _forward_planes(c)
    phases = len(planes.phases)
    room = _room(c.images, planes.plane, c.given * phases if whole else 1, 1)
    room = max(room, -(-c.images // _BLOCKS))
    blocks = -(-c.images // room)
    chunk, parts = c.given, 1
    if not whole:
        most = _SCRATCH // (room * planes.plane * phases)
        if most < c.given:
            chunk = max(most // _TAPS_OF_A_TILE, 1) * _TAPS_OF_A_TILE
        parts = _parts(c.channels, blocks * c.groups, threads)
    taps = _taps(planes, c.given, room)
    count = len(taps)
    target = [c.images, c.groups, c.given, c.channels, room, int(exact), count, *c.out]
    target += [*c.out, 1, 1, 1, 0, 0, 0, _slack(planes), chunk, parts]
    return Plan(
        _source(c.given * c.groups, c.spatial, planes, c.stride, c.padding, room),
        _ints(planes.phases).reshape(-1),
        np.append(taps, np.repeat(taps[-1:], _TAPS_OF_A_TILE)),  # the last tile may go on
        np.arange(count, dtype=np.int64),
        _ints(target),
        blocks * c.groups * parts,
        c.images * prod(c.out) * c.groups * c.channels * count,
        blocks,
    )
