"""Curated faults of the framework itself: resolution, masks, versions, caches.

They replace attributes of modules, so they exist where the hot modules run interpreted
(``COREDISPATCH_INTERPRETED=1``); a compiled module keeps its own functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.registry import TABLE

__all__ = ["FRAMEWORK"]


def _module(name: str) -> Any:
    return sys.modules[f"coredispatch.{name}"]


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes replaced inside the block; memoised resolutions forgotten around it."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    TABLE.forget()
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
        TABLE.forget()


def wrong_priority() -> Any:
    """The kernel registered last wins, whatever its priority."""
    table = _module("registry.table")

    def last_first(rows: Any, **options: Any) -> Any:
        return sorted(rows, key=lambda k: k.sequence, reverse=True)

    table.sorted = sorted
    return replaced((table, "sorted", last_first))


def surviving_memo() -> Any:
    """Unloading a plugin leaves the memoised resolutions in place."""
    kept = TABLE.forget

    @contextmanager
    def block() -> Iterator[None]:
        kept()
        TABLE.forget = lambda: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            del TABLE.forget  # type: ignore[attr-defined]
            kept()

    return block()


def unrestored_mask() -> Any:
    """A mode is not undone when its block is left by an exception."""
    mode = _module("frontend.modes").Mode
    leave = mode.__exit__

    def broken(self: Any, kind: Any = None, *rest: Any) -> Any:
        return None if kind is not None else leave(self, kind, *rest)

    return _masks_restored(replaced((mode, "__exit__", broken)))


@contextmanager
def _masks_restored(block: Any) -> Iterator[None]:
    """Undo what the fault leaves behind: modes live in a context of their own."""
    masks, modes = _module("registry.masks"), _module("frontend.modes")
    amp = _module("frontend.amp.autocast")
    kept = masks._CURRENT.get(), masks.MASKS.active, modes._entered.get(), amp._state.get()
    try:
        with block:
            yield
    finally:
        masks._CURRENT.set(kept[0])
        masks.MASKS.active = kept[1]
        modes._entered.set(kept[2])
        amp._state.set(kept[3])


def first_keys_only() -> Any:
    """Only the first argument brings its keys."""
    module = _module("registry.dispatch")
    original = module.dispatch

    def dispatch(op: Any, args: Any) -> Any:
        first = next((a for a in args if isinstance(a, module.Value)), None)
        if first is None:
            return original(op, args)
        keys = module.masked(first.keys)
        entry = op.memo.get(keys) or module.HOOKS.resolve(op, keys, 0)
        return entry.call(args)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.arity or self.ambiguous or self.normal:
            return module.HOOKS.bind(self, args, kwargs)
        return dispatch(self, args)

    changes = [(module.Dispatcher, "__call__", call)]
    for name, other in list(sys.modules.items()):
        if name.startswith("coredispatch.") and vars(other).get("dispatch") is original:
            changes.append((other, "dispatch", dispatch))
    return replaced(*changes)


def lists_ignored() -> Any:
    """Tensors in a list bring no keys of their own but the first's backend."""
    dispatch = _module("registry.dispatch")
    backends = TABLE.snapshot.order.backend_bits
    original = dispatch.list_keys
    return replaced((dispatch, "list_keys", lambda items: original(items) & backends))


def no_version() -> Any:
    """In-place writes do not count."""
    changes = []
    for name, module in list(sys.modules.items()):
        if name.startswith("coredispatch.") and "bump_version" in vars(module):
            changes.append((module, "bump_version", lambda value: None))
    return replaced(*changes)


def detached_double_backward() -> Any:
    """Gradients are computed without being recorded, although create_graph asks for it."""
    engine, modes = _module("frontend.autograd.engine"), _module("frontend.modes")
    import coredispatch as cd

    original = cd.autograd.grad

    def grad(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return tuple(None if g is None else g.detach() for g in found)

    del engine, modes
    gradcheck = _module("frontend.autograd.gradcheck")
    return replaced((cd.autograd, "grad", grad), (gradcheck, "grad", grad))


def stale_weight_cache() -> Any:
    """The cast of a weight is kept although the weight was written to."""
    layer = _module("frontend.amp.layer")
    return replaced((layer, "version_of", lambda value: 0))


def ignored_strides() -> Any:
    """``out=`` is written as if it were contiguous."""
    import numpy as np

    backend = TABLE.snapshot.backends["cpu"][0]

    def copyto(target: Any, source: Any) -> Any:
        if not target.flags.c_contiguous and target.size > 1:
            base = target
            while isinstance(base.base, np.ndarray):
                base = base.base
            flat = base.reshape(-1)
            flat[: target.size] = np.broadcast_to(source, target.shape).reshape(-1)
            return None
        np.copyto(target, source, casting="unsafe")
        return None

    @contextmanager
    def block() -> Iterator[None]:
        backend.copyto = copyto  # type: ignore[method-assign]
        TABLE.forget()
        try:
            yield
        finally:
            del backend.copyto
            TABLE.forget()

    return block()


#: name -> (the block that breaks it, operators whose cases must notice)
FRAMEWORK: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "wrong key priority": (wrong_priority, ("backend",)),
    "memo survives unregister": (surviving_memo, ("backend",)),
    "mask not restored after an exception": (unrestored_mask, ("backend",)),
    "only the first argument's keys read": (first_keys_only, ("mul", "matmul")),
    "tensor lists ignored": (lists_ignored, ("cat", "stack")),
    "version counter not bumped": (no_version, ("add", "backend")),
    "double backward detached": (detached_double_backward, ("mul", "backend")),
    "autocast cache outlives a weight update": (stale_weight_cache, ("backend",)),
    "out= strides ignored": (ignored_strides, ("add",)),
}
