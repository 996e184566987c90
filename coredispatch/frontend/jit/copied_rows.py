"""Rows that a program reads at a number which is known only when it runs.

``y[i]`` is a view in Python. In a graph that is followed without data it is a copy, as no view
starts at a number that is computed. What would show the difference is refused: a write to the copy,
which would not reach the tensor, and a use of the copy after a write to the tensor.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Node
from coredispatch.graph.capture import Traced
from coredispatch.graph.graph import GraphError
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.targets import AUGMENTED
from coredispatch.registry.model.value import Storage, storage_of

__all__ = ["CopiedRows"]


class _Row(NamedTuple):
    storage: Storage
    version: int
    source: Storage
    source_version: int


def _storage(tensor: Tensor) -> Storage:
    """The memory that the tensor and its views stand for: a tensor without data has one inside."""
    return storage_of(getattr(Traced.of(tensor), "inside", tensor))


class CopiedRows:
    """The copies that were read so far."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}  # by the storage of the copy, which it keeps alive

    def add(self, row: Tensor, source: Tensor) -> None:
        """``row`` is a copy of a part of ``source``."""
        own, whole = _storage(row), _storage(source)
        self._rows[id(own)] = _Row(own, own.version, whole, whole.version)

    def used(self, values: Any) -> list[_Row]:
        """The copies among ``values``, and those that these are views of.

        Raises :class:`GraphError` where the tensor of one was written to since.
        """
        found: list[_Row] = []

        def look(leaf: Any) -> None:
            if isinstance(leaf, Tensor):
                row = self._rows.get(id(_storage(leaf)))
                if row is not None:
                    found.append(row)

        if self._rows:
            map_aggregate(values, look)
        for row in found:
            if row.source.version != row.source_version:
                raise GraphError(
                    "a row that was read at a number which is computed when the program runs is "
                    "used after a write to its tensor: it would not have what was written",
                    fix="read it again, y[i], or copy it before the write, y[i].clone()",
                )
        return found

    def written(self, node: Node, rows: list[_Row]) -> None:
        """Refuse that ``node`` has written to one of these; ``y[i] += 1`` puts it back itself."""
        for row in rows:
            if row.storage.version == row.version:
                continue
            if node.target not in AUGMENTED or not any(
                user.target is operator.setitem and user.args[2] is node for user in node.users
            ):
                raise GraphError(
                    "a row that was read at a number which is computed when the program runs is "
                    "written to in place: the write would not reach its tensor",
                    fix="assign the new value, y[i] = y[i] + 1",
                )
            self._rows.pop(id(row.storage), None)
