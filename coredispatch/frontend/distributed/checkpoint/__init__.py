"""Checkpoints written by all ranks, each its parts, and read by any number of them."""

from __future__ import annotations

from coredispatch.frontend.distributed.checkpoint import state_dict
from coredispatch.frontend.distributed.checkpoint.loading import load, read_into
from coredispatch.frontend.distributed.checkpoint.parts import CheckpointException, ShardedPart
from coredispatch.frontend.distributed.checkpoint.saving import save, write_metadata, write_part

__all__ = [
    "CheckpointException",
    "ShardedPart",
    "load",
    "read_into",
    "save",
    "state_dict",
    "write_metadata",
    "write_part",
]
