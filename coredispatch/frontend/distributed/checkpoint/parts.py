"""What a rank has of a tensor, and how a checkpoint names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import OpError

__all__ = ["CheckpointException", "ShardedPart", "flattened", "part_of"]

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


def part_of(param: Any, tensor: Any) -> Any:
    """`tensor`, which has the shape of the parameter, as a part where the parameter is one."""
    shard = getattr(param, "shard", None)
    if shard is None or tuple(tensor.shape) != tuple(param.shape):
        return tensor
    return ShardedPart(tensor, *shard)


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
