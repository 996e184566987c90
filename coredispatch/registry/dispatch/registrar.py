"""What a plugin registers through: checked, collected, and committed all or nothing."""

from __future__ import annotations

import inspect
import itertools
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE, Snapshot, Table
from coredispatch.registry.model.backend import (
    KEPT,
    TAKEN,
    Backend,
    ContextKernel,
    Kernel,
    Layer,
    Layout,
    locations,
)
from coredispatch.registry.model.dtypes import ALL_DTYPES, STORAGE_DTYPES
from coredispatch.registry.model.errors import RegistrationError, SchemaError, shown_value
from coredispatch.registry.model.keys import Key, KeyKind, KeyOrder

__all__ = ["Registrar"]

_sequence = itertools.count()


class Registrar:
    """What ``coredispatch_register`` receives: collects, and commits all or nothing."""

    def __init__(self, plugin: str, version: str = "0", table: Table = TABLE) -> None:
        self.plugin = plugin
        self.version = version
        self._table = table
        self._actions: list[Callable[[Snapshot], Snapshot]] = []

    def backend(self, backend: Backend) -> None:
        """Register a backend: its key and its kernels."""
        self._check_kind(backend, Backend, "backend")
        if not isinstance(backend.array_type, type):
            raise RegistrationError(
                f"plugin {self.plugin!r}: backend {backend.name!r} has the array_type "
                f"{backend.array_type!r}, which is not a class",
                fix="set the class attribute array_type to the class of its raw arrays",
            )
        unknown = {*(backend.dtypes or ())} - {d.name for d in ALL_DTYPES}
        unknown |= {*backend.storage_dtypes} - {d.name for d in STORAGE_DTYPES}
        if unknown:
            raise RegistrationError(
                f"plugin {self.plugin!r}: backend {backend.name!r} declares unknown dtypes: "
                f"{', '.join(map(repr, unknown))}",
                fix="name them: frozenset({'float32', 'int64', 'bool'}); None means all",
            )

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, backend.name, "backend")
            return replace(s, backends={**s.backends, backend.name: (backend, self.plugin)})

        self._actions.append(act)
        self.kernels(backend.name, backend.kernels)

    def layout(self, layout: Layout) -> None:
        """Register a layout: its key and its kernels."""
        self._check_kind(layout, Layout, "layout")
        if not isinstance(layout.data_type, type):
            raise RegistrationError(
                f"plugin {self.plugin!r}: layout {layout.name!r} has the data_type "
                f"{layout.data_type!r}, which is not a class",
                fix="pass the class of its raw data",
            )
        takes = layout.takes
        if isinstance(takes, str) or not set(takes or ()) <= set(TAKEN):
            raise RegistrationError(
                f"plugin {self.plugin!r}: takes={takes!r} of layout {layout.name!r} is not a tuple "
                f"of some of {', '.join(map(repr, TAKEN))}",
                fix="write takes=('unsorted', 'duplicates'), takes=() or leave it out",
            )

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, layout.name, "layout", layout.above, layout.below)
            return replace(s, layouts={**s.layouts, layout.name: (layout, self.plugin)})

        self._actions.append(act)
        self.kernels(layout.name, layout.kernels)
        for backend, kernels in layout.kernels_for.items():
            self.kernels(layout.name, kernels, backend=backend)

    def layer(self, layer: Layer) -> None:
        """Register a layer: its key, its per-op kernels and its generic kernel."""
        self._check_kind(layer, Layer, "layer")
        for what in ("generic", "applies", "through", "meaning"):
            function = getattr(layer, what)
            if function is not None and not callable(function):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: {what} of layer {layer.name!r} is {function!r}, "
                    "which cannot be called",
                    fix="pass a function, or None",
                )
        kept = layer.keeps
        if isinstance(kept, str) or not set(kept) <= set(KEPT):
            raise RegistrationError(
                f"plugin {self.plugin!r}: keeps={kept!r} of layer {layer.name!r} is not a tuple "
                f"of some of {', '.join(map(repr, KEPT))}",
                fix="write keeps=('bits', 'writes', 'gradients'), or leave it out",
            )

        def act(s: Snapshot) -> Snapshot:
            s = self._key(s, layer.name, "layer", layer.above, layer.below)
            return replace(s, layers={**s.layers, layer.name: (layer, self.plugin)})

        self._actions.append(act)
        self.kernels(layer.name, layer.kernels, boxed=True)

    def op(self, *operators: Operator) -> None:
        """Register operators declared with ``primitive`` or ``composite``."""
        members: list[Operator] = []
        for op in operators:
            if not isinstance(op, Operator):
                raise RegistrationError(
                    f"plugin {self.plugin!r} registers {shown_value(op)}, which is not an operator",
                    fix="declare it with @primitive(...) or @composite(...)",
                )
            check_declared(op)
            members.append(op)
            members += [d for d in (op.inplace_op, op.functional) if d and d.derived_from is op]

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
        accepts: Mapping[str, Callable[..., bool]] | None = None,
        backend: str | None = None,
        boxed: bool = False,
    ) -> None:
        """Add kernels to a key, one's own or somebody else's (a kernel pack).

        The highest ``priority`` wins, the later of equals. A kernel rejects a call, which then
        goes to the next best, by returning NotImplemented, or through ``when(*raw_args)``, or
        by its size: it then takes only calls whose first array has at least ``least`` elements
        (asked as ``raw.size``, which costs a small call far less than a predicate). No call asks
        ``accepts``: what a kernel rejects by returning NotImplemented, it tells ``cd.explain``.
        ``boxed`` kernels take tensors instead of raw arrays; those of a layer always do, after the
        call object. ``backend`` narrows kernels of a layout to one backend, and those of a layer to
        one backend or layout.
        """
        self._check_pack(key, kernels, priority, when, least)
        records = []
        places = locations(kernels)
        for name, fn in kernels.items():
            file, line, function = places[name]
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
                    function,
                    None if accepts is None else accepts.get(name),
                )
            )
        self._actions.append(lambda s: self._add(s, records))

    def thread_pool(self, name: str, set_num_threads: Callable[[int], None]) -> None:
        """Obey ``cd.set_num_threads``: the function is called with every number that is set.

        It is called with at least 1, at once where a number was set before the plugin was loaded,
        and must not raise.
        """
        if not callable(set_num_threads):
            raise RegistrationError(
                f"plugin {self.plugin!r}: the thread pool {name!r} is set by "
                f"{shown_value(set_num_threads)}, which cannot be called",
                fix="pass a function of the number of threads",
            )
        owned = (set_num_threads, self.plugin)
        self._actions.append(lambda s: replace(s, thread_pools={**s.thread_pools, name: owned}))

    def communicator(self, name: str, create: Callable[..., Any], device: str = "cpu") -> None:
        """Offer the engine of a process group: ``init_process_group(name)`` makes groups of it.

        ``create(info)`` gets a :class:`~coredispatch.plugin.GroupInfo` and returns a
        :class:`~coredispatch.plugin.Communicator` for the tensors of the backend key `device`. It
        is called when a group is made, not before, and says there what it cannot do.
        """
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
            raise RegistrationError(
                f"plugin {self.plugin!r}: the communicator name {shown_value(name)} is not a "
                "lower-case identifier",
                fix="use a name such as 'mpi'",
            )
        if not callable(create):
            raise RegistrationError(
                f"plugin {self.plugin!r}: the communicator {name!r} is made by "
                f"{shown_value(create)}, which cannot be called",
                fix="pass a function of a GroupInfo",
            )
        owned = ((create, device), self.plugin)
        self._actions.append(lambda s: replace(s, communicators={**s.communicators, name: owned}))

    def commit(self) -> None:
        """Publish everything registered, or raise and change nothing."""
        with self._table.lock:
            snapshot = self._table.snapshot
            for action in self._actions:
                snapshot = action(snapshot)
            self._table.publish(snapshot)

    def _check_kind(self, thing: Any, kind: type, what: str) -> None:
        """Refuse what is not an instance of ``kind`` with a usable name and order."""
        if isinstance(thing, type) and issubclass(thing, kind):
            raise RegistrationError(
                f"plugin {self.plugin!r} registers the class {thing.__name__} as a {what}",
                fix=f"pass an instance: registrar.{what}({thing.__name__}())",
            )
        if not isinstance(thing, kind):
            raise RegistrationError(
                f"plugin {self.plugin!r} registers {shown_value(thing)} as a {what}",
                fix=f"pass an instance of coredispatch.plugin.{kind.__name__}",
            )
        name: Any = thing.name  # type: ignore[attr-defined]
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise RegistrationError(
                f"plugin {self.plugin!r}: the {what} name {name!r} is not an identifier",
                fix=f"name it as one would a variable, such as 'my_{what}'",
            )
        for order in ("above", "below"):
            names = getattr(thing, order, ())
            if isinstance(names, str) or not all(isinstance(other, str) for other in names):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: {order}={names!r} of {what} {name!r} is not a tuple "
                    "of key names",
                    fix=f"write {order}=('other',)",
                )

    def _check_pack(self, key: Any, kernels: Any, priority: Any, when: Any, least: Any) -> None:
        """Refuse a kernel pack whose parts are not of the kinds that resolution relies on."""
        if not isinstance(kernels, Mapping):
            raise RegistrationError(
                f"plugin {self.plugin!r}: the kernels for {key!r} are {shown_value(kernels)}, "
                "which is not a dict",
                fix="pass {'op name': function}",
            )
        if type(priority) is not int:
            raise RegistrationError(
                f"plugin {self.plugin!r}: priority={shown_value(priority)} for {key!r} is not "
                "an int",
                fix="use 0, or more to outrank another plugin's kernels",
            )
        for name, fn in kernels.items():
            if not isinstance(name, str):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: {shown_value(name)} stands for the name of an "
                    "operator",
                    fix="the keys of the kernels are operator names",
                )
            if not callable(fn):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: the kernel for {name!r} is {shown_value(fn)}, which "
                    "cannot be called",
                    fix="pass a function over raw arrays",
                )
            predicate = when.get(name) if isinstance(when, Mapping) else when
            size = least.get(name, 0) if isinstance(least, Mapping) else least
            if predicate is not None and not callable(predicate):
                raise RegistrationError(
                    f"plugin {self.plugin!r}: when= of {name!r} is {shown_value(predicate)}, which "
                    "cannot be called",
                    fix="pass a function of the raw arguments that gives True or False",
                )
            if type(size) is not int or size < 0:
                raise RegistrationError(
                    f"plugin {self.plugin!r}: least= of {name!r} is {shown_value(size)}, not a "
                    "number of elements",
                    fix="pass an int of 0 or more",
                )

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
        registrations = dict(s.registrations)
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
            slot = (kernel.op, kernel.key, kernel.backend)
            present = registrations.get(slot, ())
            for other in present:
                if (other.plugin, other.priority) == (kernel.plugin, kernel.priority):
                    raise RegistrationError(
                        f"plugin {self.plugin!r} registers {kernel.op!r} for {kernel.key!r} twice "
                        f"({other.where} and {kernel.where}) with priority {kernel.priority}",
                        fix="remove one of them, or give them different priorities",
                    )
            registrations[slot] = tuple(
                sorted((*present, kernel), key=lambda k: (k.priority, k.sequence), reverse=True)
            )
        return replace(s, registrations=registrations)


def check_declared(op: Operator) -> None:
    """Refuse an operator whose differentiability is not stated."""
    if op.kind == "primitive" and op.differentiable and op.vjp_rule is None:
        raise SchemaError(
            f"primitive {op.name!r} has neither a vjp nor differentiable=False "
            f"({op.file}:{op.line})",
            fix=f"add @{op.name}.vjp, or declare it differentiable=False",
        )


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
