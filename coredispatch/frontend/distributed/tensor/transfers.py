"""Moving local parts from one layout to another, by collectives along the dimensions of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import all_gather, all_reduce, reduce_scatter
from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Replicate,
    Shard,
    chunk,
    division_order,
)

__all__ = ["moved"]

Placements = Sequence[Placement]


def moved(
    local: Any, shape: Sequence[int], mesh: Any, source: Placements, target: Placements
) -> Any:
    """This rank's part in the layout `target`; all ranks of the mesh call it.

    Args:
        local: its part in the layout `source`.
        shape: of the whole tensor.
    """
    if tuple(source) == tuple(target):
        return local
    if mesh.ndim == 1:
        return _step(local, shape, mesh, 0, source[0], target[0])
    # Parts of parts are joined from the inside out, then cut from the outside in.
    before, after, current = division_order(source), division_order(target), list(source)
    same = 0
    while before[same] == after[same] and source[before[same]] == target[after[same]]:
        same += 1
    for i in range(mesh.ndim - 1, same - 1, -1):
        dim = before[i]
        if source[dim] != target[dim] or isinstance(source[dim], Shard):
            seen = _seen(shape, mesh, current, before[:i])
            local = _step(local, seen, mesh, dim, current[dim], Replicate())
            current[dim] = Replicate()
    for i in range(same, mesh.ndim):
        dim = after[i]
        seen = _seen(shape, mesh, current, after[:i])
        local = _step(local, seen, mesh, dim, current[dim], target[dim])
        current[dim] = target[dim]
    return local


def _seen(
    shape: Sequence[int], mesh: Any, placements: Placements, outside: Sequence[int]
) -> list[int]:
    """The shape of what ranks have together that lie in one part of what `outside` divides."""
    sizes = list(shape)
    for outer in outside:
        placement = placements[outer]
        if isinstance(placement, Shard):
            begin, end = chunk(sizes[placement.dim], mesh.size(outer), mesh.get_local_rank(outer))
            sizes[placement.dim] = end - begin
    return sizes


def _step(
    local: Any, shape: Sequence[int], mesh: Any, dim: int, source: Placement, target: Placement
) -> Any:
    """One mesh dimension."""
    if source == target:
        return local
    group, size, rank = mesh.get_group(dim), mesh.size(dim), mesh.get_local_rank(dim)
    if isinstance(source, Partial):
        if isinstance(target, Shard):
            return _scattered(local, shape[target.dim], target.dim, source.reduce_op, group, rank)
        total = local.clone()
        all_reduce(total, source.reduce_op, group)
        return total if isinstance(target, Replicate) else _step(
            total, shape, mesh, dim, Replicate(), target
        )  # fmt: skip
    if isinstance(source, Shard):
        whole = _gathered(local, shape[source.dim], source.dim, group, size)
        return _step(whole, shape, mesh, dim, Replicate(), target)
    if isinstance(target, Shard):
        begin, end = chunk(shape[target.dim], size, rank)
        part = local.narrow(target.dim, begin, end - begin)
        # In memory of its own: whoever writes to the part leaves the whole alone.
        return part.clone() if part.is_contiguous() else part.contiguous()
    assert isinstance(target, Partial)
    if target.reduce_op == "sum" and rank:
        return cd.zeros_like(local)
    return local  # averages and extremes of equal values


def _gathered(local: Any, length: int, dim: int, group: Any, size: int) -> Any:
    first = local.movedim(dim, 0).contiguous()
    rest = tuple(first.shape[1:])
    out = []
    for rank in range(size):
        begin, end = chunk(length, size, rank)
        out.append(cd.empty((end - begin, *rest), dtype=local.dtype, device=local.device))
    all_gather(out, first, group)
    return cd.cat(out).movedim(0, dim).contiguous()


def _scattered(local: Any, length: int, dim: int, op: str, group: Any, rank: int) -> Any:
    first = local.movedim(dim, 0).contiguous()
    bounds = [chunk(length, group.size(), r) for r in range(group.size())]
    begin, end = bounds[rank]
    own = cd.empty((end - begin, *first.shape[1:]), dtype=local.dtype, device=local.device)
    reduce_scatter(own, [first[b:e].contiguous() for b, e in bounds], op, group)
    return own.movedim(0, dim).contiguous()
