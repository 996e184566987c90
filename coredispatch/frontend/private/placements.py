"""How a tensor lies on several devices, in PyTorch's words: ``distributed.tensor.Shard``.

They are descriptions that libraries put into tables. Tensors that lie so are not there yet.
"""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What one device has of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each has a slice, along ``dim`` where it is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the tensor is what a reduction over the devices gives."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclasses.dataclass(frozen=True)
class Shard(Placement):
    """Each device has a slice along ``dim``."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclasses.dataclass(frozen=True)
class Replicate(Placement):
    """Each device has the whole."""

    def __str__(self) -> str:
        return "R"


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """The tensor is what ``reduce_op`` over the devices gives."""

    reduce_op: Any = "sum"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
