"""Declared fallback edges: off by default, counted, readable.

A backend names the backend that may serve what it lacks (``Backend.fallback``); the user
enables the edge. Every call that takes it is counted per op.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from coredispatch.registry.dispatch.boxed_kernels import CallEntry
from coredispatch.registry.dispatch.dispatcher import dispatch
from coredispatch.registry.dispatch.linking import link_results
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import RegistrationError
from coredispatch.registry.model.value import Value, bump_version, dtype_of
from coredispatch.registry.wiring import HOOKS

__all__ = ["disable", "enable", "report", "reset", "serve", "target"]

_enabled: dict[str, str] = {}
_counts: Counter[tuple[str, str, str]] = Counter()
_lock = threading.Lock()


def enable(backend: str, to: str | None = None) -> None:
    """Let ``to`` (default: what the backend declares) serve what ``backend`` has no kernel for."""
    found = TABLE.snapshot.backends.get(backend)
    if found is None:
        raise RegistrationError(f"there is no backend {backend!r} to enable a fallback for")
    declared = found[0].fallback
    if declared is None or (to is not None and to != declared):
        raise RegistrationError(
            f"backend {backend!r} declares {'no fallback' if declared is None else declared!r}"
            + ("" if to is None else f", not {to!r}"),
            fix="set Backend.fallback in the plugin",
        )
    with _lock:
        _enabled[backend] = declared
    TABLE.forget()


def disable(backend: str) -> None:
    """Take the edge away again; missing ops raise ``MissingKernel`` as by default."""
    with _lock:
        _enabled.pop(backend, None)
    TABLE.forget()


def target(backend: Backend) -> str | None:
    """The enabled fallback of ``backend``, or None."""
    return _enabled.get(backend.name)


def report() -> dict[tuple[str, str, str], int]:
    """``{(op, from, to): number of calls}`` since the last :func:`reset`."""
    with _lock:
        return dict(_counts)


def reset() -> None:
    """Set all counts to zero."""
    with _lock:
        _counts.clear()


def serve(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Convert the arguments, run the op on the fallback backend, convert the result back."""
    op = entry.op
    assert isinstance(op, Operator)
    s = TABLE.snapshot
    source = next(b for n, (b, _) in s.backends.items() if s.order.by_name[n].bit & entry.keys)
    destination = s.backends[_enabled[source.name]][0]
    bits = (s.order.by_name[source.name].bit, s.order.by_name[destination.name].bit)
    with _lock:
        _counts[(op.name, source.name, destination.name)] += 1

    tensors = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))]
    homes = [source.device_index(v.raw) for v in tensors if isinstance(v, Value)]
    home = homes[0] if homes else source.check_device(None)

    def there(item: Any) -> Any:
        if isinstance(item, Value):
            raw = destination.transfer(item.raw, source, 0)
            return HOOKS.value_type(raw, bits[1])
        if isinstance(item, (list, tuple)):
            return type(item)(there(i) for i in item)
        return item

    def back(item: Any) -> Any:
        if isinstance(item, Value):
            source.check_dtypes(dtype_of(item))
            with source.on(home):
                raw = source.transfer(item.raw, destination, home)
            return HOOKS.value_type(raw, bits[0])
        if isinstance(item, (list, tuple)):
            return type(item)(back(i) for i in item)
        return item

    moved = tuple(there(a) for a in args)
    if op.device >= 0:
        moved = (*moved[: op.device], Device(destination.name), *moved[op.device + 1 :])
    result = dispatch(op, moved)
    for value, other in zip(op.schema.written(args), op.schema.written(moved), strict=True):
        with source.on(home):
            replaced = source.copyto(value.raw, source.transfer(other.raw, destination, home))
        if replaced is not None:
            value.raw = replaced
        bump_version(value)
    if not op.mutates:
        return back(result)
    return link_results(op, args, back(result), lambda item, argument: False)
