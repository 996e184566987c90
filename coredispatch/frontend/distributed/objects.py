"""Collectives of Python objects. They travel pickled, between processes that trust each other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import (
    _members_only,
    all_gather,
    broadcast,
    gather,
    root,
    scatter,
)
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.point_to_point import recv, send
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import ArgumentError

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]


def packed(value: Any) -> Tensor:
    """An object as bytes."""
    return cd.from_numpy(np.frombuffer(bytearray(pickle.dumps(value)), np.uint8))


def unpacked(data: Tensor) -> Any:
    """The object that :func:`packed` was given."""
    return pickle.loads(data.numpy().tobytes())


def _room(lengths: Any) -> list[Tensor]:
    return [cd.empty(int(n), dtype=cd.uint8) for n in lengths]


def _lengths(own: int, group: Any) -> list[int]:
    sizes = [cd.empty(1, dtype=cd.int64) for _ in range(group.size())]
    all_gather(sizes, cd.tensor([own], dtype=cd.int64), group)
    return [int(size) for size in sizes]


def _check_list(name: str, what: str, value: Any, size: int) -> None:
    if not isinstance(value, list) or len(value) != size:
        length = f" of {len(value)}" if isinstance(value, list) else ""
        raise ArgumentError(
            f"{name}: {what} is a {type(value).__name__}{length}, where a list of {size} is needed",
            fix=f"pass [None] * {size}",
        )


@_members_only
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Fill `object_list` with `obj` of all ranks."""
    found = resolved(group)
    _check_list("all_gather_object", "object_list", object_list, found.size())
    data = packed(obj)
    outputs = _room(_lengths(data.numel(), found))
    all_gather(outputs, data, found)
    object_list[:] = [unpacked(output) for output in outputs]


@_members_only
def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Fill `object_gather_list` of rank `dst` (0) with `obj` of all ranks."""
    found = resolved(group)
    target = root("gather_object", "dst", 0 if dst is group_dst is None else dst, group_dst, found)
    mine = found.rank() == target
    if mine:
        _check_list("gather_object", "object_gather_list", object_gather_list, found.size())
    elif object_gather_list:
        raise ValueError(
            "Argument ``object_gather_list`` must NOT be specified on non-destination ranks."
        )
    data = packed(obj)
    lengths = _lengths(data.numel(), found)
    outputs = _room(lengths) if mine else None
    gather(data, outputs, group=found, group_dst=target)
    if outputs is not None and object_gather_list is not None:
        object_gather_list[:] = [unpacked(output) for output in outputs]


@_members_only
def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replace the objects of the list by those of rank `src` (0)."""
    found = resolved(group)
    start = 0 if src is group_src is None else src
    source = root("broadcast_object_list", "src", start, group_src, found)
    mine = found.rank() == source
    data = packed(list(object_list)) if mine else cd.empty(0, dtype=cd.uint8)
    length = cd.tensor([data.numel()], dtype=cd.int64)
    broadcast(length, group=found, group_src=source)
    if not mine:
        data = cd.empty(int(length), dtype=cd.uint8)
    broadcast(data, group=found, group_src=source)
    if not mine:
        values = unpacked(data)
        _check_list("broadcast_object_list", "object_list", object_list, len(values))
        object_list[:] = values


@_members_only
def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Put ``scatter_object_input_list[r]`` of rank `src` (0) first in rank r's output list."""
    found = resolved(group)
    start = 0 if src is group_src is None else src
    source = root("scatter_object_list", "src", start, group_src, found)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    mine = found.rank() == source
    lengths = cd.empty(found.size(), dtype=cd.int64)
    parts = None
    if mine:
        values = scatter_object_input_list
        _check_list("scatter_object_list", "scatter_object_input_list", values, found.size())
        parts = [packed(value) for value in values or ()]
        lengths = cd.tensor([part.numel() for part in parts], dtype=cd.int64)
    broadcast(lengths, group=found, group_src=source)
    largest = int(lengths.max())
    padded = None
    if parts is not None:
        padded = _room([largest] * len(parts))
        for row, part in zip(padded, parts, strict=True):
            row[: part.numel()] = part
    data = cd.empty(largest, dtype=cd.uint8)
    scatter(data, padded, group=found, group_src=source)
    scatter_object_output_list[0] = unpacked(data[: int(lengths[found.rank()])])


@_members_only
def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to a rank, which calls :func:`recv_object_list`."""
    group = resolved(group)
    data = packed(list(object_list))
    for message in (cd.tensor([data.numel()], dtype=cd.int64), data):
        send(message, dst, group, group_dst=group_dst)


@_members_only
def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replace the objects of the list by those that a rank sends; its rank in the job."""
    group = resolved(group)
    length = cd.empty(1, dtype=cd.int64)
    sender = recv(length, src, group, group_src=group_src)
    data = cd.empty(int(length), dtype=cd.uint8)
    recv(data, sender, group)
    values = unpacked(data)
    _check_list("recv_object_list", "object_list", object_list, len(values))
    object_list[:] = values
    return int(sender)
