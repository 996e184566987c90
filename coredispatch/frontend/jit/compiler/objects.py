"""Operators of objects of scripted classes: calls of their methods, chosen by type.

A loaded program makes objects without methods, so nothing may be left to Python's operators.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import math
from typing import Any

from coredispatch.frontend.jit.compiler import comparing
from coredispatch.frontend.jit.compiler.blocks import Writer
from coredispatch.frontend.jit.compiler.types import BOOL, INT, NONE, STR, Type, without_none
from coredispatch.frontend.jit.compiler.values import Items, Val

__all__ = ["Objects"]

#: functions of Python, and the methods of their first argument that they call
_CALLED: dict[Any, str] = {
    abs: "__abs__",
    complex: "__complex__",
    divmod: "__divmod__",
    float: "__float__",
    hash: "__hash__",
    int: "__int__",
    len: "__len__",
    round: "__round__",
    math.ceil: "__ceil__",
    math.floor: "__floor__",
    math.trunc: "__trunc__",
}
#: functions that look at the elements of their argument
_OF_ELEMENTS: dict[Any, Any] = {
    builtins.all: comparing.all_of,
    builtins.any: comparing.any_of,
    builtins.max: comparing.largest,
    builtins.min: comparing.smallest,
    builtins.sorted: comparing.ordered,
}
_OF_LISTS = {"count": comparing.count, "index": comparing.index, "remove": comparing.remove}
_COMPARISONS: dict[str, Any] = {
    "__eq__": ast.Eq,
    "__lt__": ast.Lt,
    "__le__": ast.LtE,
    "__gt__": ast.Gt,
    "__ge__": ast.GtE,
}


class Objects(Writer):
    """What operators, conditions and functions of Python mean for objects."""

    attribute: Any  # of Attributes
    binary: Any  # of Operations
    compare: Any
    call_method_of: Any  # of Calls
    inline: Any

    def defines(self, value: Any, name: str) -> bool:
        """Whether ``value`` is an object whose class has the method."""
        kind = self.type_of(value)
        return kind.name == "Class" and inspect.isfunction(vars(kind.python).get(name))

    def truth(self, value: Any) -> bool | None:
        """See :class:`Writer`: an object whose class does not say is true."""
        if self.type_of(value).name == "Class":
            says = self.defines(value, "__bool__") or self.defines(value, "__len__")
            return None if says else True
        return super().truth(value)

    def condition_of(self, value: Any) -> Any:
        """What decides whether ``value`` is true: for objects ``__bool__`` or ``__len__``."""
        kind = self.type_of(value)
        if kind.name == "Optional" and kind.args[0].name == "Class":
            there = self.compare(ast.IsNot, value, Val(None, NONE))
            inner = Val(self.arg_of(value), without_none(kind))
            return self.either(
                self.arg_of(there), lambda: self.condition_of(inner), lambda: Val(False, BOOL)
            )
        if kind.name != "Class":
            return value
        if self.defines(value, "__bool__"):
            return self.call_method_of(value, "__bool__", [], {})
        if self.defines(value, "__len__"):
            length = self.call_method_of(value, "__len__", [], {})
            return self.compare(ast.NotEq, length, Val(0, INT))
        return Val(True, BOOL)

    # -- functions -------------------------------------------------------------------------------

    def object_call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a function of Python with objects, NotImplemented where it is another one."""
        if not args:
            return NotImplemented
        try:
            name, program = _CALLED.get(fn), _OF_ELEMENTS.get(fn)
        except TypeError:  # not hashable
            return NotImplemented
        if name is not None and self.defines(args[0], name):
            return self.call_method_of(args[0], name, args[1:], kwargs)
        if program is None or not any(_inner(self.type_of(arg)) for arg in args):
            return NotImplemented
        if len(args) > 1 and fn in (min, max):  # of the arguments, not of the elements of one
            args = [self.as_list(args, self.type_of(args[0]))]
        return self.inline(program, args, kwargs)

    def object_method(self, value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A method of a list that compares objects, NotImplemented where it is another one."""
        kind = self.type_of(value)
        if kind.name == "List" and name in _OF_LISTS and args and self.equated(kind, args[0]):
            return self.inline(_OF_LISTS[name], [value, *args], kwargs)
        if kind.name == "List" and name == "sort" and kind.args[0].name == "Class":
            made = self.inline(comparing.ordered, [value, *args], kwargs)
            self.method("clear", value, kind=NONE)
            return self.method("extend", value, made, kind=NONE)
        if kind == STR and name == "format":
            shown = [self.shown(arg) for arg in args]
            if shown != args:
                return self.method("format", value, *shown, kind=STR, **kwargs)
        return NotImplemented

    def shown(self, value: Any, conversion: str = "__str__") -> Any:
        """``str(value)``, or ``repr(value)``, of an object that says how; others as they are."""
        for name in dict.fromkeys((conversion, "__repr__")):
            if self.defines(value, name):
                return self.call_method_of(value, name, [], {})
        if isinstance(value, Items):
            return Items(tuple(self.shown(item, "__repr__") for item in value.items))
        return value

    # -- comparisons -----------------------------------------------------------------------------

    def equated(self, *values: Any) -> bool:
        """Whether equality of one of the values, or types, depends on a method ``__eq__``."""
        kinds = [v if isinstance(v, Type) else self.type_of(v) for v in values]
        return any(map(_equated, kinds))

    def object_equality(self, left: Any, right: Any) -> Any:
        """``left == right`` of what has objects in it, NotImplemented for other values."""
        a, b = self.type_of(left), self.type_of(right)
        if not self.equated(a, b):
            return NotImplemented
        if "Optional" in (a.name, b.name):
            return self.inline(comparing.equal_or_none, [left, right], {})
        if a.name == b.name == "List":
            return self.inline(comparing.equal_lists, [left, right], {})
        if {a.name, b.name} <= {"Tuple", "NamedTuple"}:
            if len(a.args) != len(b.args):
                return Val(False, BOOL)
            pairs = list(zip(self.parts(left), self.parts(right)))
            return self.chained(pairs, lambda pair: self.compare(ast.Eq, *pair), until=False)
        return NotImplemented

    def object_contains(self, item: Any, place: Any) -> Any:
        """``item in place`` where one of them has objects, NotImplemented for other values."""
        kind = self.type_of(place)
        if kind.name == "Class":
            return self.call_method_of(place, "__contains__", [item], {})
        if not self.equated(item, kind):
            return NotImplemented
        if kind.name == "List":
            return self.inline(comparing.contains, [place, item], {})
        if kind.name in ("Tuple", "NamedTuple"):
            parts = self.parts(place)
            return self.chained(parts, lambda one: self.compare(ast.Eq, one, item), until=True)
        return NotImplemented

    def parts(self, value: Any) -> list[Any]:
        """The elements of a tuple."""
        if isinstance(value, Items):
            return list(value.items)
        return [self.element(value, i, kind) for i, kind in enumerate(value.type.args)]

    def chained(self, values: list[Any], test: Any, until: bool) -> Any:
        """``test`` of one value after the other, until it gives ``until``."""
        if not values:
            return Val(not until, BOOL)
        first = test(values[0])
        known = self.truth(first)
        if known is not None:
            return Val(known, BOOL) if known is until else self.chained(values[1:], test, until)
        ways = (lambda: Val(until, BOOL), lambda: self.chained(values[1:], test, until))
        return self.either(self.arg_of(first), *(ways if until else ways[::-1]))

    # -- dataclasses -----------------------------------------------------------------------------

    def generated(self, value: Val, name: str, args: list[Any]) -> Any:
        """A method that ``dataclass`` wrote, NotImplemented for one of the user's."""
        cls: Any = value.type.python
        named, written = cls.__qualname__, vars(cls).get(name)
        if not (dataclasses.is_dataclass(cls) and _is_generated(written)):
            return NotImplemented
        fields = dataclasses.fields(cls)
        if name == "__repr__":
            shown = [f.name for f in fields if f.repr]
            text = ", ".join(f"{field}={{!r}}" for field in shown)
            given = [self.shown(self.attribute(value, field), "__repr__") for field in shown]
            return self.method("format", Val(f"{named}({text})", STR), *given, kind=STR)
        if name not in _COMPARISONS:
            raise self.unsupported(f"{name} of a dataclass isn't supported")
        (other,) = args
        if self.type_of(other) != value.type:
            if name == "__eq__":
                return Val(False, BOOL)
            raise self.error(f"{named} has no order with {self.type_of(other)}")
        names = [f.name for f in fields if f.compare]
        both = [Items(tuple(self.attribute(one, n) for n in names)) for one in (value, other)]
        return self.compare(_COMPARISONS[name], *both)


def _is_generated(fn: Any) -> bool:
    return inspect.isfunction(fn) and inspect.unwrap(fn).__code__.co_filename == "<string>"


def _inner(kind: Type) -> bool:
    """Whether a type is a class, or a list of one."""
    return kind.name == "Class" or kind.name == "List" and kind.args[0].name == "Class"


def _equated(kind: Type) -> bool:
    if kind.name == "Class":
        return "__eq__" in vars(kind.python)
    return kind.name in ("List", "Optional", "Tuple", "NamedTuple") and any(
        map(_equated, kind.args)
    )
