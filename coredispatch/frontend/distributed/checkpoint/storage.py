"""Where a checkpoint is, as PyTorch's readers and writers say it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from coredispatch.frontend.distributed.checkpoint.metadata import Metadata, metadata_of
from coredispatch.frontend.distributed.checkpoint.stateful import Stateful

__all__ = ["FileSystemReader", "FileSystemWriter", "folder_of", "states_of"]


class FileSystemReader:
    """A folder to read from."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def checkpoint_id(self) -> Path:
        """The folder."""
        return self.path

    def read_metadata(self) -> Metadata:
        """What the checkpoint has. CheckpointException where there is none."""
        from coredispatch.frontend.distributed.checkpoint.loading import read_metadata

        return metadata_of(read_metadata(self.path)["entries"])


class FileSystemWriter(FileSystemReader):
    """A folder to write to; each rank writes one file.

    With ``overwrite=False`` a checkpoint that is there is kept: ``save`` raises. The other
    arguments are PyTorch's and make no difference.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        super().__init__(path)
        self.overwrite = overwrite


def folder_of(checkpoint_id: Any, storage: Any) -> Path:
    """The folder that one of the two names. RuntimeError where neither or another storage does."""
    if storage is not None:
        if not isinstance(storage, FileSystemReader):
            raise NotImplementedError(
                f"a checkpoint in a {type(storage).__name__} is not there\n"
                "  fix: use FileSystemWriter and FileSystemReader"
            )
        return storage.path
    if checkpoint_id is None:
        raise RuntimeError("The checkpoint_id must be specified for FileSystemWriter/Reader.\n"
                           "  fix: checkpoint_id='folder'")  # fmt: skip
    return Path(checkpoint_id)


def states_of(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The values, with the states of those that have one."""
    return {
        name: value.state_dict()
        if isinstance(value, Stateful) and not isinstance(value, dict)
        else value
        for name, value in state_dict.items()
    }
