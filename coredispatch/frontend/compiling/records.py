"""What was read of Python's state, one record each: how to read it again, and how to write it."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.numbers import plain, plain_keys
from coredispatch.plugin import Device

__all__ = [
    "FIXED",
    "LISTS",
    "MISSING",
    "PLAIN",
    "READ",
    "Record",
    "Snapshot",
    "equal",
    "put_back",
]


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()

#: values that never change, compared by type and value
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
#: kinds of records whose values are the elements of a container
LISTS = ("list", "keys")
#: kinds of records that cannot be written
FIXED = ("keys", "class", "array", "members")


class Record:
    """One thing that was read: ``kind`` says how, ``value`` what it was."""

    __slots__ = (
        "dynamic",
        "holder",
        "how",
        "key",
        "kind",
        "moving",
        "open",
        "shown",
        "symbol",
        "value",
    )

    def __init__(self, kind: str, holder: Any, key: Any, value: Any, how: str) -> None:
        self.kind, self.holder, self.key, self.value, self.how = kind, holder, key, value, how
        self.dynamic = False
        self.symbol: Any = None  # what stands there while the program runs
        self.moving: set[int] = set()  # of a list: the numbers that are inputs
        self.open: dict[Any, Any] = {}  # path of a tensor in it -> dimensions that are symbols
        self.shown: Any = None  # of a container that is an input: ``(it, its parts)``

    @property
    def place(self) -> tuple[str, int, Any]:
        """Where it stands."""
        return self.kind, id(self.holder), self.key

    def now(self) -> Any:
        """What it is now."""
        return READ[self.kind](self.holder, self.key)

    def put(self, value: Any) -> None:
        """Make it ``value``."""
        _WRITE[self.kind](self.holder, self.key, value)

    def held(self) -> bool:
        """Whether it is what it was."""
        now = self.now()
        if now is self.value:
            return True
        if self.moving:
            return self.same_but_moving(now)
        return equal(now, self.value)

    def same_but_moving(self, now: Any) -> bool:
        """Whether a list is what it was, whatever the numbers in it that are inputs."""
        if len(now) != len(self.value):
            return False
        pairs = enumerate(zip(now, self.value))
        return all(
            (type(plain(a)) is type(b)) if i in self.moving else equal(a, b) for i, (a, b) in pairs
        )


def equal(now: Any, then: Any) -> bool:
    """Whether two values are the same to every program: identical, or equal and unchangeable."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if type(now) is float:  # the two zeros differ
        return (now == then and (now != 0 or repr(now) == repr(then))) or (
            now != now and then != then
        )
    if type(now) is complex:
        return repr(now) == repr(then)
    if isinstance(now, np.generic):
        return bool(now.dtype == then.dtype and now.tobytes() == then.tobytes())
    if hasattr(now, "__dict__") and isinstance(now, PLAIN):  # of a class that adds attributes
        return False
    if isinstance(now, (*PLAIN, np.dtype, slice, range, Device, frozenset)):
        return bool(now == then)
    if isinstance(now, tuple):
        return len(now) == len(then) and all(map(equal, now, then))
    if isinstance(now, types.MethodType):
        return now.__func__ is then.__func__ and now.__self__ is then.__self__
    if isinstance(now, Snapshot):
        a, b = now.data, then.data
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return False


class Snapshot:
    """A copy of a NumPy array."""

    def __init__(self, data: Any) -> None:
        self.data = data.copy()


def _put_item(holder: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        holder.pop(key, None)
    else:
        holder[key] = value


def _put_list(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, collections.deque):
        holder.clear()
        holder.extend(value)
    elif isinstance(holder, set):
        holder.clear()
        holder.update(value)
    else:
        holder[:] = value


def _refuse(holder: Any, key: Any, value: Any) -> None:
    raise AssertionError("what cannot be written is refused when it is captured")


def _keys(holder: Any) -> tuple[Any, ...]:
    try:
        return tuple(holder)
    except KeyError:  # an OrderedDict looks them up, and one is a size of a program
        return tuple(dict.keys(holder))


def _cell(holder: Any, key: Any) -> Any:
    try:
        return holder.cell_contents
    except ValueError:
        return MISSING


def _put_cell(holder: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        del holder.cell_contents
    else:
        holder.cell_contents = value


def _put_attribute(holder: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        delattr(holder, key)
    else:
        setattr(holder, key, value)


def put_back(records: Iterable[Record]) -> None:
    """Make all records what they were, and dicts and lists as long and in the order they were."""
    changed = [r for r in records if r.kind == "keys" or r.now() is not r.value]
    for record in sorted(changed, key=lambda record: record.kind == "entry"):  # lists before them
        if record.kind == "keys":
            plain_keys(record.holder)
            for key in set(record.now()) - set(record.value):
                record.holder.pop(key)
        elif record.kind == "array":
            if not equal(record.now(), record.value):
                record.holder[...] = record.value.data
        elif record.kind not in ("class", "members"):
            record.put(record.value)
    for record in changed:
        if record.kind == "keys" and record.now() != record.value:
            for key in filter(record.holder.__contains__, record.value):
                record.holder[key] = record.holder.pop(key)


READ: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda holder, key: holder.get(key, MISSING),
    "keys": lambda holder, key: _keys(holder),
    "list": lambda holder, key: tuple(holder),
    "cell": _cell,
    "attribute": lambda holder, key: getattr(holder, key, MISSING),
    "entry": lambda holder, key: holder[key] if key < len(holder) else MISSING,
    "class": lambda holder, key: type(holder),
    "member": lambda holder, key: vars(holder).get(key, MISSING),
    "members": lambda holder, key: tuple(vars(holder)),
    "array": lambda holder, key: Snapshot(holder),
}
_WRITE: dict[str, Callable[[Any, Any, Any], None]] = {
    "item": _put_item,
    "keys": _refuse,
    "list": _put_list,
    "cell": _put_cell,
    "attribute": _put_attribute,
    "entry": lambda holder, key, value: holder.__setitem__(key, value),
    "class": _refuse,
    "member": _put_attribute,
    "members": _refuse,
    "array": _refuse,
}
