"""What a checkpoint has, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import coredispatch as cd
from coredispatch.frontend.size import Size
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "TensorProperties",
    "TensorStorageMetadata",
]


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: where it begins, in each dimension, and how long it is there."""

    offsets: Size
    sizes: Size


@dataclass
class TensorProperties:
    """What the parts of a tensor have in common."""

    dtype: DType


@dataclass
class TensorStorageMetadata:
    """A tensor: its dtype, the size of the whole, and the parts that were written."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Something else than a tensor."""


@dataclass(frozen=True)
class MetadataIndex:
    """A name, and of a tensor which of its parts."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(default=None, compare=False)


@dataclass
class Metadata:
    """What a checkpoint has.

    Attributes:
        state_dict_metadata: name -> a tensor's :class:`TensorStorageMetadata`, or
            :class:`BytesStorageMetadata`. The keys of nested dicts are joined by dots.
        planner_data: name -> the keys that it is made of.
        storage_data: :class:`MetadataIndex` -> the file of the folder that has it.
    """

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: dict[str, tuple[str, ...]]
    storage_data: dict[MetadataIndex, str]


def metadata_of(entries: Mapping[str, Mapping[str, Any]]) -> Metadata:
    """The entries of ``metadata.json`` as a :class:`Metadata`."""
    found = Metadata({}, {}, {})
    for path, entry in entries.items():
        keys = tuple(path.split("/"))
        name = ".".join(keys)
        found.planner_data[name] = keys
        if "chunks" not in entry:
            found.state_dict_metadata[name] = BytesStorageMetadata()
            found.storage_data[MetadataIndex(name)] = entry["file"]
            continue
        chunks = [
            ChunkStorageMetadata(Size(chunk["offsets"]), Size(chunk["sizes"]))
            for chunk in entry["chunks"]
        ]
        dtype = getattr(cd, entry["dtype"])
        found.state_dict_metadata[name] = TensorStorageMetadata(
            TensorProperties(dtype), Size(entry["shape"]), chunks
        )
        for number, (chunk, where) in enumerate(zip(entry["chunks"], chunks, strict=True)):
            found.storage_data[MetadataIndex(name, where.offsets, number)] = chunk["file"]
    return found
