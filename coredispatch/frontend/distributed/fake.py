"""The backend ``fake``: one process stands for any rank of a group of any size.

Nothing is sent. Every other rank is taken to have what this one has, except that reductions leave
the values as they are: shapes, sharding maps and memory are those of the real group, values not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.distributed.communicator import Communicator, Done, GroupInfo, Request

__all__ = ["FakeCommunicator"]


class FakeCommunicator(Communicator):
    """See the file."""

    name = "fake"

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, array: Any, op: str) -> Request:
        return Done()

    def broadcast(self, array: Any, root: int) -> Request:
        return Done()

    def reduce(self, array: Any, root: int, op: str) -> Request:
        return Done()

    def all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> Request:
        _repeat(out, array, counts)
        return Done()

    def reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> Request:
        start = sum(counts[: self.rank])
        out.reshape(-1)[...] = array.reshape(-1)[start : start + counts[self.rank]]
        return Done()

    def gather(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        if out is not None:
            _repeat(out, array, counts)
        return Done()

    def scatter(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        if array is not None:
            start = sum(counts[: self.rank])
            out.reshape(-1)[...] = array.reshape(-1)[start : start + counts[self.rank]]
        return Done()

    def all_to_all(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> Request:
        _repeat(out, array, out_counts)
        return Done()

    def barrier(self) -> Request:
        return Done()

    def send(self, array: Any, dst: int, tag: int) -> Request:
        return Done()

    def recv(self, array: Any, src: int | None, tag: int) -> Request:
        request = Done()
        request.source = 0 if src is None else src
        return request

    def split(self, ranks: Sequence[int], name: str) -> FakeCommunicator:
        return FakeCommunicator(list(ranks).index(self.rank), len(ranks))


def _repeat(out: Any, array: Any, counts: Sequence[int]) -> None:
    flat, source, at = out.reshape(-1), array.reshape(-1), 0
    for count in counts:
        flat[at : at + count] = np.resize(source, count) if source.size else 0
        at += count


def fake_communicator(info: GroupInfo) -> FakeCommunicator:
    """A group of ``info.size`` ranks, seen from ``info.rank``."""
    return FakeCommunicator(info.rank, info.size)
