"""A checkpoint in parts as one file, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.checkpoint.loading import read_whole
from coredispatch.frontend.distributed.checkpoint.saving import save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Write the whole tensors of a checkpoint in parts to one file, for ``cd.load``."""
    cd.save(read_whole(Path(dcp_checkpoint_dir)), Path(torch_save_path))


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Write what ``cd.load`` reads as a checkpoint that any number of ranks reads."""
    content: Any = cd.load(Path(torch_save_path), weights_only=False)
    save(content, checkpoint_id=dcp_checkpoint_dir, no_dist=True)
