"""What the compiler knows of a value: its type, in the names of TorchScript."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ANY",
    "BOOL",
    "COMPLEX",
    "DEVICE",
    "DTYPE",
    "FLOAT",
    "INT",
    "NONE",
    "NUMBER",
    "STR",
    "TENSOR",
    "Type",
    "dictionary",
    "fits",
    "future",
    "join",
    "list_of",
    "optional",
    "tuple_of",
    "union",
    "without_none",
]


@dataclass(frozen=True)
class Type:
    """A type: a name, the types inside it, and for classes what Python and the compiler know.

    ``Any`` is a value of which nothing is known: every operation on it is left to run time.
    """

    name: str
    args: tuple[Type, ...] = ()
    fields: tuple[str, ...] = ()
    python: Any = field(default=None, compare=True)

    def __str__(self) -> str:
        if self.name in ("NamedTuple", "Class", "Enum"):
            return str(getattr(self.python, "__name__", self.name))
        if self.name == "Tuple" and not self.args:
            return "Tuple[()]"
        if not self.args:
            return self.name
        return f"{self.name}[{', '.join(map(str, self.args))}]"


TENSOR, INT, FLOAT, BOOL, STR = map(Type, ("Tensor", "int", "float", "bool", "str"))
COMPLEX, DEVICE, DTYPE, NUMBER = map(Type, ("complex", "Device", "dtype", "number"))
NONE, ANY = Type("NoneType"), Type("Any")


def list_of(item: Type) -> Type:
    """``List[item]``."""
    return Type("List", (item,))


def dictionary(key: Type, value: Type) -> Type:
    """``Dict[key, value]``."""
    return Type("Dict", (key, value))


def tuple_of(*items: Type) -> Type:
    """``Tuple[items]``."""
    return Type("Tuple", items)


def future(item: Type) -> Type:
    """``Future[item]``."""
    return Type("Future", (item,))


def optional(item: Type) -> Type:
    """``Optional[item]``; of ``Any`` and of what is optional already, itself."""
    if item in (NONE, ANY) or item.name == "Optional":
        return item
    return Type("Optional", (item,))


def union(items: tuple[Type, ...]) -> Type:
    """``Union[items]``, with ``Optional`` for what has None in it."""
    parts = [part for i in items for part in (i.args if i.name == "Union" else (i,))]
    plain = tuple(dict.fromkeys(i for i in parts if i != NONE))
    if ANY in plain:
        return ANY
    made = plain[0] if len(plain) == 1 else Type("Union", plain)
    return optional(made) if NONE in items else made


def without_none(kind: Type) -> Type:
    """``T`` of ``Optional[T]``; other types as they are."""
    return kind.args[0] if kind.name == "Optional" else kind


def fits(given: Type, wanted: Type) -> bool:
    """Whether a value of type ``given`` may stand where ``wanted`` is asked for."""
    if given == wanted or ANY in (given, wanted):
        return True
    if wanted.name == "Optional":
        return given == NONE or fits(without_none(given), wanted.args[0])
    if wanted.name == "Union":
        parts = given.args if given.name == "Union" else (given,)
        return all(any(fits(part, one) for one in wanted.args) for part in parts)
    if NUMBER in (given, wanted):
        other = wanted if given == NUMBER else given
        return other in (INT, FLOAT, COMPLEX, BOOL)
    if given.name == "NamedTuple" and wanted.name == "Tuple":
        return len(given.args) == len(wanted.args) and all(map(fits, given.args, wanted.args))
    same = given.name == wanted.name and given.python == wanted.python
    if not same or len(given.args) != len(wanted.args) or given.name in ("Class", "Enum"):
        return False
    return all(map(fits, given.args, wanted.args))


def join(a: Type, b: Type) -> Type | None:
    """The type of a value that is one of two, None where there is none."""
    if ANY in (a, b):
        return ANY
    if fits(a, b):
        return b
    if fits(b, a):
        return a
    if NONE in (a, b) or "Optional" in (a.name, b.name):
        inner = without_none(b if a == NONE else a)
        other = without_none(a if b == NONE else b)
        joined = inner if inner == other else join(inner, other)
        return None if joined is None else optional(joined)
    if a.name == b.name == "Tuple" and len(a.args) == len(b.args):
        parts = tuple(join(x, y) for x, y in zip(a.args, b.args))
        return None if None in parts else tuple_of(*parts)  # type: ignore[arg-type]
    return None
