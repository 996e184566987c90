"""What a rank has of a tensor, and how a checkpoint names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.distributed.tensor.placements import local_layout
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import OpError

__all__ = ["CheckpointException", "ShardedPart", "first_copy", "flattened", "part_of"]

#: the file that is written last: a folder without it is no checkpoint
METADATA = "metadata.json"


class CheckpointException(OpError):
    """A checkpoint could not be written or read; names the ranks and what happened there."""

    __module__ = "coredispatch.distributed.checkpoint"


@dataclass
class ShardedPart:
    """A block of a tensor that lies on several ranks.

    Attributes:
        tensor: this rank's block.
        global_shape: of the whole tensor.
        offsets: where the block begins, in each dimension.
    """

    tensor: Tensor
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...]


def part_of(value: Any) -> Any:
    """A DTensor as what this rank has of it; anything else as it is.

    Raises CheckpointException for a partial sum.
    """
    if not isinstance(value, DTensor):
        return value
    if any(p.is_partial() for p in value.placements):
        raise CheckpointException(
            f"a DTensor of placements {value.placements} is no tensor yet",
            fix="redistribute it, or full_tensor()",
        )
    _, offsets = local_layout(value.shape, value.device_mesh, value.placements)
    return ShardedPart(value._local_tensor, tuple(value.shape), offsets)


def first_copy(value: Any) -> bool:
    """Whether this rank writes its part: of copies the first one does."""
    if not isinstance(value, DTensor):
        return True
    mesh = value.device_mesh
    return not any(
        p.is_replicate() and mesh.get_local_rank(dim) for dim, p in enumerate(value.placements)
    )


def flattened(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any, Any]]:
    """``(name, value, holder, key)`` of the leaves of nested dicts and lists."""
    items: Any = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        where = (*path, str(key))
        if isinstance(value, dict) or (
            isinstance(value, list) and any(isinstance(v, (Tensor, ShardedPart)) for v in value)
        ):
            yield from flattened(value, where)
        else:
            yield "/".join(where), value, state, key
