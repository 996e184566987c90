"""The guards of a program: what it read of Python's state, compared at every call."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.checking import HELD, MOVED, base_of, checker
from coredispatch.frontend.compiling.gradient_hooks import any_leaf_hooks, hooks_of
from coredispatch.frontend.compiling.memory import Held
from coredispatch.frontend.compiling.records import Record
from coredispatch.frontend.compiling.replaced import fits, parts_of
from coredispatch.plugin import Value

__all__ = ["Guards"]


class Guards:
    """What a program read of Python's state, to be found again unchanged."""

    def __init__(
        self,
        records: list[Record],
        tensors: list[Any],
        grads: list[Any],
        absent: dict[int, bool],
        leaves: dict[int, bool],
        hooked: list[Any],
        arguments: list[int],
        given: list[Any],
        begun: list[Any] | None = None,
    ) -> None:
        self.tensors = tensors
        self.raws = [t.raw for t in tensors]
        self.metas = [_meta(t) for t in tensors]
        self.grads = [(t, absent[id(t)]) for t in grads]
        self.records = records
        self.leaves = leaves  # number of an argument -> whether it has no gradient
        self.parts = (records, tensors, grads, absent)
        self.hooks = [(t, hooks_of(t)) for t in hooked]  # that a backward pass inside calls
        self.arguments = arguments  # the numbers of those that must have no hooks
        self.own = _held(records)
        # by argument: the tensor, where the state holds it as well, False for any other one
        self.given = [self.placed(value) for value in given]
        self.replaced = [record for record in records if record.dynamic and tensors_of(record)]
        self.fixed = _held([r for r in records if not r.dynamic]) | {
            id(base_of(t)) for t in tensors
        }
        self.begun = begun if begun is not None else [_place(value) for value in given]
        then = [t for record in self.replaced for t in tensors_of(record)]
        self.sharing = self.shared(self.begun, then) if self.replaced else None
        self.check: types.FunctionType | None = None
        self.memory: Held | None = None  # of a program that writes
        self.same: list[tuple[Any, Any]] = []  # origins of tensors that are over one array
        #: of open sizes: whether they answer what was asked of them as before
        self.sizes: Callable[[list[Any]], bool] | None = None

    def placed(self, value: Any) -> Any:
        """An argument as ``given`` has it; None for a number."""
        if not isinstance(value, Value):
            return False if value is False else None
        return value if id(base_of(value)) in self.own else False

    def united(self, other: Guards) -> Guards:
        """The guards of both."""
        records = {(r.kind, id(r.holder), r.key, r.dynamic): r for r in self.records}
        for r in other.records:
            records.setdefault((r.kind, id(r.holder), r.key, r.dynamic), r)
        tensors = {id(t): t for t in (*self.parts[1], *other.parts[1])}
        grads = {id(t): t for t in (*self.parts[2], *other.parts[2])}
        leaves = {**other.leaves, **self.leaves}
        absent = {**other.parts[3], **self.parts[3]}
        found = (list(records.values()), list(tensors.values()), list(grads.values()))
        hooked = list({id(t): t for t, _ in (*self.hooks, *other.hooks)}.values())
        arguments = sorted({*self.arguments, *other.arguments})
        made = Guards(*found, absent, leaves, hooked, arguments, self.given, self.begun)
        made.same = [*self.same, *other.same]
        made.memory = self.memory
        if other.memory is not None:
            own = self.memory
            made.memory = other.memory if own is None else own.beside(other.memory)
        return made

    def hold(self, leaves: list[Any]) -> bool:
        """Whether all is as it was."""
        if self.sizes is not None and not self.sizes(leaves):
            return False
        if self.same and self.differ(leaves):
            return False
        if self.check is None:
            arrays = [
                (t, raw, meta[2]) for t, raw, meta in zip(self.tensors, self.raws, self.metas)
            ]
            shared = (self.given, self.own)
            self.check = checker(self.records, arrays, self.grads, self.leaves, shared)
        found = self.check(leaves)
        if found is not MOVED:
            if found is not HELD or (self.replaced and self.shares_otherwise(leaves)):
                return False
            if self.memory is not None and not self.memory.holds(leaves):
                return False
            return not (any_leaf_hooks() and self.hooks_differ(leaves))
        if self.broken(leaves) is not None:
            return False
        if self.memory is not None and not (self.memory.moved() and self.memory.holds(leaves)):
            return False
        # the same tensors with other arrays like those they had
        self.check.__globals__.update({f"raw{k}": t.raw for k, t in enumerate(self.tensors)})
        return True

    def shared(self, given: list[Any], tensors: list[Any]) -> Any:
        """Which of these share memory with one another, with arguments or with what stays.

        Args:
            given: of the arguments, by :func:`_place`.
            tensors: those that other ones may replace.
        """
        first: dict[int, tuple[int, int]] = {}
        for i, known in enumerate(given):
            if known is not None:
                first.setdefault(known[0], (i, known[1]))
        found = []
        for i, tensor in enumerate(tensors, len(given)):
            base, begin = _place(tensor)
            before = first.setdefault(base, (i, begin))
            found.append((before[0], begin - before[1], base if base in self.fixed else None))
        return tuple(found)

    def differ(self, leaves: list[Any]) -> bool:
        """Whether tensors that were over one array are so no more."""
        try:
            return any(a.find(leaves).raw is not b.find(leaves).raw for a, b in self.same)
        except (LookupError, AttributeError, TypeError):  # nothing stands there now
            return True

    def shares_otherwise(self, leaves: list[Any]) -> bool:
        """Whether tensors that are replaced share memory in another way than they did."""
        now = [
            part
            for record in self.replaced
            for _, part in parts_of(record.now())
            if isinstance(part, Value)
        ]
        return bool(self.shared([_place(leaf) for leaf in leaves], now) != self.sharing)

    def hooks_differ(self, leaves: list[Any]) -> bool:
        """Whether a backward pass inside would call other hooks."""
        own = any(hooks_of(t) != hooks for t, hooks in self.hooks)
        return own or any(hooks_of(leaves[i]) for i in self.arguments)

    def broken(self, leaves: list[Any]) -> str | None:
        """What is not as it was, in words."""
        if self.sizes is not None and not self.sizes(leaves):
            return "what the program asked of sizes has another answer"
        for record in self.records:
            if record.dynamic:
                if not fits(record):
                    return f"{record.how} changed: {_shown(record.value)} -> {_shown(record.now())}"
            elif not record.held():
                return f"{record.how} changed: {_shown(record.value)} -> {_shown(record.now())}"
        for t, meta in zip(self.tensors, self.metas):
            if _meta(t) != meta:
                return f"a parameter or constant of shape {tuple(meta[0])} has another form"
        for t, absent in (*self.grads, *((leaves[i], a) for i, a in self.leaves.items())):
            if (t._grad is None) is not absent:
                there = "has a gradient now" if absent else "has no gradient any more"
                return f"a tensor of shape {tuple(t.shape)} {there}"
        for then, now in zip(self.given, leaves):
            if then is not None:
                if now is not then if then is not False else id(base_of(now)) in self.own:
                    return "an argument is a tensor that the program holds as well, or is not"
        if self.differ(leaves):
            return "tensors over one array are over several now"
        if self.replaced and self.shares_otherwise(leaves):
            return "tensors that the program replaces share memory in another way"
        if self.hooks_differ(leaves):
            return "a tensor has other gradient hooks"
        if self.memory is not None and not self.memory.holds(leaves):
            return "an argument shares memory with a tensor that the program holds, or does not"
        return None

    def changed(self) -> list[Record]:
        """The records that do not hold."""
        return [r for r in self.records if not (fits(r) if r.dynamic else r.held())]

    def told(self) -> list[str]:
        """What must hold, one line each."""
        lines = [
            f"{r.how} is {'a ' + type(r.value).__name__ if r.dynamic else _shown(r.value)}"
            for r in self.records
        ]
        lines += [f"a tensor of shape {tuple(m[0])} and dtype {m[1]}" for m in self.metas]
        return lines

    def __len__(self) -> int:
        return len(self.records) + len(self.tensors) + len(self.grads)


def _held(records: list[Record]) -> frozenset[int]:
    """The ids of the tensors in the records; views count as what they are views of."""
    return frozenset(id(base_of(t)) for record in records for t in tensors_of(record))


def tensors_of(record: Record) -> list[Any]:
    """The tensors in what a record had, those aside that have records of their own."""
    value: Any = record.value
    if record.dynamic:
        items = [part for _, part in parts_of(value)]
    elif isinstance(value, tuple):
        items = [item for i, item in enumerate(value) if i not in record.moving]
    else:
        items = [value]
    return [item for item in items if isinstance(item, Value)]


def _place(value: Any) -> Any:
    """The storage of a tensor, and where in memory it begins; None for a number."""
    if not isinstance(value, Value):
        return None
    begin: int = value.raw.ctypes.data if type(value.raw) is np.ndarray else 0
    return id(base_of(value)), begin


def _meta(t: Any) -> tuple[Any, ...]:
    raw = t.raw
    return (tuple(raw.shape), raw.dtype, t.keys, getattr(raw, "strides", None))


def _shown(value: Any) -> str:
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, Value):
        return f"a {type(value).__name__} of shape {tuple(value.raw.shape)}"
    return f"a {type(value).__name__}"
