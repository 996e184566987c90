"""The guards of a program: what it read of Python's state, compared at every call."""

from __future__ import annotations

import operator
from typing import Any

from coredispatch.frontend.compiling.state import MISSING, Record

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
    ) -> None:
        self.items = [
            (r.holder.get, r.key, r.value) for r in records if r.kind == "item" and not r.dynamic
        ]
        self.items += [
            (vars(r.holder).get, r.key, r.value)
            for r in records
            if r.kind == "member" and not r.dynamic
        ]
        self.lists = [
            (r.holder, r.value, len(r.value)) for r in records if r.kind in _LISTS and not r.moving
        ]
        other = ("item", "member", *_LISTS)
        self.others = [r for r in records if (r.kind not in other or r.moving) and not r.dynamic]
        self.numbers = [r for r in records if r.dynamic]
        self.tensors = [(t, t.raw, t.keys) for t in tensors]
        self.metas = [_meta(t) for t in tensors]
        self.grads = [(t, absent[id(t)]) for t in grads]
        self.records = records
        self.leaves = leaves  # number of an argument -> whether it has no gradient
        self.parts = (records, tensors, grads, absent)

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
        return Guards(*found, absent, leaves)

    def hold(self, leaves: list[Any]) -> bool:
        """Whether all is as it was: the short way, by identity."""
        for get, key, value in self.items:
            if get(key, MISSING) is not value:
                return self.slowly(leaves)
        for holder, values, count in self.lists:
            if len(holder) != count or not all(map(operator.is_, holder, values)):
                return self.slowly(leaves)
        for t, raw, keys in self.tensors:
            if t.raw is not raw or t.keys != keys:
                return self.slowly(leaves)
        for record in self.others:
            if not record.held():
                return False
        for record in self.numbers:
            if type(record.now()) is not type(record.value):
                return False
        for t, absent in self.grads:
            if (t._grad is None) is not absent:
                return False
        for i, absent in self.leaves.items():
            if (leaves[i]._grad is None) is not absent:
                return False
        return True

    def slowly(self, leaves: list[Any]) -> bool:
        """Whether everything is equal to what it was; then that is what is compared with."""
        if self.broken(leaves) is not None:
            return False
        self.items = [(g, k, g(k, MISSING)) for g, k, _ in self.items]
        self.lists = [(h, tuple(h), n) for h, _, n in self.lists]
        self.tensors = [(t, t.raw, t.keys) for t, _, _ in self.tensors]
        return True

    def broken(self, leaves: list[Any]) -> str | None:
        """What is not as it was, in words."""
        for record in self.records:
            if record.dynamic:
                if type(record.now()) is not type(record.value):
                    return f"{record.how} is a {type(record.now()).__name__}"
            elif not record.held():
                return f"{record.how} changed: {_shown(record.value)} -> {_shown(record.now())}"
        for (t, _, _), meta in zip(self.tensors, self.metas):
            if _meta(t) != meta:
                return f"a parameter or constant of shape {tuple(meta[0])} has another form"
        for t, absent in (*self.grads, *((leaves[i], a) for i, a in self.leaves.items())):
            if (t._grad is None) is not absent:
                there = "has a gradient now" if absent else "has no gradient any more"
                return f"a tensor of shape {tuple(t.shape)} {there}"
        return None

    def changed(self) -> list[Record]:
        """The records that do not hold."""
        return [r for r in self.records if not r.dynamic and not r.held()]

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


_LISTS = ("list", "keys")


def _meta(t: Any) -> tuple[Any, ...]:
    raw = t.raw
    return (tuple(raw.shape), raw.dtype, t.keys, getattr(raw, "strides", None))


def _shown(value: Any) -> str:
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    return f"a {type(value).__name__}"
