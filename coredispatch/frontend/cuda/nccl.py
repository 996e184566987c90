"""NCCL: not used."""

from __future__ import annotations

from typing import Any

__all__ = ["is_available", "version"]


def is_available(tensors: Any) -> bool:
    """False: NCCL is not used."""
    return False


def version() -> tuple[int, ...]:
    """Refused: NCCL is not used."""
    raise RuntimeError("cuda.nccl.version: NCCL is not used here")
