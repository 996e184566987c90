"""Where the parts of a tensor are."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Placement", "Replicate", "Shard"]


class Placement:
    """Base of the placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the ranks have parts (along `dim`)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether all ranks have all of it."""
        return isinstance(self, Replicate)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along `dim`."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """All ranks have all of it."""
