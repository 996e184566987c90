"""What a compiled program makes at run time besides tensors, numbers and containers.

Objects of scripted classes, named tuples and members of enumerations. In the process that compiled
the program they are of the user's own classes; a program that was loaded makes its own, from their
names alone.
"""

from __future__ import annotations

import collections
import enum
import weakref
from collections.abc import Callable
from typing import Any

__all__ = [
    "NamedTupleType",
    "ObjectType",
    "ScriptError",
    "ScriptObject",
    "enumeration",
    "get_field",
    "set_field",
]

#: the user's classes whose objects a program may have
_CLASSES: weakref.WeakSet[type] = weakref.WeakSet()


class ScriptError(Exception):
    """What ``raise`` and ``assert`` in a compiled program raise, whatever class they name."""


class ScriptObject:
    """An object of a scripted class in a process that does not have the class: attributes only."""

    _script_class: str

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k != "_script_class")
        return f"<{self._script_class} {shown}>"


class ObjectType:
    """Makes empty objects of one scripted class.

    Attributes:
        name: of the class.
        python: the class itself, None in a program that was loaded.
    """

    def __init__(self, name: str, python: type | None = None) -> None:
        self.name = self.__name__ = name
        self.python = python
        if python is not None:
            _CLASSES.add(python)

    def __call__(self) -> Any:
        """A new object without attributes."""
        if self.python is not None:
            return self.python.__new__(self.python)
        made = ScriptObject()
        made._script_class = self.name
        return made

    def __reduce__(self) -> Any:
        return ObjectType, (self.name, self.python)


def get_field(value: Any, name: str) -> Any:
    """An attribute of an object of a scripted class, and of no other object."""
    _check(value, name)
    return getattr(value, name)


def set_field(value: Any, name: str, content: Any) -> None:
    """Write an attribute of an object of a scripted class."""
    _check(value, name)
    setattr(value, name, content)


def _check(value: Any, name: str) -> None:
    if name.startswith("__") or not (isinstance(value, ScriptObject) or type(value) in _CLASSES):
        raise ScriptError(f"{type(value).__name__!r} is no scripted class with a field {name!r}")


class NamedTupleType:
    """Makes tuples of one named tuple class.

    Attributes:
        name, fields: of the class.
        python: the class; where a program was loaded, one made from name and fields.
    """

    def __init__(self, name: str, fields: tuple[str, ...], python: Any = None) -> None:
        self.name = self.__name__ = name
        self.fields = fields
        self.python = python if python is not None else _tuple_class(name, fields)

    def __call__(self, *values: Any) -> Any:
        """A tuple of the values, one for each field."""
        return self.python(*values)

    def __reduce__(self) -> Any:
        return NamedTupleType, (self.name, self.fields, self.python)


_MADE: dict[Any, Any] = {}


def _once(key: Any, make: Callable[[], Any]) -> Any:
    """One class for one description, so that values of two programs compare."""
    found = _MADE.get(key)
    if found is None:
        found = _MADE[key] = make()
    return found


def _tuple_class(name: str, fields: tuple[str, ...]) -> Any:
    return _once((name, fields), lambda: collections.namedtuple(name, fields))


class _Loaded(enum.Enum):
    """An enumeration of a program that was loaded.

    Its members equal those of the user's class of this name: the program was compiled from it, and
    gets members of it as arguments.
    """

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, enum.Enum):
            return NotImplemented
        return (type(self).__name__, self.name) == (type(other).__name__, other.name)

    __hash__ = enum.Enum.__hash__


def enumeration(name: str, members: tuple[tuple[str, Any], ...], base: str | None = None) -> Any:
    """An enumeration class with these members, which are ``base`` (int or str) too."""
    kind = None if base is None else {"int": int, "str": str}[base]
    key = (name, kind, tuple((member, type(value), value) for member, value in members))
    return _once(key, lambda: _Loaded(name, members, type=kind))
