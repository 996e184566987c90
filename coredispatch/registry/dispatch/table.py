"""The one table: operators, keys and kernels, changed in atomic transactions.

Readers see an immutable :class:`Snapshot`; a writer prepares the next one and publishes it
with a single assignment, then drops the memos of the operators. A call that is resolving
meanwhile stores its finding into a memo that is already out of use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from coredispatch.registry.dispatch.dispatcher import Memo
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.backend import Backend, Kernel, Layer, Layout
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import RegistrationError
from coredispatch.registry.model.keys import BITS, KeyOrder

__all__ = ["TABLE", "SlotKey", "Snapshot", "Table", "layout_dtype"]

SlotKey = tuple[str, str, str | None]


@dataclass(frozen=True)
class Snapshot:
    """Everything resolution reads, as of one generation."""

    generation: int = 0
    ops: Mapping[str, Operator] = field(default_factory=dict)
    registrations: Mapping[SlotKey, tuple[Kernel, ...]] = field(default_factory=dict)
    backends: Mapping[str, tuple[Backend, str]] = field(default_factory=dict)
    layouts: Mapping[str, tuple[Layout, str]] = field(default_factory=dict)
    layers: Mapping[str, tuple[Layer, str]] = field(default_factory=dict)
    #: name -> (function of the number of threads, plugin)
    thread_pools: Mapping[str, tuple[Callable[[int], None], str]] = field(default_factory=dict)
    #: name -> ((function that makes one, backend key that it serves), plugin)
    communicators: Mapping[str, tuple[tuple[Callable[..., Any], str], str]] = field(
        default_factory=dict
    )
    order: KeyOrder = field(default_factory=KeyOrder)
    unloaded_ops: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def written(self) -> tuple[tuple[int, Callable[..., Any]], ...]:
        """Key and function of the layers that take calls as they are written."""
        return tuple(
            (self.order.by_name[name].bit, layer.written)
            for name, (layer, _) in self.layers.items()
            if layer.written is not None
        )


class Table:
    """Holder of the current :class:`Snapshot`."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.lock = threading.RLock()
        self._bits = BITS  # a name keeps its bit for the life of the process
        self.watchers: list[Callable[[Snapshot], None]] = []

    @property
    def generation(self) -> int:
        """Number of changes so far; memoised resolutions belong to one generation."""
        return self.snapshot.generation

    def bit(self, name: str) -> int:
        """The bit of key ``name``, the same for the life of the process."""
        known = self._bits.get(name)
        if known is not None:
            return known
        with self.lock:
            return self._bits.setdefault(name, 1 << len(self._bits))

    def operator(self, name: str) -> Operator:
        """The operator called ``name``; raises :class:`RegistrationError`."""
        op = self.snapshot.ops.get(name)
        if op is None:
            import difflib

            close = difflib.get_close_matches(name, self.snapshot.ops, 3)
            gone = self.snapshot.unloaded_ops.get(name)
            raise RegistrationError(
                f"there is no operator {name!r}"
                + (f" (plugin {gone!r} that declared it is not loaded)" if gone else ""),
                fix=f"did you mean {' or '.join(map(repr, close))}?" if close else None,
            )
        return op

    def publish(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the current one and forget all memoised resolutions."""
        with self.lock:
            self.snapshot = replace(snapshot, generation=self.snapshot.generation + 1)
            self.forget()
            for watcher in self.watchers:
                watcher(self.snapshot)

    def forget(self) -> None:
        """Drop every memoised resolution (they are found again on the next call)."""
        for op in self.snapshot.ops.values():
            op.memo = Memo()

    def remove(self, plugin: str) -> None:
        """Take out everything ``plugin`` registered; what it had covered serves again."""
        with self.lock:
            s = self.snapshot
            registrations = {
                key: kept
                for key, kernels in s.registrations.items()
                if (kept := tuple(k for k in kernels if k.plugin != plugin))
            }
            keys = [key for key in s.order.by_name.values() if key.plugin != plugin]
            ops = {name: op for name, op in s.ops.items() if op.plugin != plugin}
            gone = {name: plugin for name, op in s.ops.items() if op.plugin == plugin}
            for name in gone:
                s.ops[name].memo = Memo()
            self.publish(
                replace(
                    s,
                    registrations=registrations,
                    ops=ops,
                    order=KeyOrder(keys),
                    backends=_without(s.backends, plugin),
                    layouts=_without(s.layouts, plugin),
                    layers=_without(s.layers, plugin),
                    thread_pools=_without(s.thread_pools, plugin),
                    communicators=_without(s.communicators, plugin),
                    unloaded_ops={**s.unloaded_ops, **gone},
                )
            )


def _without(owned: Mapping[str, tuple[Any, str]], plugin: str) -> dict[str, tuple[Any, str]]:
    return {name: pair for name, pair in owned.items() if pair[1] != plugin}


TABLE = Table()


def layout_dtype(name: str) -> DType | None:
    """The element type called ``name`` of a layout that is loaded."""
    for layout, _ in TABLE.snapshot.layouts.values():
        for dtype in layout.dtypes:
            if dtype.name == name:
                return dtype
    return None
