"""Curated faults of the framework itself: resolution, masks, versions, caches.

They replace attributes of modules, so they exist where the hot modules run interpreted
(``COREDISPATCH_INTERPRETED=1``); a compiled module keeps its own functions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.registry import TABLE

__all__ = ["FRAMEWORK", "masks_restored", "module", "replaced"]


def module(name: str) -> Any:
    """A module of the framework, which the program has imported."""
    return sys.modules[f"coredispatch.{name}"]


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes replaced inside the block; memoised resolutions forgotten around it."""
    kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    TABLE.forget()
    try:
        yield
    finally:
        for owner, name, value in kept:
            if value is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        TABLE.forget()


def wrong_priority() -> Any:
    """The kernel registered last wins, whatever its priority."""
    registrar = module("registry.dispatch.registrar")

    def last_first(rows: Any, **options: Any) -> Any:
        return sorted(rows, key=lambda k: k.sequence, reverse=True)

    registrar.sorted = sorted
    return replaced((registrar, "sorted", last_first))


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
    mode = module("registry.around.modes").Mode
    leave = mode.__exit__

    def broken(self: Any, kind: Any = None, *rest: Any) -> Any:
        return None if kind is not None else leave(self, kind, *rest)

    return masks_restored(replaced((mode, "__exit__", broken)))


@contextmanager
def masks_restored(block: Any) -> Iterator[None]:
    """Undo what the fault leaves behind: modes live in a context of their own."""
    masks = module("registry.dispatch.masks")
    kept = masks._CURRENT.get(), dict(masks.MASKS.active), masks._ENTERED.get()
    including = dict(masks.MASKS.including)
    try:
        with block:
            yield
    finally:
        masks._CURRENT.set(kept[0])
        masks.MASKS.active, masks.MASKS.including = kept[1], including
        masks._ENTERED.set(kept[2])


def first_keys_only() -> Any:
    """Only the first argument brings its keys."""
    hot = module("registry.dispatch.dispatcher")
    originals = {"dispatch": hot.dispatch, "dispatch_two": hot.dispatch_two}

    def dispatch(op: Any, args: Any) -> Any:
        first = next((a for a in args if isinstance(a, hot.Value)), None)
        if first is None:
            return originals["dispatch"](op, args)
        return hot.find(op, hot.masked(first.keys)).call(args)

    faulty = {"dispatch": dispatch, "dispatch_two": lambda op, a, b: dispatch(op, (a, b))}
    # Whatever else calls an operator is sent through binding, and so through dispatch().
    changes = [(hot, "invoke", hot.HOOKS.bind)]
    for name, other in list(sys.modules.items()):
        for function, original in originals.items():
            if name.startswith("coredispatch.") and vars(other).get(function) is original:
                changes.append((other, function, faulty[function]))
    return replaced(*changes)


def lists_ignored() -> Any:
    """Tensors in a list bring no keys of their own but the first's backend."""
    dispatch = module("registry.dispatch.dispatcher")
    backends = TABLE.snapshot.order.backend_bits
    original = dispatch.list_keys
    return replaced((dispatch, "list_keys", lambda items: original(items) & backends))


def no_version() -> Any:
    """In-place writes do not count."""
    storage = module("registry.model.value").Storage
    return replaced((storage, "version", property(lambda self: 0, lambda self, version: None)))


def detached_double_backward() -> Any:
    """Gradients are computed without being recorded, although create_graph asks for it."""
    engine, modes = module("frontend.autograd.engine"), module("frontend.modes")
    import coredispatch as cd

    original = cd.autograd.grad

    def grad(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return tuple(None if g is None else g.detach() for g in found)

    del engine, modes
    gradcheck = module("frontend.autograd.gradcheck")
    return replaced((cd.autograd, "grad", grad), (gradcheck, "grad", grad))


def stale_weight_cache() -> Any:
    """The cast of a weight is kept although the weight was written to."""
    layer = module("frontend.amp.layer")
    return replaced((layer, "version_of", lambda value: 0))


def unsummed_gradient() -> Any:
    """The gradient of an input that was broadcast is cut to its shape, not summed."""
    checks = module("frontend.autograd.checks")

    def cut(grad: Any, shape: tuple[int, ...]) -> Any:
        while grad.ndim > len(shape):
            grad = grad[0]
        for dim, length in enumerate(shape):
            if length == 1 and grad.shape[dim] > 1:
                grad = grad.narrow(dim, 0, 1)
        return grad

    return replaced((checks, "unbroadcast", cut))


def leaking_autocast() -> Any:
    """Autocast stays in force when its block is left by an exception."""
    amp = module("frontend.amp.autocast").autocast
    leave = amp.__exit__

    def broken(self: Any, kind: Any = None, *rest: Any) -> Any:
        return None if kind is not None else leave(self, kind, *rest)

    return masks_restored(replaced((amp, "__exit__", broken)))


#: name -> fields of the mutant: the block that breaks it, and who must notice how
FRAMEWORK: dict[str, dict[str, Any]] = {
    "wrong key priority": {
        "patch": wrong_priority,
        "ops": ("backend",),
        "checks": (26,),
        "says": "lower priority",
    },
    "memo survives unregister": {
        "patch": surviving_memo,
        "ops": ("backend",),
        "checks": (26,),
        "says": "does not serve|memo survives",
    },
    "mask not restored after an exception": {
        "patch": unrestored_mask,
        "ops": ("backend",),
        "checks": (12,),
        "says": "outlived an exception",
    },
    "autocast not restored after an exception": {
        "patch": leaking_autocast,
        "ops": ("backend",),
        "checks": (13,),
        "says": "outlived a failed operator",
    },
    "only the first argument's keys read": {
        "patch": first_keys_only,
        "ops": ("mul", "matmul"),
        "checks": (12, 15),
        "says": "not DeviceError|requires grad",
    },
    "tensor lists ignored": {
        "patch": lists_ignored,
        "ops": ("cat", "stack"),
        "checks": (12,),
        "says": "requires grad",
    },
    "version counter not bumped": {
        "patch": no_version,
        "ops": ("add", "backend"),
        "checks": (6, 7, 12),
        "says": "version",
    },
    "double backward detached": {
        "patch": detached_double_backward,
        "ops": ("mul", "backend"),
        "checks": (12,),
        "cases": "gradgrad|double-backward",
    },
    "gradient of a broadcast input not summed": {
        "patch": unsummed_gradient,
        "ops": ("add", "mul"),
        "checks": (12,),
    },
    "autocast cache outlives a weight update": {
        "patch": stale_weight_cache,
        "ops": ("backend",),
        "checks": (13,),
        "says": "after an update of the weight",
    },
}
