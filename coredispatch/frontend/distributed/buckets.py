"""Buckets: gradients of several parameters in one flat tensor, which is reduced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.tensor import Tensor

__all__ = ["Bucket", "GradBucket", "assign"]

MEGABYTE = 1024 * 1024
FIRST = MEGABYTE  # a small first bucket, so that communication begins early


class Bucket:
    """The parameters of a bucket and the memory of their gradients.

    Attributes:
        positions: of its parameters in the list of all.
        flat: the gradients, one behind the other.
        views: the part of each parameter, in its shape.
    """

    def __init__(self, positions: Sequence[int], params: Sequence[Tensor]) -> None:
        self.positions = list(positions)
        self.params = [params[i] for i in positions]
        first = self.params[0]
        total = sum(p.numel() for p in self.params)
        self.flat = cd.zeros(total, dtype=first.dtype, device=first.device)
        parts = self.flat.split([p.numel() for p in self.params])
        self.views = [part.view(p.shape) for part, p in zip(parts, self.params, strict=True)]
        self.missing = len(self.positions)
        self.future: Any = None

    def reset(self) -> None:
        """Wait for all gradients again."""
        self.missing, self.future = len(self.positions), None


class GradBucket:
    """A bucket as communication hooks see it."""

    __module__ = "coredispatch.distributed"

    def __init__(self, bucket: Bucket, index: int, last: bool) -> None:
        self._bucket, self._index, self._last = bucket, index, last
        self._buffer = bucket.flat

    def index(self) -> int:
        """Which bucket; 0 is reduced first."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients, flat: sums of this rank, not yet divided."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor of as many elements in place of the buffer."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradient of each parameter, as views of the buffer."""
        sizes = [p.numel() for p in self._bucket.params]
        parts = self._buffer.split(sizes)
        return [part.view(p.shape) for part, p in zip(parts, self._bucket.params, strict=True)]

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of the gradients."""
        return list(self._bucket.params)

    def is_last(self) -> bool:
        """Whether it is the last one of the pass."""
        return self._last


def assign(params: Sequence[Tensor], order: Sequence[int], cap: int, first: int) -> list[Bucket]:
    """Buckets of at most `cap` bytes (the first of `first`) in the order of `order`, by dtype."""
    groups: list[list[int]] = []
    open_groups: dict[Any, tuple[list[int], int, int]] = {}
    for position in order:
        param = params[position]
        key = (param.dtype, param.device)
        size = param.numel() * param.element_size()
        members, held, limit = open_groups.get(key, ([], 0, cap if groups else first))
        if members and held + size > limit:
            members, held, limit = [], 0, cap
        if not members:
            groups.append(members)
        members.append(position)
        open_groups[key] = (members, held + size, limit)
    return [Bucket(members, params) for members in groups]
