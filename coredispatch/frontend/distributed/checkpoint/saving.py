"""Writing a checkpoint: a file for each rank, then the metadata, then the name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.checkpoint.metadata import Metadata, metadata_of
from coredispatch.frontend.distributed.checkpoint.parts import (
    METADATA,
    CheckpointException,
    ShardedPart,
    first_copy,
    flattened,
    part_of,
)
from coredispatch.frontend.distributed.checkpoint.storage import folder_of, states_of
from coredispatch.frontend.distributed.groups import is_initialized, resolved
from coredispatch.frontend.distributed.objects import all_gather_object
from coredispatch.frontend.tensor import Tensor

__all__ = ["async_save", "save", "write_metadata", "write_part"]

Entries = dict[str, dict[str, Any]]


def write_part(folder: str | os.PathLike[str], rank: int, state_dict: dict[str, Any]) -> Entries:
    """Write what `rank` contributes to a checkpoint; what the metadata has to say of it.

    Parts are written by every rank that has some, everything else by rank 0.
    """
    entries: Entries = {}
    content: dict[str, Any] = {}
    file = f"{rank:06d}.cd"
    for name, given, _, _ in flattened(state_dict):
        value = part_of(given)
        if isinstance(value, ShardedPart):
            entries[name] = {
                "shape": tuple(value.global_shape),
                "dtype": value.tensor.dtype.name,
                "chunks": [],
            }
            if not value.tensor.numel() or not first_copy(given):
                continue
            chunk = {"file": file, "offsets": value.offsets, "sizes": tuple(value.tensor.shape)}
            entries[name]["chunks"].append(chunk)
            content[name] = value.tensor.detach()
        elif rank == 0:
            content[name] = value.detach() if isinstance(value, Tensor) else value
            entries[name] = {"file": file}
            if isinstance(value, Tensor):
                chunk = {"file": file, "offsets": (0,) * value.ndim, "sizes": tuple(value.shape)}
                entries[name] = {
                    "shape": tuple(value.shape),
                    "dtype": value.dtype.name,
                    "chunks": [chunk],
                }
    if content:
        cd.save(content, Path(folder) / file)
    return entries


def write_metadata(folder: str | os.PathLike[str], every: Sequence[Entries]) -> Entries:
    """Join what the ranks wrote; the entries of the checkpoint.

    Raises CheckpointException where parts are missing or disagree.
    """
    joined: Entries = {}
    for rank, entries in enumerate(every):
        for name, entry in entries.items():
            known = joined.get(name)
            if known is None:
                joined[name] = (
                    {**entry, "chunks": list(entry["chunks"])} if "chunks" in entry else entry
                )
                continue
            if tuple(known["shape"]) != tuple(entry["shape"]) or known["dtype"] != entry["dtype"]:
                raise CheckpointException(
                    f"rank {rank} has a part of {name!r} {entry['shape']} {entry['dtype']}, other "
                    f"ranks of one {known['shape']} {known['dtype']}",
                    fix="save the same model on all ranks",
                )
            known["chunks"] += _new_chunks(known["chunks"], entry["chunks"])
    for name, entry in joined.items():
        if "chunks" in entry:
            held = sum(_elements(chunk["sizes"]) for chunk in entry["chunks"])
            if held != _elements(entry["shape"]):
                raise CheckpointException(
                    f"{name!r} has {_elements(entry['shape'])} elements, and the ranks have parts "
                    f"of {held} in all",
                    fix="all ranks of the group must save their parts, which must not overlap",
                )
    path = Path(folder) / METADATA
    path.write_text(json.dumps({"version": 1, "entries": joined}))
    return joined


def _new_chunks(known: list[Any], more: list[Any]) -> list[Any]:
    """Those that no other rank has: replicas are kept once."""
    present = {tuple(chunk["offsets"]) for chunk in known}
    return [chunk for chunk in more if tuple(chunk["offsets"]) not in present]


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Write a checkpoint into the folder `checkpoint_id`; all ranks call it.

    It appears under its name when all of it is written: a rank that dies, or a disk that is full,
    leaves the checkpoint that was there.

    Args:
        state_dict: nested dicts of tensors, DTensors, :class:`ShardedPart` and what ``cd.save``
            takes; or objects with ``state_dict()``. See ``checkpoint.state_dict`` for those of
            models and optimizers.
        storage_writer: a :class:`FileSystemWriter`, instead of `checkpoint_id`.
        process_group: the ranks; the default group, or this process alone where there is none.
        no_dist: this process alone.
        use_collectives: accepted; the ranks agree on every checkpoint.

    Returns:
        What the checkpoint has: names, shapes, dtypes and parts, on all ranks.

    Raises:
        CheckpointException: on all ranks, when one could not write, or when there is a checkpoint
            that the `storage_writer` is not to overwrite.
    """
    if planner is not None:
        raise NotImplementedError("checkpoint.save(planner=) is not there\n  fix: leave it out")
    state_dict = states_of(state_dict)
    group = None if no_dist or not is_initialized() else resolved(process_group)
    rank = 0 if group is None else group.rank()
    target = folder_of(checkpoint_id, storage_writer)
    part = target.with_name(target.name + ".part")
    failure: str | None = None
    if rank == 0:
        if not getattr(storage_writer, "overwrite", True) and (target / METADATA).exists():
            failure = f"Checkpoint already exists in {str(target)!r} and overwrite=False."
        else:
            failure = _attempt(lambda: _clear(part))
    try:
        _agree([failure], target, group)
        entries: Entries = {}
        try:
            entries = write_part(part, rank, state_dict)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        every = _agree([failure, entries], target, group)
        joined: Entries = {}
        if rank == 0:
            failure = _attempt(
                lambda: joined.update(_publish(part, target, [found[1] for found in every]))
            )
        first = _agree([failure, joined], target, group)[0]
        return metadata_of(first[1])
    except CheckpointException:
        if rank == 0:  # all ranks know of it: none writes there any more
            shutil.rmtree(part, ignore_errors=True)
        raise


def async_save(state_dict: dict[str, Any], **options: Any) -> Future[Metadata]:
    """:func:`save`, with a Future of its end.

    It is written before this returns: the collectives of a second thread would meet the program's.
    """
    done: Future[Metadata] = Future()
    try:
        done.set_result(save(state_dict, **options))
    except CheckpointException as error:
        done.set_exception(error)
    return done


def _attempt(act: Any) -> str | None:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _clear(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)


def _publish(part: Path, target: Path, every: list[Entries]) -> Entries:
    joined = write_metadata(part, every)
    old = target.with_name(target.name + ".old")
    if target.exists():  # else the old one is all there is: a rank was lost just here
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return joined


def _agree(found: list[Any], target: Path, group: Any) -> list[Any]:
    """What all ranks found. Raises on all of them where one failed."""
    every: list[Any] = [found]
    if group is not None:
        every = [None] * group.size()
        all_gather_object(every, found, group=group)
    failed = [(rank, other[0]) for rank, other in enumerate(every) if other[0] is not None]
    if failed:
        text = "; ".join(f"rank {rank}: {why}" for rank, why in failed[:3])
        raise CheckpointException(
            f"the checkpoint {str(target)!r} was not written: {text}",
            fix="free space or choose another folder; the last checkpoint is as it was",
        )
    return every
