"""Watching the dispatch: every redispatch, with the provenance of what served it.

``observe()`` is how the conformance suite knows which kernel really ran. While somebody watches,
every entry that resolution makes is wrapped in one that records the call; nothing is paid when
nobody does.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coredispatch.registry.around import fallback as _fallback
from coredispatch.registry.dispatch.boxed_kernels import CallEntry, DecompositionEntry, LayerEntry
from coredispatch.registry.dispatch.dispatcher import Entry
from coredispatch.registry.dispatch.inplace_kernels import InplaceEntry
from coredispatch.registry.dispatch.raw_kernels import RawEntry
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Kernel
from coredispatch.registry.wiring import HOOKS

__all__ = ["Observation", "observe"]


@dataclass(frozen=True)
class Observation:
    """One redispatch.

    Attributes:
        op: name of the operator.
        keys: names of the keys it was resolved for, highest first.
        kind: ``kernel``, ``layer``, ``decomposition``, ``inplace``, ``fallback`` or ``other`` (a
        call that
            is refused, or moved between devices).
        plugin: who registered what ran (of several kernels the one that took the call, not those
            that rejected it); for a decomposition, who declared the operator.
        where: ``file:line`` of it, as far as known.
        depth: 0 for the outermost call, one more for every redispatch inside.
    """

    op: str
    keys: tuple[str, ...]
    kind: str
    plugin: str
    where: str
    depth: int


class _Watch(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.served: Kernel | None = None  # of the kernels of an entry, the one that served last


_lock = threading.RLock()
_logs: list[list[Observation]] = []
_watch = _Watch()


def _kind(entry: Entry) -> str:
    if isinstance(entry, LayerEntry):
        return "layer"
    if isinstance(entry.record, Kernel):
        return "inplace" if isinstance(entry, InplaceEntry) else "kernel"
    if isinstance(entry, DecompositionEntry):
        return "decomposition"
    if isinstance(entry, InplaceEntry):
        return "inplace"
    if isinstance(entry, CallEntry) and inspect.unwrap(entry.fn) is _fallback.serve:
        return "fallback"
    return "other"


def _mark(entry: Entry | None) -> bool:
    """Let the kernels of an entry that may reject say which one serves; False for one kernel."""
    if not isinstance(entry, (RawEntry, InplaceEntry)):
        return False
    inner = isinstance(entry, InplaceEntry) and _mark(entry.inner)
    if entry.otherwise is None:
        return inner
    row: RawEntry | InplaceEntry | None = entry
    while row is not None:
        if row.fn is not None and isinstance(row.record, Kernel):
            row.fn = _marked(row.fn, row.record)
        row = row.otherwise
    return True


def _marked(fn: Callable[..., Any], kernel: Kernel) -> Callable[..., Any]:
    def serve(*args: Any, **out: Any) -> Any:
        result = fn(*args, **out)
        if result is not NotImplemented:
            _watch.served = kernel
        return result

    return serve


def _wrap(entry: Entry) -> Entry:
    """An entry that records the call and passes it on."""
    kind, record = _kind(entry), entry.record
    op: Any = entry.op
    if isinstance(record, Kernel):
        plugin, where = record.plugin, record.where
    else:
        plugin, where = op.plugin, f"{op.file}:{op.line}"
    keys = tuple(TABLE.snapshot.order.names(entry.keys))
    several = _mark(entry)  # entries are made anew while somebody watches

    def call(_: Entry, args: tuple[Any, ...]) -> Any:
        seen = Observation(op.name, keys, kind, plugin, where, _watch.depth)
        logs = [(log, len(log)) for log in _logs]
        for log, _length in logs:
            log.append(seen)
        _watch.depth += 1
        _watch.served = None
        try:
            return entry.call(args)
        finally:
            _watch.depth -= 1
            served = _watch.served
            if several and served is not None and served is not record:
                found = replace(seen, plugin=served.plugin, where=served.where)
                for log, length in logs:  # other threads may have written to it meanwhile
                    log[next(i for i in range(length, len(log)) if log[i] is seen)] = found

    return CallEntry(entry.op, entry.keys, entry.mask, record, call)


@contextmanager
def observe() -> Iterator[list[Observation]]:
    """Record every redispatch of the process (all threads) while the block runs.

    Yields the list that grows, in the order in which the calls began. Blocks may nest; each gets
    everything that happens inside it.
    """
    log: list[Observation] = []
    with _lock:
        _logs.append(log)
        HOOKS.observe = _wrap
        TABLE.forget()
    try:
        yield log
    finally:
        with _lock:
            _logs[:] = [other for other in _logs if other is not log]
            if not _logs:
                HOOKS.observe = None
            TABLE.forget()
