"""Several tensors in one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import broadcast
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["broadcast_all"]

_LIMIT = 250 * 1024 * 1024


def broadcast_all(tensors: Sequence[Tensor], group: ProcessGroup, src: int) -> None:
    """Copy the tensors of rank `src` of the group to all ranks, in place."""
    if group.size() == 1:
        return
    by_kind: dict[Any, list[list[Tensor]]] = {}
    for tensor in tensors:
        batches = by_kind.setdefault((tensor.dtype, tensor.device), [[]])
        held = sum(t.numel() * t.element_size() for t in batches[-1])
        if batches[-1] and held + tensor.numel() * tensor.element_size() > _LIMIT:
            batches.append([])
        batches[-1].append(tensor.detach())
    with no_grad():
        for batches in by_kind.values():
            for batch in batches:
                _broadcast_batch(batch, group, src)


def _broadcast_batch(batch: list[Tensor], group: Any, src: int) -> None:
    flat = cd.cat([tensor.reshape(-1) for tensor in batch])
    broadcast(flat, group=group, group_src=src)
    if group.rank() != src:
        parts = flat.split([tensor.numel() for tensor in batch])
        for tensor, part in zip(batch, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))
