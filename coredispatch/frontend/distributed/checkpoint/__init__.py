"""Checkpoints written by all ranks, each its parts, and read by any number of them."""

from __future__ import annotations

from coredispatch.frontend.distributed.checkpoint import (
    format_utils,
    metadata,
    state_dict,
    stateful,
)
from coredispatch.frontend.distributed.checkpoint.loading import load, read_into
from coredispatch.frontend.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from coredispatch.frontend.distributed.checkpoint.parts import CheckpointException, ShardedPart
from coredispatch.frontend.distributed.checkpoint.saving import (
    async_save,
    save,
    write_metadata,
    write_part,
)
from coredispatch.frontend.distributed.checkpoint.storage import FileSystemReader, FileSystemWriter

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "FileSystemReader",
    "FileSystemWriter",
    "Metadata",
    "ShardedPart",
    "TensorStorageMetadata",
    "async_save",
    "format_utils",
    "load",
    "metadata",
    "read_into",
    "save",
    "state_dict",
    "stateful",
    "write_metadata",
    "write_part",
]
