"""Resolution: the four rules that turn (op, key set) into the kernel that serves it.

For the highest key in ``(keys of the arguments | included) & ~excluded``:

1. this op's own kernel for (layer, layout), for (layer or layout, backend), then for the key
   alone;
2. the key's generic kernel; no kernel of either kind makes the key transparent;
3. at the backend key: the op's decomposition, if it is a composite;
4. the backend's declared fallback, else :class:`MissingKernel`.

A layout is never transparent to the backend's raw kernels: they would read the layout's data
as if it were a dense array. Below a layout only a composite's decomposition may serve.

:func:`walk` is the only implementation of the rules; resolving takes its winner and
``explain`` prints its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coredispatch.registry.model.backend import Backend, Kernel, Layer, location
from coredispatch.registry.model.errors import KernelError, MissingKernel, text_of
from coredispatch.registry.model.keys import Key
from coredispatch.registry.wiring import HOOKS

if TYPE_CHECKING:
    from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
    from coredispatch.registry.dispatch.operator import Operator
    from coredispatch.registry.dispatch.table import Snapshot

__all__ = ["Resolution", "Step", "applies", "walk"]


@dataclass(frozen=True)
class Step:
    """One row considered: at which key, what stood there, and what became of it."""

    key: str
    candidate: str
    verdict: str
    won: bool = False


@dataclass
class Resolution:
    """The winner of a walk. ``kind`` says what serves the call:

    ``layer``, ``generic``, ``raw``, ``boxed``, ``inplace``, ``decomposition``, ``fallback``,
    ``mixed``, ``missing``, ``unloaded``, ``refused`` (by a layer whose values are wrappers) or
    ``nothing`` (no tensor among the arguments).
    """

    kind: str = "nothing"
    key: Key | None = None
    kernels: tuple[Kernel, ...] = ()
    backend: Backend | None = None
    fn: Any = None
    steps: list[Step] = field(default_factory=list)

    def lost(self, key: str, candidate: str, verdict: str) -> None:
        """Record a candidate that does not serve."""
        self.steps.append(Step(key, candidate, verdict))

    def won(self, kind: str, key: Key, candidate: str, verdict: str, **found: Any) -> Resolution:
        """Record the winner."""
        self.kind, self.key = kind, key
        for name, value in found.items():
            setattr(self, name, value)
        self.steps.append(Step(key.name, candidate, verdict, True))
        return self


def walk(s: Snapshot, op: Operator, keys: int) -> Resolution:
    """Apply the four rules to ``op`` and the (already masked) key set ``keys``."""
    order = s.order
    result = Resolution()
    known = order.backend_bits | order.layout_bits | order.layer_bits
    if keys & ~known:
        result.kind = "unloaded"
        return result
    backends = [key for key in order.highest_first if key.bit & keys & order.backend_bits]
    if len(backends) != 1:
        _alone(s, op, keys, result)
        if result.key is None and backends:
            result.kind = "mixed"
        return result
    backend_key = backends[0]
    backend = s.backends[backend_key.name][0]
    result.backend = backend
    layouts = [key.name for key in order.highest_first if key.bit & keys & order.layout_bits]
    below_layout = False
    for key in order.members(keys):
        if key.kind == "backend":
            return _at_backend(s, op, keys, key, backend, below_layout, result)
        below = (*layouts, backend_key.name) if key.kind == "layer" else (backend_key.name,)
        for slot in ((op.name, key.name, name) for name in (*below, None)):
            rows = s.registrations.get(slot)
            if rows:
                return _own(result, key, rows)
        if key.kind == "layer":
            layer, plugin = s.layers[key.name]
            rule = op.rules.get(key.name)
            if rule is not None:
                where = location(rule)
                kernel = Kernel(op.name, key.name, None, rule, op.plugin, "", *where, boxed=True)
                return result.won(
                    "layer", key, str(kernel), "the operator's own rule", kernels=(kernel,)
                )
            if layer.wraps and (layer.generic is None or not applies(layer, op)):
                opaque = _opaque(key.name)
                if op.decomposition is not None:
                    verdict = "wraps tensors: decomposes"
                    return result.won("generic", key, "no kernel", verdict, fn=opaque)
                result.lost(key.name, "no kernel", "wraps tensors, and finds no decomposition")
                result.kind, result.key, result.fn = "refused", key, opaque
                return result
            if layer.generic is None:
                result.lost(key.name, "no kernel of its own, no generic kernel", "transparent")
            elif not applies(layer, op):
                result.lost(key.name, "generic kernel does not apply to this op", "transparent")
            else:
                candidate = f"generic kernel of {plugin}"
                return result.won("generic", key, candidate, "serves every op", fn=layer.generic)
        else:
            below_layout = True
            result.lost(
                key.name, "no kernel of its own", "only a composite's decomposition may serve"
            )
    raise AssertionError("unreachable: a backend key is always the lowest")


def _alone(s: Snapshot, op: Operator, keys: int, result: Resolution) -> Resolution:
    """A call without a tensor: only a layer that says so serves it."""
    for key in s.order.members(keys):
        layer = s.layers[key.name][0] if key.kind == "layer" else None
        if layer is not None and layer.alone and layer.generic is not None:
            return result.won(
                "generic", key, "generic kernel", "serves every op, alone", fn=layer.generic
            )
    return result


def applies(layer: Layer, op: Operator) -> bool:
    """Whether the generic kernel of ``layer`` serves ``op``; what it raises is a KernelError."""
    if layer.applies is None:
        return True
    try:
        return bool(layer.applies(op))
    except Exception as error:
        raise KernelError(
            f"the layer {layer.name!r} cannot tell whether it applies to {op.name!r}: "
            f"{type(error).__name__}: {text_of(error)}",
            fix="return True or False for every operator from its `applies`",
        ) from error


def _opaque(layer: str) -> Callable[..., Any]:
    """What a layer whose values are wrappers does with an operator that it has no kernel for."""

    def opaque(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        op = call.record
        if op.decomposition is not None:
            return call.decompose(args)
        error = MissingKernel(
            f"the layer {layer!r} has no kernel for {op.name!r}, which has no decomposition either",
            fix=f"add one: Layer({layer!r}, kernels={{{op.name!r}: ...}}), or, for an operator of "
            f"your own, @{op.name}.rule({layer!r})",
        )
        raise HOOKS.failure(call, args, error)

    return opaque


def _own(result: Resolution, key: Key, rows: tuple[Kernel, ...]) -> Resolution:
    top = rows[0]
    if key.kind == "layer":
        kind = "layer"
    else:
        kind = "boxed" if top.boxed else "raw"
    condition = "" if top.when is None else " when its predicate accepts the arguments"
    if top.least:
        condition += f" from {top.least} elements on"
    result.won(kind, key, str(top), f"own kernel, priority {top.priority}{condition}", kernels=rows)
    for other in rows[1:]:
        result.lost(key.name, str(other), "overridden, serves what is rejected")
    return result


def _at_backend(
    s: Snapshot,
    op: Operator,
    keys: int,
    key: Key,
    backend: Backend,
    below_layout: bool,
    result: Resolution,
) -> Resolution:
    rows = s.registrations.get((op.name, key.name, None))
    if rows and not below_layout:
        return _own(result, key, rows)
    if rows:
        result.lost(key.name, str(rows[0]), "takes plain arrays, not this layout")
    else:
        result.lost(key.name, "no kernel of its own", "next rule")
    if op.inplace_of is not None:
        return result.won(
            "inplace", key, f"derived from {op.inplace_of.name!r}", "computes, then writes to self"
        )
    if backend.generic is not None and not below_layout:
        if op.generic:
            return result.won(
                "generic", key, "generic kernel", "serves every op", fn=backend.generic
            )
        result.lost(key.name, "generic kernel", "this op takes none: generic=False")
    if op.decomposition is not None:
        return result.won(
            "decomposition",
            key,
            f"decomposition ({op.file}:{op.line})",
            "made of other operators",
            fn=op.decomposition,
        )
    target = HOOKS.fallback_target(backend)
    if target is not None:
        return result.won(
            "fallback", key, f"declared fallback to {target!r}", "enabled, counted", fn=target
        )
    result.kind, result.key = "missing", key
    result.lost(key.name, "no decomposition, no enabled fallback", "MissingKernel")
    return result
