"""The one table: operators, keys and kernels, changed in atomic transactions.

Readers see an immutable :class:`Snapshot`; a writer prepares the next one and publishes it
with a single assignment, then drops the memos of the operators. A call that is resolving
meanwhile stores its finding into a memo that is already out of use.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coredispatch.registry.dispatch.dispatcher import Memo
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.backend import Backend, ContextKernel, Kernel, Layer, Layout
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import RegistrationError, SchemaError
from coredispatch.registry.model.keys import BITS, Key, KeyKind, KeyOrder

__all__ = ["TABLE", "Registrar", "Snapshot", "Table"]

_sequence = itertools.count()
RowKey = tuple[str, str, str | None]


@dataclass(frozen=True)
class Snapshot:
    """Everything resolution reads, as of one generation."""

    generation: int = 0
    ops: Mapping[str, Operator] = field(default_factory=dict)
    rows: Mapping[RowKey, tuple[Kernel, ...]] = field(default_factory=dict)
    backends: Mapping[str, tuple[Backend, str]] = field(default_factory=dict)
    layouts: Mapping[str, tuple[Layout, str]] = field(default_factory=dict)
    layers: Mapping[str, tuple[Layer, str]] = field(default_factory=dict)
    order: KeyOrder = field(default_factory=KeyOrder)
    unloaded_ops: Mapping[str, str] = field(default_factory=dict)


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
            rows = {
                key: kept
                for key, kernels in s.rows.items()
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
                    rows=rows,
                    ops=ops,
                    order=KeyOrder(keys),
                    backends=_without(s.backends, plugin),
                    layouts=_without(s.layouts, plugin),
                    layers=_without(s.layers, plugin),
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


class Registrar:
    """What ``coredispatch_register`` receives: collects, and commits all or nothing."""

    def __init__(self, plugin: str, version: str = "0", table: Table = TABLE) -> None:
        self.plugin = plugin
        self.version = version
        self._table = table
        self._actions: list[Callable[[Snapshot], Snapshot]] = []

    def backend(self, backend: Backend) -> None:
        """Register a backend: its key and its kernels."""
        if not backend.name.isidentifier():
            raise RegistrationError(
                f"plugin {self.plugin!r}: backend name {backend.name!r} is no identifier",
                fix="set the class attribute name = 'mydevice'",
            )

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, backend.name, "backend")
            return replace(s, backends={**s.backends, backend.name: (backend, self.plugin)})

        self._actions.append(act)
        self.kernels(backend.name, backend.kernels)

    def layout(self, layout: Layout) -> None:
        """Register a layout: its key and its kernels."""

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, layout.name, "layout", layout.above, layout.below)
            return replace(s, layouts={**s.layouts, layout.name: (layout, self.plugin)})

        self._actions.append(act)
        self.kernels(layout.name, layout.kernels)
        for backend, kernels in layout.kernels_for.items():
            self.kernels(layout.name, kernels, backend=backend)

    def layer(self, layer: Layer) -> None:
        """Register a layer: its key, its per-op kernels and its generic kernel."""

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, layer.name, "layer", layer.above, layer.below)
            return replace(s, layers={**s.layers, layer.name: (layer, self.plugin)})

        self._actions.append(act)
        self.kernels(layer.name, layer.kernels, boxed=True)

    def op(self, *operators: Operator) -> None:
        """Register operators declared with ``primitive`` or ``composite``."""
        members: list[Operator] = []
        for op in operators:
            check_declared(op)
            members += [op] if op.inplace_op is None else [op, op.inplace_op]

        def act(s: Snapshot) -> Snapshot:
            ops = dict(s.ops)
            for member in members:
                known = ops.get(member.name)
                if known is not None and known is not member:
                    raise RegistrationError(
                        f"operator {member.name!r} of plugin {self.plugin!r} is already "
                        f"declared by {known.plugin!r} ({known.file}:{known.line})",
                        fix="choose another name, or register a kernel for the existing op",
                    )
                member.plugin = self.plugin
                ops[member.name] = member
            gone = {k: v for k, v in s.unloaded_ops.items() if k not in ops}
            return replace(s, ops=ops, unloaded_ops=gone)

        self._actions.append(act)

    def kernels(
        self,
        key: str,
        kernels: Mapping[str, Callable[..., Any]],
        *,
        priority: int = 0,
        when: Mapping[str, Callable[..., bool]] | Callable[..., bool] | None = None,
        least: Mapping[str, int] | int = 0,
        backend: str | None = None,
        boxed: bool = False,
    ) -> None:
        """Add kernels to a key, one's own or somebody else's (a kernel pack).

        The highest ``priority`` wins, the later of equals. A kernel declines a call, which then
        goes to the next best, by returning NotImplemented, or through ``when(*raw_args)``, or
        by its size: it then takes only calls whose first array has at least ``least`` elements
        (asked as ``raw.size``, which costs a small call far less than a predicate).
        ``boxed`` kernels take tensors instead of raw arrays.
        """
        records = []
        for name, fn in kernels.items():
            if not callable(fn):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: the kernel for {name!r} is {fn!r}, no callable"
                )
            file, line = _location(fn)
            records.append(
                Kernel(
                    name,
                    key,
                    backend,
                    fn,
                    self.plugin,
                    self.version,
                    file,
                    line,
                    priority,
                    next(_sequence),
                    when.get(name) if isinstance(when, Mapping) else when,
                    least.get(name, 0) if isinstance(least, Mapping) else least,
                    boxed,
                    _takes_out(fn),
                )
            )
        self._actions.append(lambda s: self._add(s, records))

    def commit(self) -> None:
        """Publish everything registered, or raise and change nothing."""
        with self._table.lock:
            snapshot = self._table.snapshot
            for action in self._actions:
                snapshot = action(snapshot)
            self._table.publish(snapshot)

    def _key(
        self,
        s: Snapshot,
        name: str,
        kind: KeyKind,
        above: tuple[str, ...] = (),
        below: tuple[str, ...] = (),
    ) -> Snapshot:
        known = s.order.by_name.get(name)
        if known is not None:
            raise RegistrationError(
                f"the key {name!r} of plugin {self.plugin!r} is already registered "
                f"as a {known.kind} by {known.plugin!r}",
                fix="choose another name, or add kernels to the existing key",
            )
        key = Key(name, kind, self._table.bit(name), tuple(above), tuple(below), self.plugin)
        return replace(s, order=KeyOrder([*s.order.by_name.values(), key]))

    def _add(self, s: Snapshot, records: Iterable[Kernel]) -> Snapshot:
        rows = dict(s.rows)
        for kernel in records:
            if kernel.key not in s.order.by_name:
                raise RegistrationError(
                    f"plugin {self.plugin!r} registers {kernel.op!r} for the unknown key "
                    f"{kernel.key!r}",
                    fix=f"known keys: {', '.join(k.name for k in s.order.highest_first)}",
                )
            if kernel.op not in s.ops:
                import difflib

                close = difflib.get_close_matches(kernel.op, s.ops, 3)
                raise RegistrationError(
                    f"plugin {self.plugin!r} registers a kernel for {kernel.op!r}, "
                    "which is no operator",
                    fix=f"did you mean {' or '.join(map(repr, close))}?" if close else None,
                )
            spot = (kernel.op, kernel.key, kernel.backend)
            present = rows.get(spot, ())
            for other in present:
                if (other.plugin, other.priority) == (kernel.plugin, kernel.priority):
                    raise RegistrationError(
                        f"plugin {self.plugin!r} registers {kernel.op!r} for {kernel.key!r} twice "
                        f"({other.where} and {kernel.where}) with priority {kernel.priority}",
                        fix="remove one of them, or give them different priorities",
                    )
            rows[spot] = tuple(
                sorted((*present, kernel), key=lambda k: (k.priority, k.sequence), reverse=True)
            )
        return replace(s, rows=rows)


def check_declared(op: Operator) -> None:
    """Refuse an operator whose differentiability is not stated."""
    if op.kind == "primitive" and op.differentiable and op.vjp_rule is None:
        raise SchemaError(
            f"primitive {op.name!r} has neither a vjp nor differentiable=False "
            f"({op.file}:{op.line})",
            fix=f"add @{op.name}.vjp, or declare it differentiable=False",
        )


def _location(fn: Any) -> tuple[str, int]:
    target = getattr(fn, "func", fn)
    target = getattr(target, "py_func", target)
    code = getattr(inspect.unwrap(target) if callable(target) else target, "__code__", None)
    if code is not None:
        return code.co_filename, code.co_firstlineno
    module = getattr(fn, "__module__", None) or type(fn).__module__
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", type(fn).__name__)
    return f"{module}.{name}", 0


def _takes_out(fn: Any) -> bool:
    fn = fn.fn if isinstance(fn, ContextKernel) else fn
    if type(fn).__name__ == "ufunc":
        return True
    code = getattr(fn, "__code__", None)
    if code is not None and not hasattr(fn, "__wrapped__"):
        return "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "out" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
