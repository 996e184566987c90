"""Reading a checkpoint into tensors and parts, whatever parts it was written in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.checkpoint.parts import (
    METADATA,
    CheckpointException,
    ShardedPart,
    flattened,
    part_of,
)
from coredispatch.frontend.distributed.checkpoint.stateful import Stateful
from coredispatch.frontend.distributed.checkpoint.storage import folder_of, states_of
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["load", "read_into", "read_metadata", "read_whole"]


class _Files:
    """The ranks' files, each read once and kept while it is the last one used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._content: Any = {}

    def __getitem__(self, name: str) -> Any:
        if name != self._name:
            self._name, self._content = name, cd.load(self._folder / name)
        return self._content


def read_metadata(folder: Path) -> dict[str, Any]:
    """What ``metadata.json`` of a checkpoint says, and its folder."""
    old = folder.with_name(folder.name + ".old")
    for place in (folder, old):  # the old one: the process ended between two renames
        if (place / METADATA).exists():
            found = json.loads((place / METADATA).read_text())
            found["folder"] = place
            return dict(found)
    raise CheckpointException(
        f"there is no checkpoint in {str(folder)!r}: it has no {METADATA}",
        fix="name the folder that checkpoint.save() was given",
    )


def read_into(folder: str | os.PathLike[str], state_dict: dict[str, Any]) -> None:
    """Fill the tensors and parts of `state_dict`, and replace its other values.

    Raises CheckpointException for a name that is not there, or has another shape.
    """
    metadata = read_metadata(Path(folder))
    entries, files = metadata["entries"], _Files(metadata["folder"])
    wanted = []
    for name, given, holder, key in list(flattened(state_dict)):
        value = part_of(given)
        entry = entries.get(name)
        if entry is None:
            if isinstance(value, ShardedPart) and not value.tensor.numel():
                continue
            raise CheckpointException(
                f"the checkpoint has no {name!r}", fix=f"it has {', '.join(list(entries)[:8])}"
            )
        if "chunks" in entry:
            if not isinstance(value, (Tensor, ShardedPart)):
                value = cd.empty(entry["shape"], dtype=getattr(cd, entry["dtype"]))
                holder[key] = value
            part = (
                ShardedPart(value, tuple(value.shape), (0,) * value.ndim)
                if isinstance(value, Tensor)
                else value
            )
            if tuple(part.global_shape) != tuple(entry["shape"]):
                raise CheckpointException(
                    f"{name!r} is {tuple(entry['shape'])} in the checkpoint and "
                    f"{tuple(part.global_shape)} here"
                )
            wanted += [(chunk["file"], name, chunk, part) for chunk in entry["chunks"]]
        else:
            holder[key] = files[entry["file"]][name]
    with no_grad():
        for file, name, chunk, part in sorted(wanted, key=lambda item: item[0]):
            _copy(files, file, name, chunk, part)


def _copy(files: _Files, file: str, name: str, chunk: Any, part: ShardedPart) -> None:
    """Copy what the chunk and the part have in common."""
    here, there = [], []
    for begin, size, offset, length in zip(
        chunk["offsets"], chunk["sizes"], part.offsets, part.tensor.shape, strict=True
    ):
        first, last = max(begin, offset), min(begin + size, offset + length)
        if first >= last:
            return
        there.append(slice(first - begin, last - begin))
        here.append(slice(first - offset, last - offset))
    source = files[file][name]
    if not here:
        part.tensor.copy_(source)
    else:
        part.tensor[tuple(here)] = source[tuple(there)].to(part.tensor.dtype)


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill `state_dict` from a checkpoint, in place; it may have been written by other ranks.

    Each rank reads what it needs. Objects with ``state_dict()`` get what was read by
    ``load_state_dict()``. `storage_reader` is a :class:`FileSystemReader`, instead of
    `checkpoint_id`. Raises CheckpointException where the checkpoint has not what
    `state_dict` names.
    """
    if planner is not None:
        raise NotImplementedError("checkpoint.load(planner=) is not there\n  fix: leave it out")
    states = states_of(state_dict)
    read_into(folder_of(checkpoint_id, storage_reader), states)
    for name, value in states.items():
        if isinstance(state_dict[name], Stateful) and not isinstance(state_dict[name], dict):
            state_dict[name].load_state_dict(value)
        else:
            state_dict[name] = value


def read_whole(folder: Path) -> dict[str, Any]:
    """All that a checkpoint has, tensors whole, in nested dicts."""
    metadata = read_metadata(folder)
    state: dict[str, Any] = {}
    for name in metadata["entries"]:
        *path, last = name.split("/")
        holder = state
        for key in path:
            holder = holder.setdefault(key, {})
        holder[last] = None
    read_into(folder, state)
    return state
