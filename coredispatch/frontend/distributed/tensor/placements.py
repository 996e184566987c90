"""Where the parts of a tensor are: one placement for each dimension of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "_StridedShard",
    "chunk",
    "division_order",
    "local_layout",
]


class Placement:
    """Base of the placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the ranks have parts (along `dim`)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether all ranks have all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the values are what a reduction over the ranks gives (by `reduce_op`)."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along `dim`, as ``chunk`` divides."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A part of what later dimensions of the mesh have divided along `dim` first.

    ``fully_shard`` over tensor parallelism makes it: what tensor parallelism gave a rank is divided
    once more, by a dimension of the mesh that stands in front. `split_factor` says into how many
    parts it was divided before.
    """

    split_factor: int = field(kw_only=True)

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """All ranks have all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """The tensor is the sum (the average, minimum, maximum) of what the ranks have."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def chunk(length: int, parts: int, index: int) -> tuple[int, int]:
    """Where part `index` of `parts` begins and ends, as ``chunk`` divides."""
    size = -(-length // parts)
    return min(index * size, length), min((index + 1) * size, length)


def division_order(placements: Sequence[Placement]) -> list[int]:
    """The dimensions of a mesh in the order in which they divide a tensor: strided ones last."""
    dims = range(len(placements))
    return sorted(dims, key=lambda dim: isinstance(placements[dim], _StridedShard))


def local_layout(
    shape: Sequence[int], mesh: Any, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's part of a tensor, and where the part begins."""
    sizes, offsets = list(shape), [0] * len(shape)
    for mesh_dim in division_order(placements):
        placement = placements[mesh_dim]
        if isinstance(placement, Shard):
            dim = placement.dim
            begin, end = chunk(sizes[dim], mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim))
            sizes[dim], offsets[dim] = end - begin, offsets[dim] + begin
    return tuple(sizes), tuple(offsets)
